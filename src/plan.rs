//! The objects that should exist in a cluster, or stand on its bootstrap VM (pure).
//!
//! The same facts always give the same plan. The plan never asks the cluster what is there, and makes no object that
//! is not a file of the provider.

pub mod show;
mod substitute;
pub mod write;

use crate::provider::Phase;
use crate::{
    facts::{self, Facts},
    object::Object,
    provider::{
        Provider,
        catalog::{Catalog, Selection},
    },
};

pub use substitute::Error as SubstituteError;

/// What should be.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// No provider serves this cluster, so nothing is to be done.
    Nothing {
        /// Why, for people.
        why: String,
    },
    /// A provider's objects, in the order in which they are to be applied.
    Objects {
        /// The provider's name.
        provider: String,
        /// Its objects.
        objects: Vec<Object>,
    },
}

/// Why there is no plan. Always terminal: only another input can mend it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The facts cannot be known.
    #[error(transparent)]
    Facts(#[from] facts::Error),
    /// A manifest cannot be completed.
    #[error(transparent)]
    Substitute(#[from] SubstituteError),
}

impl Plan {
    /// Plans a cluster from its facts.
    pub fn new(catalog: &Catalog, facts: &Facts, phase: Phase) -> Result<Self, Error> {
        let Some(platform) = facts.platform.as_ref().map_err(Clone::clone)? else {
            let why = "this cluster has no Infrastructure object, so its platform is not known".to_owned();
            return Ok(Self::Nothing { why });
        };
        match catalog.select(platform) {
            Selection::Nothing(why) => Ok(Self::Nothing { why }),
            Selection::Provider(provider) => {
                facts.check()?;
                let objects = match phase {
                    Phase::Bootstrap => provider.bootstrap_resources(facts)?,
                    Phase::Cluster => provider.resources(facts)?,
                };
                Ok(Self::Objects { provider: provider.name().to_owned(), objects })
            }
        }
    }

    /// The same with our label on each of its objects, by which they are found again.
    #[must_use]
    pub fn labelled(mut self, set_id: &str) -> Self {
        if let Self::Objects { objects, .. } = &mut self {
            for object in objects {
                object.set_label(crate::apply::inventory::PART_OF_LABEL, set_id);
            }
        }
        self
    }

    /// Its objects, in the order in which they are to be applied.
    pub fn objects(&self) -> &[Object] {
        match self {
            Self::Nothing { .. } => &[],
            Self::Objects { objects, .. } => objects,
        }
    }
}

impl Provider {
    /// The objects that run the cloud-controller-manager in a cluster; each call returns new ones.
    pub fn resources(&self, facts: &Facts) -> Result<Vec<Object>, SubstituteError> {
        self.manifests
            .iter()
            // One replica is either there or it is not: a budget would only hold up the drain of its node.
            .filter(|object| !(facts.single_replica && object.kind().kind == "PodDisruptionBudget"))
            .map(|object| substitute::cluster(&self.descriptor, object, facts))
            .collect()
    }

    /// The static pods of the bootstrap VM; each call returns new ones.
    pub fn bootstrap_resources(&self, facts: &Facts) -> Result<Vec<Object>, SubstituteError> {
        self.bootstrap_manifests.iter().map(|object| substitute::bootstrap(&self.descriptor, object, facts)).collect()
    }
}

#[cfg(test)]
mod tests;
