//! The inventory: the kinds and namespaces that may contain our objects (pure).
//!
//! The inventory is a ConfigMap in the operator's own namespace. For other tools it has the label and annotations of an
//! `ApplySet` parent (KEP-3659), which list kinds and namespaces separately. The operator reads the exact pairs from the
//! data, so it needs no permissions in locations where it never created an object. This file also decides which objects
//! may be deleted.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    apply::ownership,
    object::{KINDS, Kind, Object, PART_OF_LABEL},
    version::VERSION,
};

/// The name of the ConfigMap. Name and namespace together identify the set.
pub const NAME: &str = "ccm-operator-inventory";

/// The annotation whose value `ignore` excludes an object from changes (cli-utils).
const MUTATION: &str = "client.lifecycle.config.k8s.io/mutation";

/// The annotation whose value `detach` excludes an object from pruning (cli-utils).
const DELETION: &str = "client.lifecycle.config.k8s.io/deletion";

/// The reason for leaving an object alone.
pub const LEFT_ALONE: &str = "it is annotated to be left alone";

const ID_LABEL: &str = "applyset.kubernetes.io/id";
const TOOLING: &str = "applyset.kubernetes.io/tooling";
const KINDS_ANNOTATION: &str = "applyset.kubernetes.io/contains-group-kinds";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// The data key of the locations.
const LOCATIONS: &str = "scope";

/// The data key of the name of the objects' external provider.
const EXTERNAL: &str = "externalProvider";

/// Kinds that are never deleted, because other objects depend on them.
const NEVER_PRUNED: [&str; 3] = ["Namespace", "CustomResourceDefinition", "Secret"];

/// Returns the value of [`PART_OF_LABEL`] for the set of an operator in this namespace: the `ApplySet` ID of KEP-3659.
pub fn set_id(own_namespace: &str) -> String {
    let digest = Sha256::digest(format!("{NAME}.{own_namespace}.ConfigMap."));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
}

/// A kind in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The kind.
    pub kind: &'static Kind,
    /// The namespace; empty for a cluster-scoped kind.
    pub namespace: String,
}

impl Location {
    /// Returns the location of an object.
    pub fn of(object: &Object) -> Self {
        Self { kind: object.kind(), namespace: object.namespace().to_owned() }
    }
}

/// The locations that may contain our objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    locations: BTreeSet<Location>,
    /// Lines with kinds that only a newer version knows. They are kept.
    unknown: BTreeSet<String>,
}

impl FromIterator<Location> for Inventory {
    fn from_iter<T: IntoIterator<Item = Location>>(locations: T) -> Self {
        Self { locations: locations.into_iter().collect(), unknown: BTreeSet::new() }
    }
}

impl Inventory {
    /// Returns the locations of these objects.
    pub fn of(objects: &[Object]) -> Self {
        objects.iter().map(Location::of).collect()
    }

    /// Returns the locations of the objects in a status, each given as API group, plural and namespace.
    pub fn of_references<'a>(references: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        let location = |(group, plural, namespace): (&str, &str, &str)| {
            let kind = KINDS.iter().find(|kind| (kind.group, kind.plural) == (group, plural))?;
            (kind.namespaced != namespace.is_empty()).then(|| Location { kind, namespace: namespace.to_owned() })
        };
        references.filter_map(location).collect()
    }

    /// Reads the inventory from a live ConfigMap.
    pub fn read(config_map: &Value) -> Self {
        let mut inventory = Self::default();
        for line in config_map["data"][LOCATIONS].as_str().unwrap_or_default().lines() {
            let (kind, namespace) = line.split_once(' ').unwrap_or((line, ""));
            let known =
                KINDS.iter().find(|known| group_kind(known) == kind && known.namespaced != namespace.is_empty());
            match known {
                Some(kind) => drop(inventory.locations.insert(Location { kind, namespace: namespace.to_owned() })),
                None => drop(inventory.unknown.insert(line.to_owned())),
            }
        }
        inventory
    }

    /// Returns the locations.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.locations.iter()
    }

    /// Whether the inventory lists a location.
    pub fn contains(&self, location: &Location) -> bool {
        self.locations.contains(location)
    }

    /// Returns the locations of both inventories.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { locations: &self.locations | &other.locations, unknown: &self.unknown | &other.unknown }
    }

    /// Returns the inventory with only the locations that `keep` accepts.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&Location) -> bool) -> Self {
        Self {
            locations: self.locations.iter().filter(|location| keep(location)).cloned().collect(),
            unknown: self.unknown.clone(),
        }
    }

    /// Returns the ConfigMap of an operator in this namespace, with the inventory and the objects' external provider.
    pub fn config_map_of(&self, own_namespace: &str, external: Option<&str>, live: Option<&Value>) -> Value {
        let mut config_map = self.config_map(own_namespace);
        // An absent key would not be compared with the live key.
        if external.is_some() || external_provider(live).is_some() {
            config_map["data"][EXTERNAL] = external.unwrap_or_default().into();
        }
        config_map
    }

    /// Returns the ConfigMap of an operator in this namespace, with the inventory.
    pub fn config_map(&self, own_namespace: &str) -> Value {
        let kinds: BTreeSet<_> = self.locations.iter().map(|location| group_kind(location.kind)).collect();
        let namespaces: BTreeSet<_> = self.locations.iter().map(|location| location.namespace.as_str()).collect();
        let namespaces: Vec<_> = namespaces.into_iter().filter(|name| !["", own_namespace].contains(name)).collect();
        let lines = self.locations.iter().map(|location| match location.namespace.as_str() {
            "" => group_kind(location.kind),
            namespace => format!("{} {namespace}", group_kind(location.kind)),
        });
        let lines: BTreeSet<_> = lines.chain(self.unknown.iter().cloned()).collect();
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": NAME,
                "namespace": own_namespace,
                "labels": {ID_LABEL: set_id(own_namespace)},
                "annotations": {
                    TOOLING: format!("ccm-operator/v{VERSION}"),
                    KINDS_ANNOTATION: kinds.into_iter().collect::<Vec<_>>().join(","),
                    NAMESPACES: namespaces.join(","),
                },
            },
            "data": {LOCATIONS: text},
        })
    }
}

