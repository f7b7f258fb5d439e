//! A driver that answers as its test has written, and records what it was asked and when.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::time::Instant;

use super::*;

/// What a driver does instead of an answer.
pub(super) enum Step {
    /// It answers.
    Answer,
    Fail(Error),
    Hang,
}

/// What a test has written, and what has happened.
pub(super) struct Script {
    pub(super) steps: Mutex<VecDeque<Step>>,
    /// Operations with their objects, and seconds since the beginning.
    pub(super) calls: Mutex<Vec<(String, f64)>>,
    pub(super) account: Mutex<String>,
    /// Replaces the id, the name and the owner of instances in answers.
    pub(super) other: Mutex<Option<Instance>>,
    /// The instances that are listed.
    pub(super) listed: Mutex<Vec<Instance>>,
    /// Replaces the ids in lists of other things.
    pub(super) ids: Mutex<Option<Vec<String>>>,
    /// Why the driver cannot be opened.
    pub(super) unopened: Mutex<Option<Error>>,
    /// The setting accountID that the driver was opened with.
    pub(super) opened_for: Mutex<Option<String>>,
    pub(super) read_only: Option<Capability>,
    begin: Instant,
}

impl Script {
    pub(super) fn new(steps: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Self::with_read_only(steps, None)
    }

    pub(super) fn with_read_only(steps: impl IntoIterator<Item = Step>, read_only: Option<Capability>) -> Arc<Self> {
        Arc::new(Self {
            steps: Mutex::new(steps.into_iter().collect()),
            calls: Mutex::default(),
            account: Mutex::new("A".to_owned()),
            other: Mutex::default(),
            listed: Mutex::new(vec![instance("i-1", "n", "elsewhere")]),
            ids: Mutex::default(),
            unopened: Mutex::default(),
            opened_for: Mutex::default(),
            read_only,
            begin: Instant::now(),
        })
    }

    fn ids(&self, usual: &str) -> Vec<String> {
        self.ids.lock().unwrap().clone().unwrap_or_else(|| vec![usual.to_owned()])
    }

    /// The names of all calls after the verification of the credentials.
    pub(super) fn names(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().skip(1).map(|(name, _)| name.clone()).collect()
    }

    /// The times of all calls after the verification of the credentials.
    pub(super) fn times(&self) -> Vec<f64> {
        self.calls.lock().unwrap().iter().skip(1).map(|(_, time)| *time).collect()
    }

    async fn step(&self, name: &str, object: &str) -> Result<()> {
        let time = self.begin.elapsed().as_secs_f64();
        self.calls.lock().unwrap().push((format!("{name} {object}").trim_end().to_owned(), time));
        let step = self.steps.lock().unwrap().pop_front();
        match step {
            None | Some(Step::Answer) => Ok(()),
            Some(Step::Fail(error)) => Err(error),
            Some(Step::Hang) => std::future::pending().await,
        }
    }
}

pub(super) struct Scripted(pub(super) Arc<Script>);

#[async_trait]
impl DriverType for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn summary(&self) -> &'static str {
        ""
    }

    fn settings(&self) -> &[Setting] {
        &[]
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        *self.0.opened_for.lock().unwrap() = values.text(ACCOUNT_ID).map(str::to_owned);
        let refused = self.0.unopened.lock().unwrap().take();
        refused.map_or_else(|| Ok(Box::new(Self(self.0.clone())) as Box<dyn Driver>), Err)
    }
}

#[async_trait]
impl Driver for Scripted {
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
        Some(self)
    }

    fn run_command(&self) -> Option<&dyn RunCommand> {
        Some(self)
    }

    fn mode(&self, capability: Capability) -> Mode {
        Mode { read_only: self.0.read_only == Some(capability), emulated: capability == Capability::Topology }
    }

    async fn close(&self) -> Result<()> {
        self.0.step("close", "").await
    }
}

#[async_trait]
impl Account for Scripted {
    async fn verify(&self) -> Result<AccountInfo> {
        self.0.step("verify", "").await?;
        let id = self.0.account.lock().unwrap().clone();
        Ok(AccountInfo { id, name: String::new(), sub_accounts: Vec::new() })
    }

    async fn verify_settings(&self) -> Result<()> {
        self.0.step("verify_settings", "").await
    }
}

#[async_trait]
impl Topology for Scripted {
    fn id_prefix(&self) -> String {
        "scripted/".to_owned()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        self.0.step("regions", "").await?;
        let region = |id| Region { id, name: String::new() };
        Ok(self.0.ids("r").into_iter().map(region).collect())
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        self.0.step("zones", region.unwrap_or_default()).await?;
        let zone = |id| Zone { id, name: String::new(), region: "r".to_owned() };
        Ok(self.0.ids("z").into_iter().map(zone).collect())
    }

    async fn region(&self, id: &str) -> Result<Region> {
        self.0.step("region", id).await?;
        Ok(Region { id: "r".to_owned(), name: String::new() })
    }

    async fn zone(&self, id: &str) -> Result<Zone> {
        self.0.step("zone", id).await?;
        Ok(Zone { id: "z".to_owned(), name: String::new(), region: "r".to_owned() })
    }
}

/// An instance with an id, a name and an owner.
pub(super) fn instance(id: &str, name: &str, owner: &str) -> Instance {
    Instance {
        id: id.to_owned(),
        provider_id: format!("scripted://{id}"),
        name: name.to_owned(),
        region: "r".to_owned(),
        zone: "z".to_owned(),
        state: State::Running,
        image: String::new(),
        instance_type: String::new(),
        addresses: Vec::new(),
        labels: BTreeMap::new(),
        marks: Marks { owner: Some(owner.to_owned()), cluster: None },
        created: String::new(),
    }
}

#[async_trait]
impl Instances for Scripted {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        self.0.step("list", filter.name.as_deref().unwrap_or_default()).await?;
        Ok(self.0.listed.lock().unwrap().clone())
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        self.0.step("get", id).await?;
        Ok(self.0.other.lock().unwrap().clone().unwrap_or_else(|| instance(id, "n", "o")))
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        self.0.step("create", &spec.name).await?;
        Ok(self.0.other.lock().unwrap().clone().unwrap_or_else(|| instance("i-1", &spec.name, &spec.key)))
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.0.step("delete", id).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        self.0.step("start", id).await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.0.step("stop", id).await
    }
}

fn resource(id: &str) -> Resource {
    Resource { id: id.to_owned(), name: String::new(), region: String::new(), details: BTreeMap::new() }
}

#[async_trait]
impl Inventory for Scripted {
    fn kinds(&self) -> &[ResourceKind] {
        &[ResourceKind::Image]
    }

    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        self.0.step("list_inventory", &format!("{} {}", kind.word(), region.unwrap_or_default())).await?;
        Ok(self.0.ids("a").iter().map(|id| resource(id)).collect())
    }

    async fn get(&self, kind: ResourceKind, id: &str) -> Result<Resource> {
        self.0.step("get_inventory", &format!("{} {id}", kind.word())).await?;
        Ok(resource("a"))
    }
}

#[async_trait]
impl RunCommand for Scripted {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        self.0.step("run", &format!("{id} {}", command.join(" "))).await?;
        Ok(CommandOutput { exit_code: 3, stdout: "hunter2".to_owned(), stderr: String::new() })
    }
}
