//! Decides whether the operator can act on a `CloudControllerManager`, and plans its objects (pure).

use super::{
    choose, guard, ignored, names, objects, reference,
    sources::{self, InputProblem, SourceState, Use, named},
};
use crate::{
    api::spec::Management,
    error::chain,
    facts::ccm::Ccm,
    object::{
        Object,
        reference::{Digests, Reference},
    },
    plan::Error,
    provider::{CCM, Origin, catalog::Catalog, kubernetes::KubernetesProvider, versions::Choice},
};

/// The result of validating a `CloudControllerManager` and its inputs, before anything is applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// The problem of the spec or the configuration, or else human-readable warnings about ignored settings.
    pub configuration: Option<Result<Vec<String>, InputProblem>>,
    /// The problem of the credentials, or else human-readable warnings about the Secret; no warnings (`None`) without a Secret.
    pub credentials: Option<Result<Option<Vec<String>>, InputProblem>>,
    /// The origin of the provider, if it is external.
    pub origin: Option<Origin>,
    /// The chosen version, and the image.
    pub version: Option<(Choice, String)>,
    /// The objects that should exist; `None` if an input is invalid.
    pub objects: Option<Vec<Object>>,
    /// The objects to delete, if nothing should exist.
    pub removed: Vec<Object>,
}

impl Validation {
    /// Refuses a specification that cannot be read, or that another object or the installation excludes.
    pub fn refused(reason: &'static str, message: String) -> Self {
        Self { configuration: Some(Err(InputProblem { reason, message })), ..Self::default() }
    }

    /// Returns the first problem, if any.
    pub fn problem(&self) -> Option<&InputProblem> {
        let configuration = self.configuration.as_ref().and_then(|result| result.as_ref().err());
        configuration.or_else(|| self.credentials.as_ref().and_then(|result| result.as_ref().err()))
    }
}

/// Validates the specification of a `CloudControllerManager` and the objects that it names.
pub fn validate(catalog: &Catalog, ccm: &Ccm, found: impl Fn(&Reference) -> SourceState) -> Validation {
    let provider = match catalog.kubernetes_of(&ccm.spec.provider) {
        Ok(provider) => provider,
        // Applied objects have the label with its name, which is enough to find them.
        Err(_) if ccm.spec.management == Management::Removed => {
            return Validation { objects: Some(Vec::new()), ..Validation::default() };
        }
        Err(problem) => return Validation::refused("Invalid", format!("spec.provider: {problem}")),
    };
    let (mut configuration, mut credentials) = (Ok(ignored(&provider.descriptor, ccm)), Ok(None));
    let mut digests = Digests::new();
    for one in named(&provider.descriptor, ccm) {
        let seen = found(&one.reference);
        if let SourceState::Present(source) = &seen {
            digests.insert(one.reference.clone(), source.digest.clone());
        }
        let checked = sources::check(&one, &seen);
        if one.usage == Use::Credentials {
            credentials = checked.map(Some);
        } else {
            configuration = configuration.and_then(|before| checked.map(|more| [before, more].concat()));
        }
    }
    let is_removed = ccm.spec.management == Management::Removed;
    let planned = if is_removed { Ok(Vec::new()) } else { objects(provider, ccm, Some(digests)) };
    if let Err(error) = &planned {
        let message = match error {
            // A reader of the status already knows the object.
            Error::InvalidSpec { field, problem, .. } => {
                if field == "credentials" {
                    credentials = Err(InputProblem { reason: "NotGiven", message: format!("spec.{field}: {problem}") });
                }
                format!("spec.{field}: {problem}")
            }
            other => chain(other),
        };
        configuration = Err(InputProblem { reason: "Invalid", message });
    }
    let image = provider.descriptor.images.get(CCM);
    let version = image.and_then(|image| Some((choose(CCM, image, ccm).ok()?, reference(CCM, image, ccm).ok()?)));
    // A missing input does not prevent the removal.
    let is_good = (configuration.is_ok() && credentials.is_ok()) || is_removed;
    let removed = if is_removed { objects_if_managed(provider, ccm) } else { Vec::new() };
    let objects = planned.ok().filter(|_| is_good);
    let origin = provider.origin.clone();
    let (configuration, credentials) = (Some(configuration), Some(credentials));
    Validation { configuration, credentials, origin, version, objects, removed }
}

/// Returns the objects that a `CloudControllerManager` would have if it were managed.
fn objects_if_managed(provider: &KubernetesProvider, ccm: &Ccm) -> Vec<Object> {
    let mut wanted = ccm.clone();
    wanted.spec.management = Management::Managed;
    objects(provider, &wanted, None).unwrap_or_else(|_| objects_of_any_input(provider, ccm))
}

/// Returns the same objects if planning fails. A current problem of the inputs does not change where the objects are.
fn objects_of_any_input(provider: &KubernetesProvider, ccm: &Ccm) -> Vec<Object> {
    let own: Vec<_> = provider.manifests.iter().map(|one| (one.kind().kind, one.name())).collect();
    let moved = provider.manifests.iter().cloned().map(|mut object| {
        names(&mut object, &own, ccm);
        object
    });
    moved.chain(guard::objects(provider, ccm).unwrap_or_default()).collect()
}
