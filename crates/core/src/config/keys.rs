//! The keys that each cloud-controller-manager knows, and the types of their values (pure).
//!
//! `make generate` writes keys.json from the Go types of the configurations, with `hack/ccm/read`. A test checks that
//! it is current.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// The keys of every cloud whose configuration is checked.
#[derive(Debug, Deserialize)]
pub(super) struct Keys {
    pub(super) aws: Vec<Section>,
    pub(super) azure: BTreeMap<String, Kind>,
    pub(super) openstack: Vec<Section>,
    pub(super) vsphere: Vec<Section>,
}

/// A section that a cloud-controller-manager knows.
#[derive(Debug, Deserialize)]
pub(super) struct Section {
    pub(super) name: String,
    /// Whether its sections have names, such as `[ServiceOverride "1"]`.
    pub(super) each: bool,
    pub(super) keys: BTreeMap<String, Kind>,
}

/// The type of a value: a Go type, and for INI `Duration` and `Word`, which have their own rules.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Bool,
    Duration,
    Float,
    Int,
    Int32,
    List,
    Map,
    Text,
    Uint,
    /// A text without blanks.
    Word,
}

#[expect(clippy::expect_used, reason = "the file is part of the binary; every test of a configuration reads it")]
pub(super) static KEYS: LazyLock<Keys> =
    LazyLock::new(|| serde_json::from_str(include_str!("keys.json")).expect("keys.json matches its type"));

impl Section {
    /// Returns the key of this name, ignoring case, as INI does.
    pub(super) fn ini_key(&self, name: &str) -> Option<(&str, Kind)> {
        let found = self.keys.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(key, kind)| (key.as_str(), *kind))
    }
}
