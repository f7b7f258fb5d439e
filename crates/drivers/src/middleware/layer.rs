//! Each capability of a driver, with every operation run by [`Calls`].

use async_trait::async_trait;

use super::calls::{Call, Calls, Nature};
use crate::{
    contract::{
        Account, AccountInfo, Capability, CommandOutput, Driver, Error, ErrorKind, Filter, Instance, InstanceSpec,
        Instances, Inventory, Metrics, Region, Resource, ResourceKind, Result, RunCommand, Topology, Usage, Zone,
    },
    error::brief,
    settings::READ_ONLY,
};

/// A driver and what is done around its operations.
pub(super) struct Layer {
    pub(super) inner: Box<dyn Driver>,
    pub(super) calls: Calls,
    pub(super) read_only: bool,
    pub(super) account: Expected,
}

/// The ids that the account has to have.
pub(super) struct Expected {
    /// That of the setting.
    pub(super) set: Option<String>,
    /// The one that was seen first.
    pub(super) seen: Option<String>,
}

impl Expected {
    /// Adds the account to a refusal of the driver, which knows the id that was seen first as the setting.
    fn explain(&self, error: Error) -> Error {
        match &self.seen {
            Some(seen) if self.set.is_none() && error.kind == ErrorKind::InvalidCredentials => {
                error.context(format!("the account was {seen:?} when it was first used"))
            }
            _ => error,
        }
    }

    /// Refuses an account with another id.
    fn check(&self, info: &AccountInfo) -> Result<()> {
        let id = brief(&info.id);
        if id.is_empty() {
            return Err(Error::new(ErrorKind::Internal, "the driver answered with an account without an id"));
        }
        let problem = if let Some(set) = self.set.as_ref().filter(|set| **set != info.id) {
            format!(
                "the credentials belong to the account {id:?}, but the setting accountID is {set:?}: give the credentials of \
                 {set:?}, or change accountID if {id:?} is meant"
            )
        } else if let Some(seen) = self.seen.as_ref().filter(|seen| **seen != info.id) {
            format!(
                "the credentials belong to the account {id:?}, but the account was {seen:?} when it was first used: give the \
                 credentials of {seen:?}, or remove the id that was kept of the first use if {id:?} is meant"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidCredentials, problem))
    }
}

impl Layer {
    /// Refuses an operation that changes something where that is not allowed.
    fn change(&self, operation: &str, object: &str, capability: Capability) -> Result<()> {
        let reason = if self.read_only {
            format!("the setting {READ_ONLY} is true")
        } else if self.inner.mode(capability).read_only {
            format!("the driver has the capability {} read-only", capability.name())
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::ReadOnly, format!("{operation} {object:?}: {reason}")))
    }

    fn instances(&self) -> Result<&dyn Instances> {
        self.inner.instances().ok_or_else(|| lacks(Capability::Instances))
    }

    fn inventory(&self, kind: ResourceKind) -> Result<&dyn Inventory> {
        self.inner.inventory().ok_or_else(|| lacks(Capability::Inventory(kind)))
    }
}

fn lacks(capability: Capability) -> Error {
    Error::not_supported(format!("the driver does not have the capability {}", capability.name()))
}

/// An operation that can be repeated.
fn call<'a>(operation: &'static str, object: &'a str) -> Call<'a> {
    Call { operation, object, request: None, nature: Nature::Repeatable }
}

/// Refuses an answer about another object than the one that was asked for.
fn same(what: &str, asked: &str, answered: &str) -> Result<()> {
    if asked == answered {
        return Ok(());
    }
    let message = format!("the driver was asked for the {what} {asked:?} and answered with {:?}", brief(answered));
    Err(Error::new(ErrorKind::Internal, message))
}

#[async_trait]
impl Account for Layer {
    async fn verify(&self) -> Result<AccountInfo> {
        let verified = self.calls.run(call("verify credentials", ""), || self.inner.account().verify()).await;
        let info = verified.map_err(|error| self.account.explain(error))?;
        self.account.check(&info)?;
        Ok(info)
    }

