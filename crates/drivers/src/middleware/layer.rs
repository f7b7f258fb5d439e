//! Each capability of a driver, with every operation run by [`Calls`].

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::{
    NOT_FIRST_ACCOUNT,
    calls::{Call, Calls, Limit, without_secrets},
    outcome::Outcome,
};
use crate::{
    contract::{
        Account, AccountInfo, Capability, CommandOutput, Driver, Error, ErrorKind, Filter, Instance, InstanceSpec,
        Instances, Inventory, Marks, Metrics, Region, Resource, ResourceKind, Result, RunCommand, Topology, Usage,
        Zone,
    },
    error::brief,
    settings::{ACCOUNT_ID, READ_ONLY, Secrets},
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
    /// Whether the driver was opened with that one as the setting.
    pub(super) is_pinned: bool,
}

impl Expected {
    /// Says in a refusal of the driver where the id comes from. The driver knows the id that was seen first as the setting, and advises
    /// to change that: what to do instead only the caller knows.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        let is_about_id = error.kind == ErrorKind::InvalidCredentials && error.message.contains(ACCOUNT_ID);
        if !self.is_pinned || !is_about_id {
            return error;
        }
        let advice = error.message.rsplit_once(": ").filter(|(_, advice)| advice.contains(ACCOUNT_ID));
        error.message = advice.map_or(&*error.message, |(problem, _)| problem).replace(ACCOUNT_ID, "the first use");
        error.context(NOT_FIRST_ACCOUNT)
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
            format!("{NOT_FIRST_ACCOUNT}: the credentials belong to the account {id:?}, and it was {seen:?}")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidCredentials, problem))
    }
}

impl Layer {
    async fn run<T: Outcome, F: Future<Output = Result<T>>>(
        &self,
        call: Call<'_>,
        attempt: impl Fn() -> F,
    ) -> Result<T> {
        self.calls.run(call, attempt).await.map_err(|error| self.account.explain(error))
    }

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

    /// Refuses to change an instance that others have made, also where the driver forgets to look.
    async fn check_own(&self, operation: &str, id: &str) -> Result<()> {
        let instance = Instances::get(self, id).await?;
        if instance.marks.owner.is_some_and(|owner| !owner.is_empty()) {
            return Ok(());
        }
        let message = format!("{operation} {id:?}: it has no {}, so others have made it", Marks::OWNER);
        Err(self.calls.without_secrets(Error::new(ErrorKind::Forbidden, message)))
    }

    /// Ends the driver, within a limit of its own.
    pub(super) async fn close(&self) -> Result<()> {
        let call = Call { limit: Limit::Close, is_idempotent: false, ..call("close", "") };
        self.run(call, || self.inner.close()).await
    }

    /// Adds the id of what a failed `create` has made, if only the driver knew it, and its answer was lost.
    async fn with_made(&self, instances: &dyn Instances, spec: &InstanceSpec, error: Error) -> Error {
        let may_have_made = error.kind.is_transient() || error.kind == ErrorKind::Internal;
        if error.instance.is_some() || !may_have_made {
            return error;
        }
        let filter = Filter { owner: Some(spec.key.clone()), ..Filter::default() };
        let call = Call { request: Some(&filter), is_idempotent: false, ..call("find made instance", &spec.name) };
        let listed = self.run(call, || listed(instances, &filter)).await;
        // One of another name or cluster was there before.
        let is_made = |one: &Instance| one.marks == spec.marks() && one.name == spec.name;
        let mut made = listed.into_iter().flatten().filter(is_made);
        match (made.next(), made.next()) {
            (Some(made), None) => error.after(made.id),
            _ => error,
        }
    }

    fn inventory(&self, kind: ResourceKind) -> Result<&dyn Inventory> {
        self.inner.inventory().ok_or_else(|| lacks(Capability::Inventory(kind)))
    }
}

fn lacks(capability: Capability) -> Error {
    Error::not_supported(format!("the driver does not have the capability {}", capability.name()))
}

/// An operation that can be repeated, with the limit of most operations.
fn call<'a>(operation: &'static str, object: &'a str) -> Call<'a> {
    Call { operation, object, request: None, limit: Limit::Normal, is_idempotent: true }
}

