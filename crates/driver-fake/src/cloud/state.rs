//! What the cloud has, and what requests do with it (pure but for the clock and random ids).

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ccm_drivers::contract::{Region, Resource, ResourceKind, Zone};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Code, Failure, Request, guest, json};
use crate::protocol::{self, Instance, Query};

mod create;
mod initial;

/// The content of a cloud's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pub(super) account: Account,
    regions: Vec<Region>,
    zones: Vec<Zone>,
    networks: Vec<Resource>,
    hosts: Vec<Resource>,
    storages: Vec<Resource>,
    images: Vec<Resource>,
    instance_types: Vec<Resource>,
    instances: Vec<Machine>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    pub(super) id: String,
    name: String,
    pub(super) token: String,
    /// Whether its token may not change anything.
    #[serde(default)]
    read_only: bool,
}

impl Account {
    pub(super) fn shown(&self) -> protocol::Account {
        protocol::Account { id: self.id.clone(), name: self.name.clone() }
    }
}

/// An instance with what the cloud does not return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Machine {
    #[serde(flatten)]
    shown: Instance,
    #[serde(default)]
    user_data: String,
    /// When it was started, in seconds since 1970; `None` while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
}

impl State {
    /// Does what a request asks for. If it fails, nothing has changed.
    pub(super) fn handle(&mut self, request: Request) -> Result<Value, Failure> {
        let writes = match request {
            Request::CreateInstance(_)
            | Request::StartInstance { .. }
            | Request::StopInstance { .. }
            | Request::DeleteInstance { .. }
            | Request::LabelInstance { .. } => true,
            Request::Login { .. }
            | Request::ListRegions
            | Request::ListZones { .. }
            | Request::ListResources { .. }
            | Request::ListInstances(_)
            | Request::GetInstance { .. }
            | Request::GetUsage { .. }
            | Request::RunCommand { .. } => false,
        };
        if writes && self.account.read_only {
            return Err(Failure::new(Code::Forbidden, format!("account {:?} may only read", self.account.id)));
        }
        match request {
            Request::Login { .. } => json(self.account.shown()),
            Request::ListRegions => json(&self.regions),
            Request::ListZones { region } => {
                self.check_region(region.as_deref())?;
                json(self.zones.iter().filter(|zone| fits(region.as_ref(), &zone.region)).collect::<Vec<_>>())
            }
            Request::ListResources { kind, region } => {
                self.check_region(region.as_deref())?;
                let all = self.resources(kind).iter();
                json(all.filter(|resource| fits(region.as_ref(), &resource.region)).collect::<Vec<_>>())
            }
            Request::ListInstances(query) => {
                self.check_region(query.region.as_deref())?;
                self.check_zone(query.zone.as_deref())?;
                json(self.list(&query))
            }
            Request::GetInstance { id } => json(&self.machine(&id)?.shown),
            Request::CreateInstance(wanted) => json(self.create(wanted)?),
            Request::StartInstance { id } => {
                let machine = self.machine(&id)?;
                machine.started = machine.started.or_else(|| Some(now().as_secs()));
                machine.shown.state = protocol::State::Running;
                json(&machine.shown)
            }
            Request::StopInstance { id } => {
                let machine = self.machine(&id)?;
                machine.started = None;
                machine.shown.state = protocol::State::Stopped;
                json(&machine.shown)
            }
            Request::DeleteInstance { id } => {
                self.machine(&id)?;
                self.instances.retain(|machine| machine.shown.id != id);
                Ok(Value::Null)
            }
            Request::LabelInstance { id, labels } => {
                let machine = self.machine(&id)?;
                for (name, value) in labels {
                    match value {
                        Some(value) => machine.shown.labels.insert(name, value),
                        None => machine.shown.labels.remove(&name),
                    };
                }
                json(&machine.shown)
            }
            Request::GetUsage { id } => {
                let Machine { shown, started, .. } = self.machine(&id)?.clone();
                let uptime = started.map(|started| now().saturating_sub(Duration::from_secs(started)));
                let memory = self.resource(ResourceKind::InstanceType, &shown.region, &shown.instance_type);
                let memory = memory.and_then(|kind| kind.details.get("memoryBytes")?.parse().ok());
                json(guest::usage(uptime, shown.cpus, memory))
            }
            Request::RunCommand { id, command } => {
                let Machine { shown, user_data, .. } = self.machine(&id)?;
                if shown.state != protocol::State::Running {
                    let message = format!("instance {id:?} does not run: start it");
                    return Err(Failure::of_field(Code::Invalid, "id", message));
                }
                if command.is_empty() {
                    return Err(Failure::of_field(Code::Invalid, "command", "there is no command"));
                }
                json(guest::run(&shown.name, &bytes_of(user_data).unwrap_or_default(), &command))
            }
        }
    }

    fn check_region(&self, id: Option<&str>) -> Result<(), Failure> {
        match id {
            Some(id) if !self.regions.iter().any(|region| region.id == id) => {
                Err(Failure::of_field(Code::Invalid, "region", format!("there is no region {id:?}")))
            }
            _ => Ok(()),
        }
    }

    fn check_zone(&self, id: Option<&str>) -> Result<(), Failure> {
        match id {
            Some(id) if !self.zones.iter().any(|zone| zone.id == id) => {
                Err(Failure::of_field(Code::Invalid, "zone", format!("there is no zone {id:?}")))
            }
            _ => Ok(()),
        }
    }

    fn resources(&self, kind: ResourceKind) -> &[Resource] {
        match kind {
            ResourceKind::Network => &self.networks,
            ResourceKind::Host => &self.hosts,
            ResourceKind::Storage => &self.storages,
            ResourceKind::Image => &self.images,
            ResourceKind::InstanceType => &self.instance_types,
        }
    }

    fn resource(&self, kind: ResourceKind, region: &str, name: &str) -> Option<&Resource> {
        self.resources(kind).iter().find(|resource| resource.region == region && resource.name == name)
    }

    fn list(&self, query: &Query) -> Vec<&Instance> {
        let Query { region, zone, name, labels } = query;
        let all = self.instances.iter().map(|machine| &machine.shown);
        let fit = all.filter(|instance| {
            fits(region.as_ref(), &instance.region)
                && fits(zone.as_ref(), &instance.zone)
                && fits(name.as_ref(), &instance.name)
                && labels.iter().all(|(name, value)| instance.labels.get(name) == Some(value))
        });
        fit.collect()
    }

    fn machine(&mut self, id: &str) -> Result<&mut Machine, Failure> {
        let found = self.instances.iter_mut().find(|machine| machine.shown.id == id);
        found.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no instance {id:?}")))
    }
}

fn fits(wanted: Option<&String>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

fn bytes_of(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        hexadecimal.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect::<Option<_>>();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// 64 bits that do not repeat: each of these hashers has other keys, which the system's random numbers begin.
fn random() -> u64 {
    RandomState::new().hash_one(now())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
