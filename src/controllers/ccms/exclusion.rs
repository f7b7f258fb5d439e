//! Decides which of several `CloudControllerManager`s that exclude each other is refused (pure, but for what it asks of
//! the watches).

use std::collections::BTreeMap;

use super::{Ccms, Member, first::is_workload, report::live_of};
use crate::{
    controllers::observer::Observer,
    facts::ccm::Ccm,
    plan::kubernetes::conflict::{Running, Standing, as_it_runs, conflict},
    preflight::pods::running,
    provider::catalog::Catalog,
};

impl Ccms {
    /// Notes what the workloads run. Returns whether that has changed.
    pub(super) fn see_running(&mut self, observer: &Observer) -> bool {
        let of_one = |name: &String| {
            let workloads = live_of(observer, name).filter(|(location, _)| is_workload(location.kind.kind));
            Some((name.clone(), running(workloads.map(|(_, live)| live))?))
        };
        let seen = self.fleet.keys().filter_map(of_one).collect();
        let before = std::mem::replace(&mut self.running, seen);
        before != self.running
    }

    /// Refuses a `CloudControllerManager` that would have an object, a lease or a controller of one that goes first, or that runs.
    pub(super) fn exclude_conflicts(&mut self, catalog: &Catalog) {
        let running = &self.running;
        let as_it_runs = |(name, running): (&String, &Running)| {
            Some((name.clone(), as_it_runs(self.fleet.get(name)?.ccm()?, running)))
        };
        let live: Vec<(String, Ccm)> = running.iter().filter_map(as_it_runs).collect();
        let mut in_order: Vec<_> = self.fleet.iter_mut().collect();
        in_order.sort_by(|(name, one), (other_name, other)| {
            one.order(name, running.get(*name)).cmp(&other.order(other_name, running.get(*other_name)))
        });
        let (mut keys, mut first) = (BTreeMap::new(), Vec::new());
        for (name, member) in in_order {
            let wanted = member.ccm().filter(|_| !member.is_removed()).cloned();
            let is_change = member.order(name, running.get(name)).0 != Standing::Runs;
            let running = live.iter().filter(|(other, _)| is_change && other != name).map(|(_, other)| other);
            let of_ccm = wanted
                .as_ref()
                .filter(|_| member.is_good())
                .and_then(|ccm| first.iter().chain(running).find_map(|other| conflict(catalog, ccm, other)));
            let of_object = member.planned().iter().find_map(|object| {
                let other: &String = keys.get(&object.key())?;
                Some(format!("metadata.name: {} is an object of the CloudControllerManager {other}", object.key()))
            });
            if let Some(problem) = of_ccm.or(of_object) {
                member.exclude(problem);
                continue;
            }
            // Whether its inputs are good does not count: nothing is to go from one to the other and back.
            first.extend(wanted);
            keys.extend(member.planned().iter().map(|object| (object.key(), name.clone())));
        }
    }
}

impl Member {
    /// What tells which of two goes first.
    pub(super) fn order<'a>(&'a self, name: &'a str, running: Option<&Running>) -> (Standing, (&'a str, &'a str)) {
        let standing = match self.ccm() {
            Some(ccm) => Standing::of(ccm, self.gate.is_open, running),
            None => Standing::New,
        };
        (standing, self.age(name))
    }
}
