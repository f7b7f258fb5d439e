//! `instance-sweep`: which instances are deleted because their owners are gone (pure).
//!
//! Every doubt keeps an instance. It is deleted only if it has an owner and this cluster's id, and if two complete reads of all
//! owners, a grace period apart, do not have the owner's UID.

use std::collections::BTreeSet;

use ccm_drivers::contract::{Instance, Marks};
use serde::Serialize;

pub(crate) mod read;

/// The owners of one complete read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// The id of the cluster that has answered.
    pub(crate) cluster: String,
    /// The UIDs of all owners.
    pub(crate) uids: BTreeSet<String>,
}

/// Why an instance is kept, or that it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// Others have made it.
    NotOwned,
    /// Its cluster is unknown.
    NoCluster,
    /// It belongs to another cluster.
    OtherCluster,
    /// Its owner exists.
    OwnerExists,
    /// Its owner is gone.
    OwnerGone,
}

impl Verdict {
    /// The words for it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NotOwned => "others have made it",
            Self::NoCluster => "it has no cluster id",
            Self::OtherCluster => "it belongs to another cluster",
            Self::OwnerExists => "its owner exists",
            Self::OwnerGone => "its owner is gone",
        }
    }
}

/// Decides for one instance.
pub(crate) fn verdict(marks: &Marks, reads: &[Owners; 2]) -> Verdict {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let Some(owner) = given(&marks.owner) else { return Verdict::NotOwned };
    let Some(cluster) = given(&marks.cluster) else { return Verdict::NoCluster };
    if reads.iter().any(|read| read.cluster != cluster) {
        return Verdict::OtherCluster;
    }
    if reads.iter().any(|read| read.uids.contains(&owner)) { Verdict::OwnerExists } else { Verdict::OwnerGone }
}

/// Whether a deletion would leave no instance of this cluster: more likely the flags name the wrong kinds of owners.
pub(crate) fn leaves_none(verdicts: &[Verdict]) -> bool {
    verdicts.contains(&Verdict::OwnerGone) && !verdicts.contains(&Verdict::OwnerExists)
}

/// Whether an instance still is the one that was judged: the read before its deletion has the same owner and cluster.
pub(crate) fn is_same(judged: &Instance, now: &Instance) -> bool {
    judged.id == now.id && judged.marks == now.marks
}

#[cfg(test)]
mod tests;