/// Returns the external provider of the objects in a live inventory.
pub fn external_provider(live: Option<&Value>) -> Option<&str> {
    live?["data"][EXTERNAL].as_str().filter(|name| !name.is_empty())
}

/// Whether a live ConfigMap has the wanted content. Ignores other managers' additions.
pub fn matches(live: &Value, wanted: &Value) -> bool {
    let has = |field| ownership::covers(&wanted["metadata"][field], &live["metadata"][field]);
    has("labels") && has("annotations") && ownership::covers(&wanted["data"], &live["data"])
}

fn group_kind(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group) }
}

/// The decision about an unplanned live object with our label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneDecision {
    /// The object is deleted.
    Prune,
    /// The object is kept for this reason.
    Keep(&'static str),
    /// The object is already being deleted.
    Terminating,
}

fn decision(live: &Value, set_id: &str) -> PruneDecision {
    let metadata = &live["metadata"];
    if metadata["labels"][PART_OF_LABEL] != set_id {
        return PruneDecision::Keep("it is not labeled as ours");
    }
    if live["kind"].as_str().is_none_or(|kind| NEVER_PRUNED.contains(&kind)) {
        return PruneDecision::Keep("its kind is never deleted");
    }
    if metadata["annotations"][DELETION] == "detach" {
        return PruneDecision::Keep("it is annotated to be kept");
    }
    // A copy of one of our objects also has our label.
    if !ownership::is_applied_by_us(live) {
        return PruneDecision::Keep("it carries our label but was created by another manager");
    }
    if metadata["deletionTimestamp"].is_string() { PruneDecision::Terminating } else { PruneDecision::Prune }
}

/// Whether an annotation excludes a live object from changes.
pub fn is_left_alone(live: &Value) -> bool {
    live["metadata"]["annotations"][MUTATION] == "ignore"
}

