//! A driver that answers what a test says.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use ccm_drivers::contract::{
    Account, AccountInfo, Driver, Error, Filter, Instance, InstanceSpec, Instances, Region, Result, Topology, Zone,
};
use serde_json::json;

/// The cloud, and what its driver answers in place of it.
#[derive(Default)]
pub(super) struct Script {
    pub(super) instances: Vec<Instance>,
    /// The list of all instances, if it differs.
    pub(super) listed: Option<Vec<Instance>>,
    pub(super) get: Option<Error>,
    pub(super) list: Option<Error>,
    pub(super) verify: Option<Error>,
    /// Happens while the account is verified, which takes a second then.
    pub(super) meanwhile: Option<Box<dyn FnOnce() + Send>>,
    pub(super) calls: Vec<String>,
}

/// The driver.
#[derive(Clone, Default)]
pub(super) struct Scripted(pub(super) Arc<Mutex<Script>>);

impl Scripted {
    pub(super) fn with(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock().unwrap());
    }

    /// Returns the requests since the last time.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

/// An instance that runs.
pub(super) fn instance(name: &str) -> Instance {
    serde_json::from_value(json!({
        "id": format!("i-{name}"), "providerID": format!("fake:///{name}"), "name": name, "region": "north",
        "zone": "north-1", "state": "running", "image": "debian", "instanceType": "small", "labels": {}, "created": "",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }))
    .unwrap()
}

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
}

#[async_trait]
impl Account for Scripted {
    async fn verify(&self) -> Result<AccountInfo> {
        let meanwhile = self.0.lock().unwrap().meanwhile.take();
        if let Some(change) = meanwhile {
            change();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut script = self.0.lock().unwrap();
        script.calls.push("verify".to_owned());
        let account = AccountInfo { id: "acct".to_owned(), name: String::new(), sub_accounts: Vec::new() };
        script.verify.clone().map_or(Ok(account), Err)
    }
}

#[async_trait]
impl Topology for Scripted {
    fn id_prefix(&self) -> String {
        "fake/".to_owned()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        Ok(Vec::new())
    }

    async fn zones(&self, _: Option<&str>) -> Result<Vec<Zone>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Instances for Scripted {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let mut script = self.0.lock().unwrap();
        script.calls.push(filter.name.as_ref().map_or("list".to_owned(), |name| format!("list {name}")));
        if let Some(error) = &script.list {
            return Err(error.clone());
        }
        let all = match &script.listed {
            Some(listed) if *filter == Filter::default() => listed,
            _ => &script.instances,
        };
        Ok(all.iter().filter(|one| filter.fits(one)).cloned().collect())
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        panic!("nothing asks for an instance by its id: {id}")
    }

    async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let mut script = self.0.lock().unwrap();
        script.calls.push(format!("get {provider_id}"));
        if let Some(error) = &script.get {
            return Err(error.clone());
        }
        let found = script.instances.iter().find(|one| one.provider_id == provider_id);
        found.cloned().ok_or_else(|| Error::not_found("no such instance"))
    }

    async fn create(&self, _: &InstanceSpec) -> Result<Instance> {
        panic!("nothing creates an instance")
    }

    async fn delete(&self, id: &str) -> Result<()> {
        panic!("nothing deletes an instance: {id}")
    }

    async fn start(&self, id: &str) -> Result<()> {
        panic!("nothing starts an instance: {id}")
    }

    async fn stop(&self, id: &str) -> Result<()> {
        panic!("nothing stops an instance: {id}")
    }
}