/// Refuses an answer about another object than the one that was asked for.
fn same(what: &str, asked: &str, answered: &str) -> Result<()> {
    if asked == answered {
        return Ok(());
    }
    let message = format!("the driver was asked for the {what} {asked:?} and answered with {:?}", brief(answered));
    Err(Error::new(ErrorKind::Internal, message))
}

/// Refuses a list in which an id is empty or stands twice.
fn distinct<T>(what: &str, all: Vec<T>, id: impl Fn(&T) -> &str) -> Result<Vec<T>> {
    let mut ids = BTreeSet::new();
    let Some(wrong) = all.iter().map(id).find(|id| id.is_empty() || !ids.insert(*id)) else { return Ok(all) };
    let problem = match wrong {
        "" => "an empty id".to_owned(),
        twice => format!("the id {:?} twice", brief(twice)),
    };
    Err(Error::new(ErrorKind::Internal, format!("the driver answered with a list of {what} that has {problem}")))
}

async fn listed(instances: &dyn Instances, filter: &Filter) -> Result<Vec<Instance>> {
    distinct("instances", instances.list(filter).await?, |instance| &instance.id)
}

/// The maximum number of characters of a key.
const MAX_KEY: usize = 253;

/// Refuses what no driver can make.
fn valid(spec: &InstanceSpec) -> Result<()> {
    let invalid = |field: &str, problem: &str| {
        Err(Error::invalid(field, format!("create instance {:?}: the {field} {problem}", brief(&spec.name))))
    };
    if spec.key.trim().is_empty() {
        return invalid("key", "is empty: give the UID of the owner");
    }
    if spec.key.chars().count() > MAX_KEY || spec.key.contains(char::is_control) {
        return invalid(
            "key",
            &format!("has control characters, or more than {MAX_KEY} characters: give the UID of the owner"),
        );
    }
    if spec.name.is_empty() {
        return invalid("name", "is empty: give one");
    }
    match spec.labels.keys().find(|label| label.starts_with(Marks::PREFIX)) {
        None => Ok(()),
        Some(label) => {
            let problem = format!("labels that begin with {} belong to drivers: give another one", Marks::PREFIX);
            Err(Error::invalid(
                "labels",
                format!("create instance {:?}: label {:?}: {problem}", spec.name, brief(label)),
            ))
        }
    }
}

/// Refuses an answer about another instance than the one that was to be made, and the instance of another cluster.
fn is_of(spec: &InstanceSpec, instance: &Instance) -> Result<()> {
    let Marks { owner, cluster } = &instance.marks;
    same("name", &spec.name, &instance.name)
        .and_then(|()| same("owner", &spec.key, owner.as_deref().unwrap_or_default()))
        .map_err(|error| error.after(instance.id.clone()))?;
    if spec.cluster.is_empty() || cluster.as_ref() == Some(&spec.cluster) {
        return Ok(());
    }
    let has = cluster.as_ref().map_or_else(
        || format!("has no {}", Marks::CLUSTER),
        |cluster| format!("belongs to the cluster {:?}", brief(cluster)),
    );
    let problem = format!(
        "the instance {:?} of the key {:?} {has}, and was to belong to the cluster {:?}: give its own cluster, or another key",
        brief(&instance.id),
        spec.key,
        spec.cluster
    );
    Err(Error::new(ErrorKind::AlreadyExists, problem))
}

// Answers are checked within the attempt, so that the trace has the problem, and no secret is in the error.
#[async_trait]
impl Account for Layer {
    async fn verify(&self) -> Result<AccountInfo> {
        let verify = || async {
            let info = self.inner.account().verify().await?;
            self.account.check(&info)?;
            Ok(info)
        };
        self.run(call("verify credentials", ""), verify).await
    }

    async fn verify_settings(&self) -> Result<()> {
        self.run(call("verify settings", ""), || self.inner.account().verify_settings()).await
    }
}