/// Returns the unplanned live objects, each with its decision, in reverse apply order.
pub fn prune_decisions<'a>(
    seen: impl Iterator<Item = (&'a Location, &'a Value)>,
    planned: &[Object],
    set_id: &str,
) -> Vec<(&'a Location, &'a Value, PruneDecision)> {
    let mut names: BTreeMap<Location, BTreeSet<&str>> = BTreeMap::new();
    for object in planned {
        names.entry(Location::of(object)).or_default().insert(object.name());
    }
    let is_planned = |location: &Location, live: &Value| {
        let name = live["metadata"]["name"].as_str().unwrap_or_default();
        names.get(location).is_some_and(|names| names.contains(name))
    };
    let seen = seen.filter(|(location, live)| !is_planned(location, live));
    let mut all: Vec<_> = seen.map(|(location, live)| (location, live, decision(live, set_id))).collect();
    all.sort_by_key(|(location, ..)| std::cmp::Reverse(location.kind.wave));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "own";

    fn object(kind: &str, namespace: &str) -> Object {
        let known = KINDS.iter().find(|known| known.kind == kind).unwrap();
        let mut value = json!({"apiVersion": known.api_version(), "kind": kind, "metadata": {"name": "x"}});
        if known.namespaced {
            value["metadata"]["namespace"] = namespace.into();
        }
        Object::new(value).unwrap()
    }

    #[test]
    fn the_set_id_is_that_of_the_enhancement_proposal() {
        // KEP-3659: base64url of the SHA-256 of <name>.<namespace>.<kind>.<group>.
        let id = set_id("ns");
        assert_eq!(id.len(), "applyset-".len() + 43 + "-v1".len());
        assert!(id.len() <= 63, "a label's value");
        assert_ne!(id, set_id("other"));
    }

    #[test]
    fn a_written_inventory_is_read_back() {
        let objects = [
            object("Deployment", "managed"),
            object("Service", "managed"),
            object("Role", "kube-system"),
            object("ClusterRole", ""),
            object("Role", OWN),
        ];
        let inventory = Inventory::of(&objects);
        let config_map = inventory.config_map(OWN);
        assert_eq!(Inventory::read(&config_map), inventory);
        let annotations = &config_map["metadata"]["annotations"];
        assert_eq!(
            annotations[KINDS_ANNOTATION],
            "ClusterRole.rbac.authorization.k8s.io,Deployment.apps,Role.rbac.authorization.k8s.io,Service"
        );
        assert_eq!(annotations[NAMESPACES], "kube-system,managed");
        assert!(matches(&config_map, &config_map));
        assert!(!matches(&Inventory::of(&objects[1..]).config_map(OWN), &config_map));
        assert!(!matches(&Value::Null, &config_map));
    }

    #[test]
    fn an_inventory_holds_its_locations_and_those_of_another() {
        let locations = ["Deployment", "Service"].map(|kind| Location::of(&object(kind, "managed")));
        let inventory = Inventory::of(&[object("Deployment", "managed")]);
        assert!(inventory.contains(&locations[0]) && !inventory.contains(&locations[1]));
        let read = |text: &str| Inventory::read(&json!({"data": {LOCATIONS: text}}));
        let both = read("Deployment.apps managed\nWidget.example.com a\n")
            .union(&read("Deployment.apps managed\nGadget.example.com\nService managed\nWidget.example.com a\n"));
        let expected = "Deployment.apps managed\nGadget.example.com\nService managed\nWidget.example.com a\n";
        assert_eq!(both.config_map(OWN)["data"][LOCATIONS], expected);
    }

    #[test]
    fn places_are_known_from_the_objects_that_a_status_lists() {
        let listed = [
            ("apps", "deployments", "managed"),
            ("rbac.authorization.k8s.io", "clusterroles", ""),
            ("", "services", ""),
            ("rbac.authorization.k8s.io", "clusterrolebindings", "managed"),
            ("", "widgets", "managed"),
        ];
        let inventory = Inventory::of_references(listed.into_iter());
        let found: Vec<_> =
            inventory.locations().map(|location| (location.kind.kind, location.namespace.as_str())).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&("Deployment", "managed")) && found.contains(&("ClusterRole", "")), "{found:?}");
    }

    #[test]
    fn an_inventory_matches_if_all_of_it_is_there() {
        let wanted = Inventory::of(&[object("Deployment", "managed")]).config_map(OWN);
        for pointer in ["/metadata/labels", "/metadata/annotations", "/data"] {
            let mut live = wanted.clone();
            *live.pointer_mut(pointer).unwrap() = json!({});
            assert!(!matches(&live, &wanted), "{pointer}");
        }
    }

    #[test]
    fn lines_of_a_newer_version_are_kept() {
        let line = "Widget.example.com managed";
        let inventory = Inventory::read(&json!({"data": {LOCATIONS: format!("{line}\nDeployment.apps managed\n")}}));
        assert_eq!(inventory.locations().count(), 1);
        let shrunk = inventory.only(|_| false);
        assert_eq!(shrunk.config_map(OWN)["data"][LOCATIONS], format!("{line}\n"));
    }

    #[test]
    fn only_our_own_objects_of_prunable_kinds_are_pruned() {
        let id = set_id(OWN);
        let ours = json!([{"manager": ownership::FIELD_MANAGER, "operation": "Apply"}]);
        let live = |kind: &str, part_of: &str, annotations: Value| {
            json!({"kind": kind, "metadata": {
                "labels": {PART_OF_LABEL: part_of}, "annotations": annotations, "managedFields": ours,
            }})
        };
        assert_eq!(decision(&live("Deployment", &id, Value::Null), &id), PruneDecision::Prune);
        let mut going = live("Deployment", &id, Value::Null);
        going["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(decision(&going, &id), PruneDecision::Terminating);
        let mut copied = live("Deployment", &id, Value::Null);
        copied["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Apply"}]);
        for kept in [
            live("Deployment", &set_id("other"), Value::Null),
            live("Deployment", &id, json!({DELETION: "detach"})),
            live("Namespace", &id, Value::Null),
            live("Secret", &id, Value::Null),
            live("CustomResourceDefinition", &id, Value::Null),
            copied,
        ] {
            assert!(matches!(decision(&kept, &id), PruneDecision::Keep(_)), "{kept}");
        }
    }

    #[test]
    fn objects_are_pruned_in_the_reverse_order_of_applying() {
        let id = set_id(OWN);
        let live = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
        let objects =
            ["ClusterRole", "PodDisruptionBudget", "Deployment", "Service"].map(|kind| object(kind, "managed"));
        let locations = objects.each_ref().map(Location::of);
        let seen: Vec<_> = locations.iter().map(|location| (location, live(location.kind.kind, "old"))).collect();
        let planned = live("Deployment", "x");
        let seen = seen.iter().map(|(location, live)| (*location, live)).chain([(&locations[2], &planned)]);
        let order: Vec<_> =
            prune_decisions(seen, &objects, &id).iter().map(|(location, ..)| location.kind.kind).collect();
        assert_eq!(order, ["Deployment", "PodDisruptionBudget", "Service", "ClusterRole"]);
    }
}
