//! The inventory: the kinds and namespaces in which our objects may be (pure).
//!
//! It is a ConfigMap in the operator's own namespace. For other tools it has the label and annotations of the parent of
//! a set (KEP-3659), which list kinds and namespaces separately. The operator reads the exact pairs from its data, so
//! it needs no rights in places where it never created anything. This file also decides which objects may be deleted.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    apply::ownership,
    object::{KINDS, Kind, Object, PART_OF_LABEL},
    version::VERSION,
};

/// The ConfigMap's name; with its namespace it is the identity of the set.
pub const NAME: &str = "ccm-operator-inventory";

/// An object with this annotation set to `ignore` is not changed (cli-utils).
const MUTATION: &str = "client.lifecycle.config.k8s.io/mutation";

/// An object with this annotation set to `detach` is not pruned (cli-utils).
const DELETION: &str = "client.lifecycle.config.k8s.io/deletion";

/// Why an object is left alone.
pub const LEFT_ALONE: &str = "it is annotated to be left alone";

const ID_LABEL: &str = "applyset.kubernetes.io/id";
const TOOLING: &str = "applyset.kubernetes.io/tooling";
const KINDS_ANNOTATION: &str = "applyset.kubernetes.io/contains-group-kinds";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// The key of the data that holds the pairs.
const SCOPE: &str = "scope";

/// The key of the data that holds the name of the external provider that the objects are of.
const EXTERNAL: &str = "externalProvider";

/// Kinds that are never deleted, because other objects depend on them.
const NEVER_PRUNED: [&str; 3] = ["Namespace", "CustomResourceDefinition", "Secret"];

/// The value of [`PART_OF_LABEL`] for the set of the operator that runs in a namespace: KEP-3659's id of its parent.
pub fn set_id(own_namespace: &str) -> String {
    let digest = Sha256::digest(format!("{NAME}.{own_namespace}.ConfigMap."));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
}

/// A kind in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The kind.
    pub kind: &'static Kind,
    /// The namespace, empty for a cluster-scoped kind.
    pub namespace: String,
}

impl Place {
    /// The place of an object.
    pub fn of(object: &Object) -> Self {
        Self { kind: object.kind(), namespace: object.namespace().to_owned() }
    }
}

/// The places in which our objects may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    places: BTreeSet<Place>,
    /// Lines of a newer version about kinds that this one does not know; they are kept.
    unknown: BTreeSet<String>,
}

impl FromIterator<Place> for Scope {
    fn from_iter<T: IntoIterator<Item = Place>>(places: T) -> Self {
        Self { places: places.into_iter().collect(), unknown: BTreeSet::new() }
    }
}

impl Scope {
    /// The places of these objects.
    pub fn of(objects: &[Object]) -> Self {
        Self { places: objects.iter().map(Place::of).collect(), unknown: BTreeSet::new() }
    }