#[async_trait]
impl Topology for Layer {
    fn id_prefix(&self) -> String {
        self.inner.topology().id_prefix()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        let list = || async { distinct("regions", self.inner.topology().regions().await?, |region| &region.id) };
        self.run(call("list regions", ""), list).await
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        let list = || async { distinct("zones", self.inner.topology().zones(region).await?, |zone| &zone.id) };
        self.run(call("list zones", region.unwrap_or_default()), list).await
    }

    async fn region(&self, id: &str) -> Result<Region> {
        let get = || async {
            let region = self.inner.topology().region(id).await?;
            same("region", id, &region.id).map(|()| region)
        };
        self.run(call("get region", id), get).await
    }

    async fn zone(&self, id: &str) -> Result<Zone> {
        let get = || async {
            let zone = self.inner.topology().zone(id).await?;
            same("zone", id, &zone.id).map(|()| zone)
        };
        self.run(call("get zone", id), get).await
    }
}

#[async_trait]
impl Instances for Layer {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let instances = self.instances()?;
        let call = Call { request: Some(filter), ..call("list instances", "") };
        self.run(call, || listed(instances, filter)).await
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        let instances = self.instances()?;
        let get = || async {
            let instance = instances.get(id).await?;
            same("instance", id, &instance.id).map(|()| instance)
        };
        self.run(call("get instance", id), get).await
    }

    async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let instances = self.instances()?;
        let get = || async {
            let instance = instances.get_by_provider_id(provider_id).await?;
            same("instance of the providerID", provider_id, &instance.provider_id).map(|()| instance)
        };
        self.run(call("get instance of providerID", provider_id), get).await
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        const OPERATION: &str = "create instance";
        let instances = self.instances()?;
        self.change(OPERATION, &spec.name, Capability::Instances)?;
        valid(spec)?;
        let secrets = Secrets::of(spec.options.secrets());
        let create = || async {
            let instance = instances.create(spec).await.map_err(|error| without_secrets(&secrets, error))?;
            let checked = is_of(spec, &instance);
            checked.map_err(|error| error.context(format!("{OPERATION} {:?}", spec.name))).map(|()| instance)
        };
        let call = Call { request: Some(spec), limit: Limit::Long, ..call(OPERATION, &spec.name) };
        match self.run(call, create).await {
            Err(error) => Err(self.with_made(instances, spec, error).await),
            made => made,
        }
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("delete instance", id, Capability::Instances)?;
        match self.check_own("delete instance", id).await {
            // The driver may have to remove what was made with it.
            Err(error) if error.is_not_found() => {}
            checked => checked?,
        }
        self.run(call("delete instance", id), || instances.delete(id)).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("start instance", id, Capability::Instances)?;
        self.check_own("start instance", id).await?;
        self.run(call("start instance", id), || instances.start(id)).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        let instances = self.instances()?;
        self.change("stop instance", id, Capability::Instances)?;
        self.check_own("stop instance", id).await?;
        self.run(call("stop instance", id), || instances.stop(id)).await
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
        let list = || async { distinct(kind.plural(), inventory.list(kind, region).await?, |resource| &resource.id) };
        self.run(call, list).await
    }

    async fn get(&self, kind: ResourceKind, id: &str) -> Result<Resource> {
        let inventory = self.inventory(kind)?;
        let call = Call { request: Some(&kind), ..call("get inventory", id) };
        let get = || async {
            let resource = inventory.get(kind, id).await?;
            same(kind.word(), id, &resource.id).map(|()| resource)
        };
        self.run(call, get).await
    }
}

#[async_trait]
impl Metrics for Layer {
    async fn usage(&self, id: &str) -> Result<Usage> {
        let metrics = self.inner.metrics().ok_or_else(|| lacks(Capability::Metrics))?;
        self.run(call("get usage of instance", id), || metrics.usage(id)).await
    }
}

#[async_trait]
impl RunCommand for Layer {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        let run_command = self.inner.run_command().ok_or_else(|| lacks(Capability::RunCommand))?;
        self.change("run command in instance", id, Capability::RunCommand)?;
        self.check_own("run command in instance", id).await?;
        // The words of the command may have secrets, so the trace has none of them.
        let call = Call { limit: Limit::Long, is_idempotent: false, ..call("run command in instance", id) };
        self.run(call, || run_command.run(id, command)).await
    }
}
