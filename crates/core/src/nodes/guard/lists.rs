//! The list in the policy and the names in the role (pure).
//!
//! Both must allow a deletion. A node is listed first, and granted once the list has been live long enough for every API server to have
//! read it. Withdrawal uses the reverse order. So the list applies to every granted name.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Entry;
use crate::facts::ccm::Deletable;

/// The time for which a list must have been live: each API server refreshes its policies every second.
pub const REFRESH: Duration = Duration::from_secs(5);

/// The live policy and role.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The entries of the policy, each with the time for which it has been seen; `None` if the policy or its binding differs from
    /// the plan.
    pub listed: Option<BTreeMap<String, Duration>>,
    /// The names that the role grants.
    pub granted: BTreeSet<String>,
}

/// Returns the next lists, and the time until the following ones are due. Grants only nodes that are `recorded` in the status as
/// `NAME/UID`, so that deletions are counted even if the operator exits.
pub fn next(confirmed: &[Entry], recorded: &BTreeSet<&str>, live: &Live) -> (Deletable, Option<Duration>) {
    let none = BTreeMap::new();
    let seen = live.listed.as_ref().unwrap_or(&none);
    let mut lists = Deletable::default();
    let mut due = None::<Duration>;
    for entry in confirmed {
        let text = entry.to_string();
        let left = REFRESH.checked_sub(seen.get(&text).copied().unwrap_or_default()).filter(|left| !left.is_zero());
        if left.is_none() && recorded.contains(entry.node().as_str()) {
            lists.granted.insert(entry.name.clone());
        } else {
            // An entry that is not recorded yet will be recorded by the end of this pass.
            let left = left.unwrap_or(REFRESH);
            due = Some(due.map_or(left, |due| due.min(left)));
        }
        lists.listed.insert(text);
    }
    // Granted nodes stay listed.
    let name = |entry: &str| entry.split('/').next().unwrap_or_default().to_owned();
    lists.listed.extend(seen.keys().filter(|entry| live.granted.contains(&name(entry))).cloned());
    (lists, due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, since: &str) -> Entry {
        Entry { name: name.into(), uid: "u".into(), since: since.into() }
    }

    fn live(listed: Option<&[(&str, u64)]>, granted: &[&str]) -> Live {
        let seen = |(entry, seconds): &(&str, u64)| ((*entry).to_owned(), Duration::from_secs(*seconds));
        Live {
            listed: listed.map(|all| all.iter().map(seen).collect()),
            granted: granted.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn lists(listed: &[&str], granted: &[&str]) -> Deletable {
        let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Deletable { listed: set(listed), granted: set(granted) }
    }

    #[test]
    fn a_node_is_listed_first_and_granted_when_every_api_server_has_read_the_list() {
        let recorded = BTreeSet::from(["a/u"]);
        let next = |live: &Live| next(&[entry("a", "t")], &recorded, live);
        let second = Duration::from_secs(1);
        assert_eq!(next(&live(Some(&[]), &[])), (lists(&["a/u/t"], &[]), Some(second * 5)));
        assert_eq!(next(&live(Some(&[("a/u/t", 4)]), &[])), (lists(&["a/u/t"], &[]), Some(second)));
        assert_eq!(next(&live(Some(&[("a/u/t", 5)]), &[])), (lists(&["a/u/t"], &["a"]), None));
        // Nothing is granted without a policy in force, or without being counted.
        assert_eq!(next(&live(None, &["a"])).0, lists(&["a/u/t"], &[]));
        let unrecorded = super::next(&[entry("a", "t")], &BTreeSet::new(), &live(Some(&[("a/u/t", 9)]), &["a"]));
        assert_eq!(unrecorded, (lists(&["a/u/t"], &[]), Some(second * 5)));
    }

    #[test]
    fn a_node_stays_listed_until_its_name_is_not_granted_any_more() {
        let recorded = BTreeSet::from(["a/u"]);
        let next = |confirmed: &[Entry], live: &Live| next(confirmed, &recorded, live).0;
        assert_eq!(next(&[], &live(Some(&[("a/u/t", 9)]), &["a"])), lists(&["a/u/t"], &[]));
        assert_eq!(next(&[], &live(Some(&[("a/u/t", 9)]), &[])), lists(&[], &[]));
        // The node was ready in the meantime.
        let again = [entry("a", "t2")];
        assert_eq!(next(&again, &live(Some(&[("a/u/t", 9)]), &["a"])), lists(&["a/u/t", "a/u/t2"], &[]));
        assert_eq!(next(&again, &live(Some(&[("a/u/t2", 9)]), &[])), lists(&["a/u/t2"], &["a"]));
    }
}
