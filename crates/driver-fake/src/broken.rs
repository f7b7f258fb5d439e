//! Drivers of the fake cloud that are each wrong in one way: for each check of the conformance some that fail it and nothing else.
//! [`Changed`] passes everything on to the driver; a [`Change`] replaces one operation.

use async_trait::async_trait;
use ccm_drivers::{
    contract::{
        Account, AccountInfo, CommandOutput, Driver, DriverType, Endpoint, Filter, Instance, InstanceSpec, Instances,
        Inventory, Metrics, Region, Result, RunCommand, Topology, Zone,
    },
    settings::{Setting, Values},
};

use crate::Fake;

mod changes;
mod tests;

/// A change of a driver. `next` is the driver as it is.
#[async_trait]
trait Change: Send + Sync {
    fn values(&self, values: &Values) -> Values {
        values.clone()
    }

    async fn verify(&self, next: &dyn Driver) -> Result<AccountInfo> {
        next.account().verify().await
    }

    async fn zones(&self, next: &dyn Driver, region: Option<&str>) -> Result<Vec<Zone>> {
        next.topology().zones(region).await
    }

    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        of(next).list(filter).await
    }

    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        of(next).get(id).await
    }

    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        of(next).create(spec).await
    }

    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        of(next).delete(id).await
    }

    async fn run(&self, next: &dyn Driver, id: &str, command: &[String]) -> Result<CommandOutput> {
        next.run_command().unwrap().run(id, command).await
    }
}

fn of(driver: &dyn Driver) -> &dyn Instances {
    driver.instances().unwrap()
}

/// The driver `fake` with a change.
struct Changed<M> {
    fake: Fake,
    make: M,
}

#[async_trait]
impl<M: Fn(&Values) -> Box<dyn Change> + Send + Sync> DriverType for Changed<M> {
    fn name(&self) -> &str {
        self.fake.name()
    }

    fn summary(&self) -> &str {
        self.fake.summary()
    }

    fn settings(&self) -> &[Setting] {
        self.fake.settings()
    }

    fn options(&self) -> &[Setting] {
        self.fake.options()
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        let change = (self.make)(values);
        let next = self.fake.open(&change.values(values)).await?;
        Ok(Box::new(ChangedDriver { next, change }))
    }

    async fn endpoint(&self, values: &Values) -> Result<Option<Endpoint>> {
        self.fake.endpoint(values).await
    }

    async fn through(&self, values: &Values, endpoint: &Endpoint) -> Result<Values> {
        self.fake.through(values, endpoint).await
    }
}

struct ChangedDriver {
    next: Box<dyn Driver>,
    change: Box<dyn Change>,
}

#[async_trait]
impl Driver for ChangedDriver {
    fn account(&self) -> &dyn Account {
        self
    }

    fn topology(&self) -> &dyn Topology {
        self
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        self.next.inventory()
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        self.next.metrics()
    }

    fn run_command(&self) -> Option<&dyn RunCommand> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.next.close().await
    }
}

#[async_trait]
impl Account for ChangedDriver {
    async fn verify(&self) -> Result<AccountInfo> {
        self.change.verify(&*self.next).await
    }

    async fn verify_settings(&self) -> Result<()> {
        self.next.account().verify_settings().await
    }
}

#[async_trait]
impl Topology for ChangedDriver {
    fn id_prefix(&self) -> String {
        self.next.topology().id_prefix()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        self.next.topology().regions().await
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        self.change.zones(&*self.next, region).await
    }
}

#[async_trait]
impl Instances for ChangedDriver {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        self.change.list(&*self.next, filter).await
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        self.change.get(&*self.next, id).await
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        self.change.create(&*self.next, spec).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.change.delete(&*self.next, id).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        of(&*self.next).start(id).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        of(&*self.next).stop(id).await
    }
}

#[async_trait]
impl RunCommand for ChangedDriver {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        self.change.run(&*self.next, id, command).await
    }
}
