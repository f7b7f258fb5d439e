//! What is only read of the cloud: regions, zones, the inventory and metrics; and commands (IO).

use async_trait::async_trait;
use ccm_drivers::contract::{
    CommandOutput, Inventory, Metrics, Region, Resource, ResourceKind, Result, RunCommand, Topology, Usage, Zone,
};

use super::Opened;
use crate::protocol::Request;

#[async_trait]
impl Topology for Opened {
    fn id_prefix(&self) -> String {
        "fake/".to_owned()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        self.client.call(&Request::ListRegions).await
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        self.client.call(&Request::ListZones { region: region.map(str::to_owned) }).await
    }
}

#[async_trait]
impl Inventory for Opened {
    fn kinds(&self) -> &[ResourceKind] {
        &ResourceKind::ALL
    }

    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        self.client.call(&Request::ListResources { kind, region: region.map(str::to_owned) }).await
    }
}

#[async_trait]
impl Metrics for Opened {
    async fn usage(&self, id: &str) -> Result<Usage> {
        self.client.call(&Request::GetUsage { id: id.to_owned() }).await
    }
}

#[async_trait]
impl RunCommand for Opened {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        self.check_own(id).await?;
        self.client.call(&Request::RunCommand { id: id.to_owned(), command: command.to_vec() }).await
    }
}
