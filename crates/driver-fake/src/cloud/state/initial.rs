//! What a new cloud has (pure but for the random id of its account).

use ccm_drivers::contract::{Region, Resource, Zone};

use super::{Account, State, random};

/// The regions by id and name, each with the second number of its addresses.
const REGIONS: [(&str, &str, u8); 2] = [("north", "North", 1), ("south", "South", 2)];

impl State {
    /// A new account with two regions of two zones each, and with no instance.
    pub(in crate::cloud) fn new() -> Self {
        let account = Account {
            id: format!("acct-{:016x}", random()),
            name: "fake".to_owned(),
            token: "fake-token".to_owned(),
            read_only: false,
        };
        let mut state = Self {
            account,
            regions: Vec::new(),
            zones: Vec::new(),
            networks: Vec::new(),
            hosts: Vec::new(),
            storages: Vec::new(),
            images: Vec::new(),
            instance_types: Vec::new(),
            instances: Vec::new(),
        };
        for (id, name, number) in REGIONS {
            state.add_region(id, name, number);
        }
        state
    }

    fn add_region(&mut self, region: &str, title: &str, number: u8) {
        let resource = |name: &str, details: &[(&str, &str)]| Resource {
            id: format!("{region}/{name}"),
            name: name.to_owned(),
            region: region.to_owned(),
            details: details.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        self.regions.push(Region { id: region.to_owned(), name: title.to_owned() });
        for number in 1..=2 {
            let id = format!("{region}-{number}");
            self.hosts.push(resource(&format!("host-{id}"), &[("zone", &id)]));
            self.storages.push(resource(&format!("storage-{id}"), &[("zone", &id)]));
            self.zones.push(Zone { id, name: format!("{title} {number}"), region: region.to_owned() });
        }
        self.networks.extend([
            resource("default", &[("subnet", &format!("10.{number}.0.0/16"))]),
            resource("private", &[("subnet", &format!("172.{}.0.0/16", number + 15))]),
        ]);
        self.images
            .extend([resource("debian", &[("system", "Debian 13")]), resource("fedora", &[("system", "Fedora 43")])]);
        self.instance_types.extend([
            resource("small", &[("cpus", "2"), ("memoryBytes", "2147483648")]),
            resource("large", &[("cpus", "8"), ("memoryBytes", "17179869184")]),
        ]);
    }
}
