//! How an instance is made (pure but for the clock and random ids).

use std::{collections::HashSet, net::Ipv4Addr};

use ccm_drivers::contract::{ResourceKind, Zone, rfc3339};

use super::{Code, Failure, Machine, State, bytes_of, now, random};
use crate::protocol::{self, Instance, MAX_USER_DATA, NewInstance};

/// The maximum number of processors of an instance.
const MAX_CPUS: u64 = 256;

impl State {
    /// Makes an instance that was never started.
    pub(super) fn create(&mut self, wanted: NewInstance) -> Result<&Instance, Failure> {
        let NewInstance { key, name, region, zone, image, instance_type, networks, cpus, user_data, labels } = wanted;
        self.check_free(key.as_deref(), &name)?;
        let invalid = |field, message: String| Failure::of_field(Code::Invalid, field, message);
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if name.is_empty() || name.len() > 253 || !name.bytes().all(is_name) {
            let rule = "has to be 1 to 253 lowercase letters, digits, hyphens and dots";
            return Err(invalid("name", format!("the name {name:?} {rule}")));
        }
        let Zone { id: zone, region, .. } = self.place(&region, &zone)?.clone();
        let unknown = |kind: ResourceKind, field, name: &str| {
            invalid(field, format!("there is no {} {name:?} in region {region:?}", kind.word()))
        };
        let exists =
            |kind, field, name: &str| self.resource(kind, &region, name).ok_or_else(|| unknown(kind, field, name));
        exists(ResourceKind::Image, "image", &image)?;
        let its_type = exists(ResourceKind::InstanceType, "instanceType", &instance_type)?;
        let own = || its_type.details.get("cpus").and_then(|cpus| cpus.parse().ok());
        let cpus = cpus.or_else(own).unwrap_or(1);
        if !(1..=MAX_CPUS).contains(&cpus) {
            return Err(invalid("cpus", format!("{cpus} processors: 1 to {MAX_CPUS} are possible")));
        }
        if bytes_of(&user_data).is_none_or(|bytes| bytes.len() > MAX_USER_DATA) {
            let most = MAX_USER_DATA >> 10;
            return Err(invalid("userData", format!("the user data is not hexadecimal, or longer than {most} KiB")));
        }
        let mut addresses = Vec::new();
        for network in &networks {
            let subnet = exists(ResourceKind::Network, "networks", network)?.details.get("subnet");
            let address = subnet.and_then(|subnet| self.free_address(subnet, &addresses));
            let full = || invalid("networks", format!("network {network:?} has no free address"));
            addresses.push(address.ok_or_else(full)?);
        }
        let id = self.new_id();
        let (created, state) = (rfc3339(i64::try_from(now().as_secs()).unwrap_or(i64::MAX)), protocol::State::Created);
        let shown = Instance {
            id,
            key,
            name,
            region,
            zone,
            state,
            image,
            instance_type,
            cpus,
            networks,
            addresses,
            labels,
            created,
        };
        self.instances.push(Machine { shown, user_data, started: None });
        self.instances.last().map(|machine| &machine.shown).ok_or_else(|| Failure::new(Code::Internal, "no instance"))
    }

    /// A conflict comes before everything else that may be wrong, so that a client can find what it has made.
    fn check_free(&self, key: Option<&str>, name: &str) -> Result<(), Failure> {
        let conflict = |field, message| Err(Failure::of_field(Code::Conflict, field, message));
        let all = || self.instances.iter().map(|machine| &machine.shown);
        if let Some(found) = all().find(|instance| key.is_some() && instance.key.as_deref() == key) {
            return conflict("key", format!("instance {:?} has the key {:?}", found.id, key.unwrap_or_default()));
        }
        if let Some(found) = all().find(|instance| instance.name == name) {
            return conflict("name", format!("instance {:?} has the name {name:?}", found.id));
        }
        Ok(())
    }

    /// The zone of a new instance.
    fn place(&self, region: &str, zone: &str) -> Result<&Zone, Failure> {
        let invalid = |field, message| Failure::of_field(Code::Invalid, field, message);
        if zone.is_empty() {
            let first = || self.regions.first().map(|region| region.id.as_str());
            let region = Some(region).filter(|region| !region.is_empty()).or_else(first).unwrap_or_default();
            let found = self.zones.iter().find(|zone| zone.region == region);
            return found.ok_or_else(|| invalid("region", format!("there is no region {region:?} with a zone")));
        }
        let found = self.zones.iter().find(|one| one.id == zone);
        let found = found.ok_or_else(|| invalid("zone", format!("there is no zone {zone:?}")))?;
        if region.is_empty() || found.region == region {
            return Ok(found);
        }
        Err(invalid("zone", format!("zone {zone:?} is in region {:?}, not in {region:?}", found.region)))
    }

    /// The first free address of a subnet such as `10.1.0.0/16`, besides those that are taken now.
    fn free_address(&self, subnet: &str, taken: &[String]) -> Option<String> {
        let (first, length) = subnet.split_once('/')?;
        let (first, length) = (u32::from(first.parse::<Ipv4Addr>().ok()?), length.parse::<u32>().ok()?);
        let size = 1_u32.checked_shl(32_u32.checked_sub(length)?)?;
        let others = self.instances.iter().flat_map(|machine| &machine.shown.addresses);
        let taken: HashSet<&String> = others.chain(taken).collect();
        // The first address names the network, the second is the router's, and the last one reaches all.
        let mut all = (2..size.saturating_sub(1)).filter_map(|number| first.checked_add(number));
        all.find_map(|address| Some(Ipv4Addr::from(address).to_string()).filter(|address| !taken.contains(address)))
    }

    fn new_id(&self) -> String {
        loop {
            let id = format!("i-{:016x}", random());
            if !self.instances.iter().any(|machine| machine.shown.id == id) {
                return id;
            }
        }
    }
}