    /// The places of objects that a status lists, each as its API group, plural and namespace.
    pub fn of_references<'a>(references: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        let place = |(group, plural, namespace): (&str, &str, &str)| {
            let kind = KINDS.iter().find(|kind| (kind.group, kind.plural) == (group, plural))?;
            (kind.namespaced != namespace.is_empty()).then(|| Place { kind, namespace: namespace.to_owned() })
        };
        Self { places: references.filter_map(place).collect(), unknown: BTreeSet::new() }
    }

    /// Reads a live ConfigMap.
    pub fn read(config_map: &Value) -> Self {
        let mut scope = Self::default();
        for line in config_map["data"][SCOPE].as_str().unwrap_or_default().lines() {
            let (kind, namespace) = line.split_once(' ').unwrap_or((line, ""));
            let known =
                KINDS.iter().find(|known| group_kind(known) == kind && known.namespaced != namespace.is_empty());
            match known {
                Some(kind) => drop(scope.places.insert(Place { kind, namespace: namespace.to_owned() })),
                None => drop(scope.unknown.insert(line.to_owned())),
            }
        }
        scope
    }

    /// Its places.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: &Place) -> bool {
        self.places.contains(place)
    }

    /// The places of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { places: &self.places | &other.places, unknown: &self.unknown | &other.unknown }
    }

    /// These places only.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&Place) -> bool) -> Self {
        Self {
            places: self.places.iter().filter(|place| keep(place)).cloned().collect(),
            unknown: self.unknown.clone(),
        }
    }

    /// The ConfigMap with this scope and the external provider that the objects are of, for the operator in a namespace.
    pub fn config_map_of(&self, own_namespace: &str, external: Option<&str>, live: Option<&Value>) -> Value {
        let mut config_map = self.config_map(own_namespace);
        // What is left out is not compared with the live one.
        if external.is_some() || external_provider(live).is_some() {
            config_map["data"][EXTERNAL] = external.unwrap_or_default().into();
        }
        config_map
    }

    /// The ConfigMap with this scope, for the operator in a namespace.
    pub fn config_map(&self, own_namespace: &str) -> Value {
        let kinds: BTreeSet<_> = self.places.iter().map(|place| group_kind(place.kind)).collect();
        let namespaces: BTreeSet<_> = self.places.iter().map(|place| place.namespace.as_str()).collect();
        let namespaces: Vec<_> = namespaces.into_iter().filter(|name| !["", own_namespace].contains(name)).collect();
        let lines = self.places.iter().map(|place| match place.namespace.as_str() {
            "" => group_kind(place.kind),
            namespace => format!("{} {namespace}", group_kind(place.kind)),
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
            "data": {SCOPE: text},
        })
    }
}

/// The external provider that the objects of a live inventory are of.
pub fn external_provider(live: Option<&Value>) -> Option<&str> {
    live?["data"][EXTERNAL].as_str().filter(|name| !name.is_empty())
}

/// Whether a live ConfigMap has the wanted content; additions of other managers do not count.
pub fn matches(live: &Value, wanted: &Value) -> bool {
    let has = |field| ownership::covers(&wanted["metadata"][field], &live["metadata"][field]);
    has("labels") && has("annotations") && ownership::covers(&wanted["data"], &live["data"])
}

fn group_kind(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group) }
}

/// The decision about a live object that carries our label and is not planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is deleted.
    Prune,
    /// It is kept, for this reason.
    Keep(&'static str),
    /// It is already being deleted.
    Terminating,
}

fn verdict(live: &Value, set_id: &str) -> Verdict {
    let metadata = &live["metadata"];
    if metadata["labels"][PART_OF_LABEL] != set_id {
        return Verdict::Keep("it is not labeled as ours");
    }
    if live["kind"].as_str().is_none_or(|kind| NEVER_PRUNED.contains(&kind)) {
        return Verdict::Keep("its kind is never deleted");
    }
    if metadata["annotations"][DELETION] == "detach" {
        return Verdict::Keep("it is annotated to be kept");
    }
    // A copy of an object has its labels too.
    if !ownership::is_applied_by_us(live) {
        return Verdict::Keep("it carries our label but was created by another manager");
    }
    if metadata["deletionTimestamp"].is_string() { Verdict::Terminating } else { Verdict::Prune }
}

/// Whether a live object is annotated to be left alone.
pub fn is_left_alone(live: &Value) -> bool {
    live["metadata"]["annotations"][MUTATION] == "ignore"
}

