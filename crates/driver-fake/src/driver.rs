//! The driver of the fake cloud (IO).

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use ccm_drivers::{
    contract::{
        Account, AccountInfo, Driver, DriverType, Endpoint, Error, ErrorKind, Instances, Inventory, Metrics,
        ResourceKind, Result, RunCommand, Topology,
    },
    settings::{ACCOUNT_ID, Kind, Setting, Values},
};

use crate::cloud::{Cloud, Server};

mod client;
mod instances;
mod read;

use client::Client;

const ENDPOINT: &str = "endpoint";
const FILE: &str = "file";
const TOKEN: &str = "token";
const IMAGE: &str = "image";
const NETWORK: &str = "network";
const INSTANCE_TYPE: &str = "instanceType";
const CPUS: &str = "cpus";

static SETTINGS: [Setting; 6] = [
    Setting::new(
        ENDPOINT,
        Kind::Text,
        "The host and the port of a fake cloud, such as 127.0.0.1:8080. Without it the driver has a cloud in its own process.",
    ),
    Setting::new(
        FILE,
        Kind::Path,
        "The file of the cloud in the driver's own process. Without it the cloud ends with the process. An endpoint wins over it.",
    ),
    Setting::with_default(TOKEN, Kind::Text, "fake-token", "The token of the account.").secret(),
    Setting::with_default(IMAGE, Kind::Text, "debian", "The image of instances that are created without one."),
    Setting::with_default(NETWORK, Kind::Text, "default", "The network of instances that are created without one."),
    Setting::with_default(
        INSTANCE_TYPE,
        Kind::Text,
        "small",
        "The instance type of instances that are created without one.",
    ),
];

static OPTIONS: [Setting; 1] =
    [Setting::new(CPUS, Kind::Integer, "The number of processors, in place of the instance type's.")];

/// The driver `fake`. Each value has a cloud of its own in memory, and all share the clouds in files.
#[derive(Default)]
pub struct Fake {
    memory: Arc<Cloud>,
    /// The servers in this process, by the files of their clouds.
    servers: Mutex<BTreeMap<Option<PathBuf>, Arc<Server>>>,
}

impl Fake {
    /// A driver with a new cloud in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The server of the cloud in this process, which is started if it does not run.
    fn server(&self, file: Option<&str>) -> Result<Arc<Server>> {
        let file = file.map(PathBuf::from);
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(&file).filter(|server| server.is_running()) {
            return Ok(server.clone());
        }
        let cloud = file.clone().map_or_else(|| self.memory.clone(), |file| Arc::new(Cloud::in_file(file)));
        let failed = |error| Error::new(ErrorKind::Internal, format!("cannot start the fake cloud: {error}"));
        let server = Arc::new(Server::start(cloud).map_err(failed)?);
        servers.insert(file, server.clone());
        Ok(server)
    }

    /// The host and the port of the cloud, and the server if it is in this process.
    fn address(&self, values: &Values) -> Result<(String, u16, Option<Arc<Server>>)> {
        let Some(text) = values.text(ENDPOINT).filter(|text| !text.is_empty()) else {
            let server = self.server(values.text(FILE))?;
            return Ok((server.address().ip().to_string(), server.address().port(), Some(server)));
        };
        if text.contains('@') {
            let problem =
                format!("{ENDPOINT}: a host and a port such as host:80 have no user and no password; set the token");
            return Err(Error::invalid(ENDPOINT, problem));
        }
        let bad = || Error::invalid(ENDPOINT, format!("{ENDPOINT}: {text:?} is not a host and a port such as host:80"));
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(bad());
        }
        Ok((host.to_owned(), port.parse().map_err(|_| bad())?, None))
    }
}

#[async_trait]
impl DriverType for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn summary(&self) -> &'static str {
        "A cloud in the process of the driver or in a file, for a first try and for tests."
    }

    fn settings(&self) -> &[Setting] {
        &SETTINGS
    }

    fn options(&self) -> &[Setting] {
        &OPTIONS
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        let (host, port, server) = self.address(values)?;
        let text = |name| values.text(name).unwrap_or_default().to_owned();
        let account = Some(text(ACCOUNT_ID)).filter(|id| !id.is_empty());
        let defaults = Defaults { image: text(IMAGE), network: text(NETWORK), instance_type: text(INSTANCE_TYPE) };
        Ok(Box::new(Opened { client: Client::new(host, port, text(TOKEN), account), defaults, _server: server }))
    }

    async fn endpoint(&self, values: &Values) -> Result<Option<Endpoint>> {
        let (host, port, _) = self.address(values)?;
        Ok(Some(Endpoint::Tcp(host, port)))
    }

    async fn through(&self, values: &Values, endpoint: &Endpoint) -> Result<Values> {
        Ok(match endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => {
                values.clone().with(ENDPOINT, &format!("[{host}]:{port}"))
            }
            Endpoint::Tcp(host, port) => values.clone().with(ENDPOINT, &format!("{host}:{port}")),
            Endpoint::Unix(_) => values.clone(),
        })
    }
}

/// What instances are made of if `create` is not given it.
struct Defaults {
    image: String,
    network: String,
    instance_type: String,
}

/// The driver with an account.
struct Opened {
    client: Client,
    defaults: Defaults,
    /// Kept, because the server ends with it.
    _server: Option<Arc<Server>>,
}

#[async_trait]
impl Driver for Opened {
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

    async fn close(&self) -> Result<()> {
        self.client.close().await;
        Ok(())
    }
}

#[async_trait]
impl Account for Opened {
    async fn verify(&self) -> Result<AccountInfo> {
        let account = self.client.login().await?;
        Ok(AccountInfo { id: account.id, name: account.name, sub_accounts: Vec::new() })
    }

    async fn verify_settings(&self) -> Result<()> {
        let Defaults { image, network, instance_type } = &self.defaults;
        for (setting, kind, name) in [
            (IMAGE, ResourceKind::Image, image),
            (NETWORK, ResourceKind::Network, network),
            (INSTANCE_TYPE, ResourceKind::InstanceType, instance_type),
        ] {
            if !Inventory::list(self, kind, None).await?.iter().any(|resource| resource.name == *name) {
                let message = format!("{setting}: there is no {} {name:?} in any region", kind.word());
                return Err(Error::invalid(setting, message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
