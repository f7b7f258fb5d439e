//! Containers as Engines describe them, and as instances (pure).

use std::collections::BTreeMap;

use ccm_drivers::contract::{Address, AddressKind, Error, ErrorKind, Instance, Marks, Result, State, rfc3339};
use serde::Deserialize;

use crate::{brief, client::is_id, hosts::Host};

/// A container, whichever answer it is of.
#[derive(Debug, Default)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    image: String,
    /// The Engine's word for its state.
    status: String,
    /// In RFC 3339, in seconds.
    created: String,
    labels: BTreeMap<String, String>,
    /// Its networks by their names, the one that it was created in first.
    networks: Vec<(String, Network)>,
}

impl Container {
    /// Who it belongs to.
    pub(crate) fn marks(&self) -> Marks {
        let mark = |name| self.labels.get(name).filter(|value| !value.is_empty()).cloned();
        Marks { owner: mark(Marks::OWNER), cluster: mark(Marks::CLUSTER) }
    }

    /// The digest of what it was made of.
    pub(super) fn digest(&self) -> Option<&str> {
        self.labels.get(Marks::SPEC).map(String::as_str)
    }

    /// Whether it has these labels.
    pub(super) fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|found| found == value))
    }

    /// Whether it has never been started.
    pub(super) fn is_unfinished(&self) -> bool {
        self.status == "created"
    }

    /// Whether it is in a network.
    pub(super) fn is_in(&self, network: &str) -> bool {
        self.networks.iter().any(|(name, _)| name == network)
    }

    pub(crate) fn state(&self) -> State {
        match self.status.as_str() {
            "created" | "restarting" => State::Pending,
            "running" => State::Running,
            "stopping" => State::Stopping,
            "exited" => State::Stopped,
            // What is dead can only be removed.
            "removing" | "dead" => State::Deleting,
            _ => State::Unknown,
        }
    }

    fn addresses(&self) -> Vec<Address> {
        let is_up = ["running", "paused"].contains(&self.status.as_str());
        let name = (AddressKind::Hostname, &self.name);
        let internal = |network: &'_ Network| [network.v4.clone(), network.v6.clone()];
        let internal = self.networks.iter().flat_map(|(_, network)| internal(network)).flatten();
        let internal = internal.map(|address| (AddressKind::InternalIP, address));
        let all = std::iter::once((name.0, name.1.clone())).chain(internal);
        all.filter(|(_, address)| is_up && !address.is_empty())
            .map(|(kind, address)| Address { kind, address })
            .collect()
    }

    /// The instance that it is.
    pub(crate) fn instance(self, host: &Host) -> Instance {
        let (state, marks, addresses) = (self.state(), self.marks(), self.addresses());
        let Self { id, name, image, created, mut labels, .. } = self;
        labels.retain(|name, _| !name.starts_with(Marks::PREFIX));
        Instance {
            id,
            provider_id: format!("docker:////{name}"),
            name,
            region: host.region.clone(),
            zone: host.zone(),
            state,
            image,
            instance_type: String::new(),
            addresses,
            labels,
            marks,
            created,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
struct Network {
    #[serde(rename = "IPAddress", default)]
    v4: Option<String>,
    #[serde(rename = "GlobalIPv6Address", default)]
    v6: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NetworkSettings {
    networks: Option<BTreeMap<String, Option<Network>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    network_mode: String,
}

fn networks(settings: Option<NetworkSettings>, host: Option<HostConfig>) -> Vec<(String, Network)> {
    let first = host.unwrap_or_default().network_mode;
    let networks = settings.and_then(|settings| settings.networks).unwrap_or_default();
    let mut networks: Vec<_> = networks.into_iter().map(|(name, one)| (name, one.unwrap_or_default())).collect();
    networks.sort_by_key(|(name, _)| *name != first);
    networks
}

/// One of `GET /containers/json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listed {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    image: String,
    created: i64,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    state: String,
    #[serde(default)]
    host_config: Option<HostConfig>,
    #[serde(default)]
    network_settings: Option<NetworkSettings>,
}

impl TryFrom<Listed> for Container {
    type Error = Error;

    fn try_from(listed: Listed) -> Result<Self> {
        if !is_id(&listed.id) {
            return Err(Error::new(ErrorKind::Internal, format!("{:?} is no id of a container", brief(&listed.id))));
        }
        // Links give a container further names, with a slash inside.
        let names = listed.names.unwrap_or_default();
        let name = names.iter().filter_map(|name| name.strip_prefix('/')).find(|name| !name.contains('/'));
        Ok(Self {
            name: name.unwrap_or_default().to_owned(),
            id: listed.id,
            image: listed.image,
            status: listed.state,
            created: rfc3339(listed.created),
            labels: listed.labels.unwrap_or_default(),
            networks: networks(listed.network_settings, listed.host_config),
        })
    }
}

/// The answer to `GET /containers/ID/json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Inspected {
    id: String,
    name: String,
    created: String,
    config: Config,
    state: Status,
    #[serde(default)]
    host_config: Option<HostConfig>,
    #[serde(default)]
    network_settings: Option<NetworkSettings>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    image: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Status {
    status: String,
}

impl From<Inspected> for Container {
    fn from(inspected: Inspected) -> Self {
        let created = inspected.created;
        // In seconds, as the list has it.
        let seconds = created.split_once('.').map(|(seconds, _)| format!("{seconds}Z"));
        Self {
            name: inspected.name.trim_start_matches('/').to_owned(),
            id: inspected.id,
            image: inspected.config.image,
            status: inspected.state.status,
            created: seconds.unwrap_or(created),
            labels: inspected.config.labels.unwrap_or_default(),
            networks: networks(inspected.network_settings, inspected.host_config),
        }
    }
}

#[cfg(test)]
mod tests;
