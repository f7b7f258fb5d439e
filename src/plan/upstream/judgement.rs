//! Decides whether the operator can act on a `CloudControllerManager`, and plans its objects (pure).

use super::{
    choose, guard, ignored, names, reference,
    sources::{self, Found, Named, Trouble, Use, named},
};
use crate::{
    api::spec::Management,
    error::chain,
    facts::{Facts, manager::Manager},
    object::{
        Object,
        reference::{Digests, Reference},
    },
    plan::{Error, Plan},
    provider::{CCM, Origin, Phase, catalog::Catalog, upstream::Upstream, versions::Choice},
};

/// What is known about a `CloudControllerManager` before anything is applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// What is wrong with the configuration, the specification included; else what of it will be ignored, for people.
    pub configuration: Option<Result<Vec<String>, Trouble>>,
    /// What is wrong with the credentials; else whether a Secret is needed.
    pub credentials: Option<Result<bool, Trouble>>,
    /// Where the provider comes from, if it is external.
    pub origin: Option<Origin>,
    /// The version that was chosen, and the image.
    pub version: Option<(Choice, String)>,
    /// The objects that should exist; `None` if an input is bad.
    pub objects: Option<Vec<Object>>,
    /// The objects that are to go, where nothing should exist.
    pub removed: Vec<Object>,
}

impl Judgement {
    /// Of a specification that cannot be read, or that another object or the installation excludes.
    pub fn refused(reason: &'static str, message: String) -> Self {
        Self { configuration: Some(Err(Trouble { reason, message })), ..Self::default() }
    }

    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<&Trouble> {
        let configuration = self.configuration.as_ref().and_then(|result| result.as_ref().err());
        configuration.or_else(|| self.credentials.as_ref().and_then(|result| result.as_ref().err()))
    }
}

/// The objects that a `CloudControllerManager` names; none for an unknown provider.
pub fn needs(catalog: &Catalog, manager: &Manager) -> Vec<Named> {
    catalog.upstream_of(&manager.spec.provider).map(|provider| named(&provider.descriptor, manager)).unwrap_or_default()
}

/// Judges a `CloudControllerManager` by its specification and by what it names.
pub fn judge(catalog: &Catalog, manager: &Manager, found: impl Fn(&Reference) -> Found) -> Judgement {
    let provider = match catalog.upstream_of(&manager.spec.provider) {
        Ok(provider) => provider,
        // What is applied has the label with its name: that is enough to find it.
        Err(_) if manager.spec.management == Management::Removed => {
            return Judgement { objects: Some(Vec::new()), ..Judgement::default() };
        }
        Err(problem) => return Judgement::refused("Invalid", format!("spec.provider: {problem}")),
    };
    let (mut configuration, mut credentials) = (Ok(ignored(&provider.descriptor, manager)), Ok(false));
    let mut digests = Digests::new();
    for one in named(&provider.descriptor, manager) {
        let seen = found(&one.reference);
        if let Found::Present(source) = &seen {
            digests.insert(one.reference.clone(), source.digest.clone());
        }
        let checked = sources::check(&one, &seen);
        if one.usage == Use::Credentials {
            credentials = checked.map(|_| true);
        } else {
            configuration = configuration.and_then(|before| checked.map(|more| [before, more].concat()));
        }
    }
    let facts = Facts { digests: Some(digests), ..manager.clone().facts() };
    let planned = Plan::new(catalog, &facts, Phase::Cluster);
    if let Err(error) = &planned {
        let message = match error {
            // The object is known to who reads its status.
            Error::Asked { field, problem, .. } => {
                if field == "credentials" {
                    credentials = Err(Trouble { reason: "NotGiven", message: format!("spec.{field}: {problem}") });
                }
                format!("spec.{field}: {problem}")
            }
            other => chain(other),
        };
        configuration = Err(Trouble { reason: "Invalid", message });
    }
    let image = provider.descriptor.images.get(CCM);
    let version =
        image.and_then(|image| Some((choose(CCM, image, manager).ok()?, reference(CCM, image, manager).ok()?)));
    // Nothing that is missing keeps it from going.
    let is_removed = manager.spec.management == Management::Removed;
    let is_good = (configuration.is_ok() && credentials.is_ok()) || is_removed;
    let objects = planned.ok().filter(|_| is_good).map(|plan| plan.objects().to_vec());
    let removed = if is_removed { objects_if_managed(catalog, provider, manager) } else { Vec::new() };
    let origin = provider.origin.clone();
    let (configuration, credentials) = (Some(configuration), Some(credentials));
    Judgement { configuration, credentials, origin, version, objects, removed }
}

/// The objects that a `CloudControllerManager` would have if it was managed.
fn objects_if_managed(catalog: &Catalog, provider: &Upstream, manager: &Manager) -> Vec<Object> {
    let mut wanted = manager.clone();
    wanted.spec.management = Management::Managed;
    let plan = Plan::new(catalog, &wanted.facts(), Phase::Cluster);
    plan.map_or_else(|_| objects_of_any_input(provider, manager), |plan| plan.objects().to_vec())
}

/// The same where that cannot be planned any more: what is wrong with its inputs now does not change where they are.
fn objects_of_any_input(provider: &Upstream, manager: &Manager) -> Vec<Object> {
    let own: Vec<_> = provider.manifests.iter().map(|one| (one.kind().kind, one.name())).collect();
    let moved = provider.manifests.iter().cloned().map(|mut object| {
        names(&mut object, &own, manager);
        object
    });
    moved.chain(guard::objects(provider, manager).unwrap_or_default()).collect()
}
