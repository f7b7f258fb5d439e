//! The Engines of one account: who they are, and their regions.

use async_trait::async_trait;
use ccm_drivers::contract::{
    Account, AccountInfo, Capability, Driver, Error, Instances, Inventory, Metrics, Mode, Region, Result, RunCommand,
    Topology, Zone,
};
use hyper::Method;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{
    brief,
    client::{Body, Engine, Identities, No, segment},
};

/// The Engines of the settings, and the defaults of `create`.
pub(crate) struct Engines {
    pub(crate) all: Vec<Engine>,
    pub(crate) image: Option<String>,
    pub(crate) network: Option<String>,
    /// Held while it is looked for an instance of a key and a container is created.
    pub(crate) creating: Mutex<()>,
}

impl Engines {
    pub(crate) fn new(all: Vec<Engine>, image: Option<&str>, network: Option<&str>) -> Self {
        let (image, network) = (image.map(str::to_owned), network.map(str::to_owned));
        Self { all, image, network, creating: Mutex::default() }
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
        format!("region {region}: the Engine has no image {image:?}; load it with `docker pull {image}`"),
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
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for engine in &self.all {
            let info = engine.info().await?;
            ids.push(info.id);
            names.push(info.name);
        }
        Ok(AccountInfo { id: Identities::account(ids), name: names.join(", "), sub_accounts: Vec::new() })
    }

    async fn verify_settings(&self) -> Result<()> {
        for engine in &self.all {
            if let Some(image) = &self.image {
                let answer = engine.send(Method::GET, &format!("/images/{}/json", segment(image)), Body::None).await?;
                if answer.no() == Some(No::Image) {
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
        let mut regions = Vec::new();
        for engine in &self.all {
            engine.info().await?;
            regions.push(Region { id: engine.host.region.clone(), name: engine.host.region.clone() });
        }
        Ok(regions)
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        let mut zones = Vec::new();
        for engine in &self.all {
            engine.info().await?;
            let (zone, of) = (engine.host.zone(), engine.host.region.clone());
            if region.is_none_or(|region| of == region) {
                zones.push(Zone { id: zone.clone(), name: zone, region: of });
            }
        }
        match region {
            Some(region) if zones.is_empty() => {
                Err(Error::not_found(format!("there is no region {:?}", brief(region))))
            }
            _ => Ok(zones),
        }
    }
}