/// The live objects that are not planned, each with its verdict, in the reverse order of applying.
pub fn verdicts<'a>(
    seen: impl Iterator<Item = (&'a Place, &'a Value)>,
    planned: &[Object],
    set_id: &str,
) -> Vec<(&'a Place, &'a Value, Verdict)> {
    let mut names: BTreeMap<Place, BTreeSet<&str>> = BTreeMap::new();
    for object in planned {
        names.entry(Place::of(object)).or_default().insert(object.name());
    }
    let is_planned = |place: &Place, live: &Value| {
        let name = live["metadata"]["name"].as_str().unwrap_or_default();
        names.get(place).is_some_and(|names| names.contains(name))
    };
    let seen = seen.filter(|(place, live)| !is_planned(place, live));
    let mut all: Vec<_> = seen.map(|(place, live)| (place, live, verdict(live, set_id))).collect();
    all.sort_by_key(|(place, ..)| std::cmp::Reverse(place.kind.wave));
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
    fn a_written_scope_is_read_back() {
        let objects = [
            object("Deployment", "managed"),
            object("Service", "managed"),
            object("Role", "kube-system"),
            object("ClusterRole", ""),
            object("Role", OWN),
        ];
        let scope = Scope::of(&objects);
        let config_map = scope.config_map(OWN);
        assert_eq!(Scope::read(&config_map), scope);
        let annotations = &config_map["metadata"]["annotations"];
        assert_eq!(
            annotations[KINDS_ANNOTATION],
            "ClusterRole.rbac.authorization.k8s.io,Deployment.apps,Role.rbac.authorization.k8s.io,Service"
        );
        assert_eq!(annotations[NAMESPACES], "kube-system,managed");
        assert!(matches(&config_map, &config_map));
        assert!(!matches(&Scope::of(&objects[1..]).config_map(OWN), &config_map));
        assert!(!matches(&Value::Null, &config_map));
    }

    #[test]
    fn a_scope_holds_its_places_and_those_of_another() {
        let places = ["Deployment", "Service"].map(|kind| Place::of(&object(kind, "managed")));
        let scope = Scope::of(&[object("Deployment", "managed")]);
        assert!(scope.contains(&places[0]) && !scope.contains(&places[1]));
        let read = |text: &str| Scope::read(&json!({"data": {SCOPE: text}}));
        let both = read("Deployment.apps managed\nWidget.example.com a\n")
            .union(&read("Deployment.apps managed\nGadget.example.com\nService managed\nWidget.example.com a\n"));
        let expected = "Deployment.apps managed\nGadget.example.com\nService managed\nWidget.example.com a\n";
        assert_eq!(both.config_map(OWN)["data"][SCOPE], expected);
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
        let scope = Scope::of_references(listed.into_iter());
        let found: Vec<_> = scope.places().map(|place| (place.kind.kind, place.namespace.as_str())).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&("Deployment", "managed")) && found.contains(&("ClusterRole", "")), "{found:?}");
    }

    #[test]
    fn an_inventory_matches_if_all_of_it_is_there() {
        let wanted = Scope::of(&[object("Deployment", "managed")]).config_map(OWN);
        for pointer in ["/metadata/labels", "/metadata/annotations", "/data"] {
            let mut live = wanted.clone();
            *live.pointer_mut(pointer).unwrap() = json!({});
            assert!(!matches(&live, &wanted), "{pointer}");
        }
    }

    #[test]
    fn lines_of_a_newer_version_are_kept() {
        let line = "Widget.example.com managed";
        let scope = Scope::read(&json!({"data": {SCOPE: format!("{line}\nDeployment.apps managed\n")}}));
        assert_eq!(scope.places().count(), 1);
        let shrunk = scope.only(|_| false);
        assert_eq!(shrunk.config_map(OWN)["data"][SCOPE], format!("{line}\n"));
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
        assert_eq!(verdict(&live("Deployment", &id, Value::Null), &id), Verdict::Prune);
        let mut going = live("Deployment", &id, Value::Null);
        going["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(verdict(&going, &id), Verdict::Terminating);
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
            assert!(matches!(verdict(&kept, &id), Verdict::Keep(_)), "{kept}");
        }
    }

    #[test]
    fn objects_are_pruned_in_the_reverse_order_of_applying() {
        let id = set_id(OWN);
        let live = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
        let objects =
            ["ClusterRole", "PodDisruptionBudget", "Deployment", "Service"].map(|kind| object(kind, "managed"));
        let places = objects.each_ref().map(Place::of);
        let seen: Vec<_> = places.iter().map(|place| (place, live(place.kind.kind, "old"))).collect();
        let planned = live("Deployment", "x");
        let seen = seen.iter().map(|(place, live)| (*place, live)).chain([(&places[2], &planned)]);
        let order: Vec<_> = verdicts(seen, &objects, &id).iter().map(|(place, ..)| place.kind.kind).collect();
        assert_eq!(order, ["PodDisruptionBudget", "Deployment", "Service", "ClusterRole"]);
    }
}
