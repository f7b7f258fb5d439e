//! The Engines of one account: who they are, and their regions.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, Weak},
};

use async_trait::async_trait;
use ccm_drivers::contract::{
    Account, AccountInfo, Capability, Driver, Error, Instances, Inventory, Metrics, Mode, Region, Result, RunCommand,
    SubAccount, Topology, Zone,
};
use futures::future::try_join_all;
use hyper::Method;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{
    brief,
    client::{Body, Engine, Identities, Info, Reason, segment},
};

/// The Engines of the settings, and the defaults of `create`.
pub(crate) struct Engines {
    pub(crate) all: Vec<Engine>,
    pub(crate) image: Option<String>,
    pub(crate) network: Option<String>,
    /// The locks of the keys for which a `create` runs.
    creating: std::sync::Mutex<BTreeMap<String, Weak<Mutex<()>>>>,
}

impl Engines {
    pub(crate) fn new(all: Vec<Engine>, image: Option<&str>, network: Option<&str>) -> Self {
        let (image, network) = (image.map(str::to_owned), network.map(str::to_owned));
        Self { all, image, network, creating: std::sync::Mutex::default() }
    }

    /// The lock of a key: one `create` after the other.
    pub(crate) fn lock_of(&self, key: &str) -> Arc<Mutex<()>> {
        let mut all = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = all.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        all.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Who all Engines are.
    async fn infos(&self) -> Result<Vec<Info>> {
        try_join_all(self.all.iter().map(Engine::info)).await
    }

    /// The Engines of a region and of a zone, or all. One that does not exist is a wrong argument.
    pub(crate) fn of(&self, region: Option<&str>, zone: Option<&str>) -> Result<Vec<&Engine>> {
        if let Some(region) = region.filter(|region| self.all.iter().all(|engine| engine.host.region != **region)) {
            return Err(Error::invalid("region", format!("there is no region {:?}", brief(region))));
        }
        if let Some(zone) = zone.filter(|zone| self.all.iter().all(|engine| engine.host.zone() != **zone)) {
            return Err(Error::invalid("zone", format!("there is no zone {:?}", brief(zone))));
        }
        let fits = |engine: &&Engine| {
            region.is_none_or(|region| engine.host.region == region)
                && zone.is_none_or(|zone| engine.host.zone() == zone)
        };
        Ok(self.all.iter().filter(fits).collect())
    }
}

/// Checks that an Engine has a network, by its exact name.
pub(crate) async fn check_network(engine: &Engine, name: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct Network {
        #[serde(rename = "Name")]
        name: String,
    }
    let all: Vec<Network> = engine.get("/networks").await?;
    if all.iter().any(|network| network.name == name) {
        return Ok(());
    }
    let region = &engine.host.region;
    let (name, advice) = (brief(name), "create it with `docker network create`, or name another one");
    Err(Error::invalid("network", format!("region {region}: there is no network {name:?}; {advice}")))
}

/// What to do about an image that an Engine does not have.
pub(crate) fn no_image(engine: &Engine, image: &str) -> Error {
    let (region, image) = (&engine.host.region, brief(image));
    Error::invalid(
        "image",
        format!(
            "region {region}: the Engine has no image {image:?}; load it with `docker pull {image}` or `docker load`"
        ),
    )
}

#[async_trait]
impl Driver for Engines {
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

    fn metrics(&self) -> Option<&dyn Metrics> {
        Some(self)
    }

    fn run_command(&self) -> Option<&dyn RunCommand> {
        Some(self)
    }

    fn mode(&self, capability: Capability) -> Mode {
        // An Engine knows neither regions nor zones.
        Mode { emulated: capability == Capability::Topology, ..Mode::default() }
    }

    async fn close(&self) -> Result<()> {
        self.all.iter().for_each(Engine::close);
        Ok(())
    }
}

#[async_trait]
impl Account for Engines {
    async fn verify(&self) -> Result<AccountInfo> {
        let engines: Vec<_> =
            self.infos().await?.into_iter().map(|Info { id, name, .. }| SubAccount { id, name }).collect();
        let of =
            |part: fn(&SubAccount) -> &String| engines.iter().map(|engine| part(engine).clone()).collect::<Vec<_>>();
        let (id, name) = (Identities::account(of(|engine| &engine.id)), of(|engine| &engine.name).join(", "));
        Ok(AccountInfo { id, name, sub_accounts: if engines.len() > 1 { engines } else { Vec::new() } })
    }

    async fn verify_settings(&self) -> Result<()> {
        for engine in &self.all {
            if let Some(image) = &self.image {
                let answer = engine.send(Method::GET, &format!("/images/{}/json", segment(image)), Body::None).await?;
                if answer.reason() == Some(Reason::NoImage) {
                    return Err(no_image(engine, image));
                }
                answer.ok()?;
            }
            if let Some(network) = &self.network {
                check_network(engine, network).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Topology for Engines {
    fn id_prefix(&self) -> String {
        "docker/".to_owned()
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        self.infos().await?;
        let region = |engine: &Engine| Region { id: engine.host.region.clone(), name: engine.host.region.clone() };
        Ok(self.all.iter().map(region).collect())
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        let engines = self.of(region, None)?;
        try_join_all(engines.iter().map(|engine| engine.info())).await?;
        let zone = |engine: &&Engine| Zone {
            id: engine.host.zone(),
            name: engine.host.zone(),
            region: engine.host.region.clone(),
        };
        Ok(engines.iter().map(zone).collect())
    }
}
