//! The objects that should exist in a cluster, or on its bootstrap VM (pure).
//!
//! The same facts always give the same plan. The plan never asks the cluster, and each of its objects is in a file of
//! the provider.

mod grants;
pub mod install;
pub mod kubernetes;
pub mod limits;
pub mod needs;
pub mod rbac;
pub mod show;
mod substitute;
pub mod write;

use serde_json::Value;

use crate::{
    api::spec::Management,
    facts::{self, Facts, PLATFORM_DOCUMENT, ccm::Ccm, images},
    object::{Object, PART_OF_LABEL, reference},
    provider::{self, OpenShiftProvider, Phase, catalog::Catalog, external},
};

/// The objects that should exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// No provider serves this cluster.
    Nothing {
        /// The human-readable reason.
        why: String,
    },
    /// A provider's objects.
    Objects {
        /// The provider's name.
        provider: String,
        /// Its objects, in the order of applying.
        objects: Vec<Object>,
    },
}

/// The reason why there is no plan. It is always terminal: only a changed input can fix it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A fact that every plan needs is not known.
    #[error(transparent)]
    Facts(#[from] facts::Error),
    /// A container's image is not known.
    #[error("failed to set an image of {object}")]
    Image {
        /// The object.
        object: String,
        /// The cause.
        source: Box<images::Error>,
    },
    /// A fact that the manifest needs has no value.
    #[error("{object}: {what} of container {container} needs the fact {fact}, which this cluster does not have")]
    NoValue {
        /// The object.
        object: String,
        /// The container.
        container: String,
        /// The argument or variable.
        what: String,
        /// The fact's name.
        fact: &'static str,
    },
    /// A field of a manifest has the wrong type for a fact. `provider verify` reports it first.
    #[error("{object}: {field} is not a mapping")]
    Shape {
        /// The object.
        object: String,
        /// The field.
        field: &'static str,
    },
    /// A manifest has a defect: a manifest of the guard of nodes, or one that is shown before it is checked.
    #[error(transparent)]
    Provider(#[from] provider::Error),
    /// A requested external provider is refused. No other provider replaces it.
    #[error(transparent)]
    Refused(#[from] external::RefusedProvider),
    /// A `CloudControllerManager` requests something that its provider cannot do, or lacks a required input.
    #[error("CloudControllerManager/{ccm}: spec.{field}: {problem}")]
    InvalidSpec {
        /// Its name.
        ccm: String,
        /// The field, followed by the place in its text.
        field: String,
        /// The problem, and the fix.
        problem: String,
    },
}

impl Plan {
    /// Plans an OpenShift cluster from its facts.
    pub fn new(catalog: &Catalog, facts: &Facts, phase: Phase) -> Result<Self, Error> {
        let Some(platform) = facts.platform.as_ref().map_err(Clone::clone)? else {
            let kind = PLATFORM_DOCUMENT.kind.kind;
            let why = format!("this cluster has no {kind} object, so its platform is not known");
            return Ok(Self::Nothing { why });
        };
        catalog.check()?;
        match catalog.select(platform) {
            Err(why) => Ok(Self::Nothing { why }),
            Ok(provider) => {
                facts.check()?;
                Ok(Self::Objects { provider: provider.name().to_owned(), objects: provider.objects(phase, facts)? })
            }
        }
    }

    /// Plans a `CloudControllerManager`, without the digests of the ConfigMaps and Secrets that it names.
    pub fn of_ccm(catalog: &Catalog, ccm: &Ccm) -> Result<Self, Error> {
        let refuse = |problem| kubernetes::check::asked(ccm, "provider", problem);
        let provider = catalog.kubernetes_of(&ccm.spec.provider).map_err(refuse)?;
        if ccm.spec.management == Management::Removed {
            return Ok(Self::Nothing { why: format!("CloudControllerManager {} asks for its removal", ccm.name) });
        }
        let objects = kubernetes::objects(provider, ccm, None)?;
        Ok(Self::Objects { provider: provider.name().to_owned(), objects })
    }

    /// Adds the operator's label to each object.
    #[must_use]
    pub fn labeled(mut self, set_id: &str) -> Self {
        if let Self::Objects { objects, .. } = &mut self {
            for object in objects {
                object.set_label(PART_OF_LABEL, set_id);
            }
        }
        self
    }

    /// Returns the objects, in the order of applying.
    pub fn objects(&self) -> &[Object] {
        match self {
            Self::Nothing { .. } => &[],
            Self::Objects { objects, .. } => objects,
        }
    }
}

/// Whether planned objects differ from earlier ones only in the digests of mounted data, which restart the pods.
pub fn only_restarts(now: &[Object], then: &[Object]) -> bool {
    now.len() == then.len()
        && now.iter().zip(then).all(|(now, then)| now == then || without_digest(now) == without_digest(then))
}

/// Returns an object without the digest of the data that its pods mount.
fn without_digest(object: &Object) -> Value {
    let mut value = object.value().clone();
    if let Some(Value::Object(annotations)) = value.pointer_mut("/spec/template/metadata/annotations") {
        annotations.remove(reference::ANNOTATION);
        annotations.remove(reference::KUBERNETES_ANNOTATION);
    }
    value
}

impl OpenShiftProvider {
    /// Returns the objects of one phase. For the bootstrap VM, only the images depend on the cluster.
    pub fn objects(&self, phase: Phase, facts: &Facts) -> Result<Vec<Object>, Error> {
        if phase == Phase::Bootstrap {
            let pods = self.bootstrap_manifests.iter();
            return pods.map(|pod| substitute::bootstrap(self, pod, facts)).collect();
        }
        // A disruption budget of one replica would only block the drain of its node.
        let is_planned = |object: &&Object| !(facts.single_replica && object.kind().kind == "PodDisruptionBudget");
        let planned = self.manifests.iter().filter(is_planned);
        planned.map(|object| substitute::cluster(self, object, facts)).collect()
    }
}

#[cfg(test)]
mod tests;