    async fn verify_settings(&self) -> Result<()> {
        self.calls.run(call("verify settings", ""), || self.inner.account().verify_settings()).await
    }
}

#[async_trait]
impl Topology for Layer {
    fn id_prefix(&self) -> String {
        self.inner.topology().id_prefix()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        self.calls.run(call("list regions", ""), || self.inner.topology().regions()).await
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        self.calls.run(call("list zones", region.unwrap_or_default()), || self.inner.topology().zones(region)).await
    }

    async fn region(&self, id: &str) -> Result<Region> {
        let region = self.calls.run(call("get region", id), || self.inner.topology().region(id)).await?;
        same("region", id, &region.id)?;
        Ok(region)
    }

    async fn zone(&self, id: &str) -> Result<Zone> {
        let zone = self.calls.run(call("get zone", id), || self.inner.topology().zone(id)).await?;
        same("zone", id, &zone.id)?;
        Ok(zone)
    }
}

#[async_trait]
impl Instances for Layer {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let instances = self.instances()?;
        let call = Call { request: Some(filter), ..call("list instances", "") };
        self.calls.run(call, || instances.list(filter)).await
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        let instances = self.instances()?;
        let instance = self.calls.run(call("get instance", id), || instances.get(id)).await?;
        same("instance", id, &instance.id)?;
        Ok(instance)
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        const OPERATION: &str = "create instance";
        let instances = self.instances()?;
        self.change(OPERATION, &spec.name, Capability::Instances)?;
        let call = Call { request: Some(spec), nature: Nature::Slow, ..call(OPERATION, &spec.name) };
        let instance = self.calls.run(call, || instances.create(spec)).await?;
        let owner = instance.marks.owner.as_deref().unwrap_or_default();
        // Without a name the driver makes one.
        let name = if spec.name.is_empty() { &instance.name } else { &spec.name };
        same("name", name, &instance.name)
            .and_then(|()| same("owner", &spec.key, owner))
            .map_err(|error| error.context(format!("{OPERATION} {:?}", spec.name)).after(instance.id.clone()))?;
        Ok(instance)
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("delete instance", id, Capability::Instances)?;
        self.calls.run(call("delete instance", id), || instances.delete(id)).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("start instance", id, Capability::Instances)?;
        self.calls.run(call("start instance", id), || instances.start(id)).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("stop instance", id, Capability::Instances)?;
        self.calls.run(call("stop instance", id), || instances.stop(id)).await
    }
}

#[async_trait]
impl Inventory for Layer {
    fn kinds(&self) -> &[ResourceKind] {
        self.inner.inventory().map(Inventory::kinds).unwrap_or_default()
    }

    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        let inventory = self.inventory(kind)?;
        let call = Call { request: Some(&region), ..call("list inventory", kind.plural()) };
        self.calls.run(call, || inventory.list(kind, region)).await
    }

    async fn get(&self, kind: ResourceKind, id: &str) -> Result<Resource> {
        let inventory = self.inventory(kind)?;
        let call = Call { request: Some(&kind), ..call("get inventory", id) };
        let resource = self.calls.run(call, || inventory.get(kind, id)).await?;
        same(kind.word(), id, &resource.id)?;
        Ok(resource)
    }
}

#[async_trait]
impl Metrics for Layer {
    async fn usage(&self, id: &str) -> Result<Usage> {
        let metrics = self.inner.metrics().ok_or_else(|| lacks(Capability::Metrics))?;
        self.calls.run(call("get usage of instance", id), || metrics.usage(id)).await
    }
}

#[async_trait]
impl RunCommand for Layer {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        let run_command = self.inner.run_command().ok_or_else(|| lacks(Capability::RunCommand))?;
        self.change("run command in instance", id, Capability::RunCommand)?;
        // The words of the command may have secrets, so the trace has none of them.
        let call = Call { nature: Nature::Once, ..call("run command in instance", id) };
        self.calls.run(call, || run_command.run(id, command)).await
    }
}
