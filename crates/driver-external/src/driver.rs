//! A driver in a program of its own, with an account.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_base::error::brief;
use ccm_drivers::contract::{
    Account, AccountInfo, Capability, CommandOutput, Driver, Error, Filter, Instance, InstanceSpec, Instances,
    Inventory, Metrics, Mode, Region, Resource, ResourceKind, Result, RunCommand, Topology, Usage, Zone,
};

use crate::{
    caller::Caller,
    problem::Problem,
    protocol::{self, Asked, Call, Done, One, Regions, Resources, Zones},
};

/// What the driver says it can do.
pub(crate) struct Capabilities {
    modes: BTreeMap<Capability, Mode>,
    kinds: Vec<ResourceKind>,
    id_prefix: String,
}

impl Capabilities {
    pub(crate) fn new(modes: BTreeMap<Capability, Mode>, id_prefix: String) -> Self {
        let has = |kind: &ResourceKind| modes.contains_key(&Capability::Inventory(*kind));
        let kinds = ResourceKind::ALL.into_iter().filter(has).collect();
        Self { modes, kinds, id_prefix }
    }
}

/// The driver with an account.
pub(crate) struct Opened {
    caller: Caller,
    capabilities: Arc<Capabilities>,
}

impl Opened {
    pub(crate) fn new(caller: Caller, capabilities: Arc<Capabilities>) -> Self {
        Self { caller, capabilities }
    }

    fn has(&self, capability: Capability) -> Option<&Self> {
        self.capabilities.modes.contains_key(&capability).then_some(self)
    }
}

impl Driver for Opened {
    fn account(&self) -> &dyn Account {
        self
    }

    fn topology(&self) -> &dyn Topology {
        self
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.has(Capability::Instances).map(|own| own as &dyn Instances)
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        Some(self).filter(|own| !own.capabilities.kinds.is_empty()).map(|own| own as &dyn Inventory)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        self.has(Capability::Metrics).map(|own| own as &dyn Metrics)
    }

    fn run_command(&self) -> Option<&dyn RunCommand> {
        self.has(Capability::RunCommand).map(|own| own as &dyn RunCommand)
    }

    fn mode(&self, capability: Capability) -> Mode {
        self.capabilities.modes.get(&capability).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Account for Opened {
    async fn verify(&self) -> Result<AccountInfo> {
        self.caller.call(Call::AccountShow {}).await
    }

    async fn verify_settings(&self) -> Result<()> {
        self.caller.call::<Done>(Call::VerifySettings {}).await.map(|_| ())
    }
}

#[async_trait]
impl Topology for Opened {
    fn id_prefix(&self) -> String {
        self.capabilities.id_prefix.clone()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        Ok(self.caller.call::<Regions>(Call::RegionList {}).await?.regions)
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        Ok(self.caller.call::<Zones>(Call::ZoneList { region: region.map(str::to_owned) }).await?.zones)
    }
}

#[async_trait]
impl Instances for Opened {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let call = Call::list(filter);
        let operation = call.name();
        let listed: protocol::Instances = self.caller.call(call).await?;
        match listed.instances.iter().find(|instance| !filter.fits(instance)) {
            None => Ok(listed.instances),
            Some(other) => {
                let reason = format!("the instance {:?} does not fit the filter", brief(&other.id));
                Err(Error::from(Problem::WrongAnswer { operation, reason }))
            }
        }
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        Ok(self.caller.call::<One>(Call::InstanceShow(Asked::Id(id.to_owned()))).await?.instance)
    }

    async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let asked = Asked::ProviderId(provider_id.to_owned());
        Ok(self.caller.call::<One>(Call::InstanceShow(asked)).await?.instance)
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        Ok(self.caller.create::<One>(spec).await?.instance)
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.caller.call::<Done>(Call::InstanceDelete { id: id.to_owned() }).await.map(|_| ())
    }

    async fn start(&self, id: &str) -> Result<()> {
        self.caller.call::<Done>(Call::InstanceStart { id: id.to_owned() }).await.map(|_| ())
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.caller.call::<Done>(Call::InstanceStop { id: id.to_owned() }).await.map(|_| ())
    }
}

#[async_trait]
impl Inventory for Opened {
    fn kinds(&self) -> &[ResourceKind] {
        &self.capabilities.kinds
    }

    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        if !self.capabilities.kinds.contains(&kind) {
            return Err(Error::not_supported(format!("the driver has no {}", kind.plural())));
        }
        Ok(self.caller.call::<Resources>(Call::inventory(kind, region)).await?.resources)
    }
}

#[async_trait]
impl Metrics for Opened {
    async fn usage(&self, id: &str) -> Result<Usage> {
        self.caller.call(Call::InstanceMetrics { id: id.to_owned() }).await
    }
}

#[async_trait]
impl RunCommand for Opened {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        self.caller.call(Call::InstanceRun { id: id.to_owned(), command: command.to_vec() }).await
    }
}
