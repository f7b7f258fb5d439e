//! The rules about what a provider declares to be its own of the labels and annotations of nodes and Services (pure).

use crate::{
    error::brief,
    provider::{foreign::Values, restriction, verify::parts::Subject},
};

pub(super) fn of_nodes(subject: Subject) -> Values {
    let openshift = subject.bundle.descriptor.as_ref().and_then(|one| one.nodes.as_ref());
    let openshift = openshift.map(|nodes| nodes.metadata_prefixes.as_slice());
    let upstream = subject.bundle.upstream.as_ref().map(|one| one.nodes.metadata_prefixes.as_slice());
    not_own(subject, "/nodes/metadataPrefixes", openshift.or(upstream).unwrap_or_default())
}

pub(super) fn of_services(subject: Subject) -> Values {
    let openshift = subject.bundle.descriptor.as_ref().map(|one| one.services.metadata_prefixes.as_slice());
    let upstream = subject.bundle.upstream.as_ref().map(|one| one.services.metadata_prefixes.as_slice());
    not_own(subject, "/services/metadataPrefixes", openshift.or(upstream).unwrap_or_default())
}

/// The prefixes at a place of the descriptor that are no domain, or one that steers Kubernetes, networks or machines.
fn not_own(subject: Subject, pointer: &str, prefixes: &[String]) -> Values {
    let of_others = || restriction::KUBERNETES.into_iter().chain(restriction::SHARED);
    let is_own = |prefix: &str| {
        let domain = prefix.strip_suffix('/').filter(|domain| domain.contains('.') && !domain.contains('/'));
        domain.is_some_and(|domain| {
            !of_others()
                .any(|other| domain.strip_suffix(other).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        })
    };
    let others = prefixes.iter().enumerate().filter(|(_, prefix)| !is_own(prefix));
    let defect = |(index, prefix): (usize, &String)| {
        let place = format!("{pointer}/{index}");
        (subject.bundle.descriptor_error(&place, format!("the prefix {:?}", brief(prefix))), prefix.clone())
    };
    others.map(defect).collect()
}
