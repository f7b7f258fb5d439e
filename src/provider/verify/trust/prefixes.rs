//! Rules about the labels and annotations of nodes and Services that a provider declares as its own (pure).

use crate::{
    error::brief,
    provider::{
        Describe, restriction,
        verify::{Values, parts::Input},
    },
};

pub(super) fn of_nodes(input: Input) -> Values {
    let said = input.parsed.descriptor.as_ref().map(Describe::common);
    not_own(input, "/nodes/metadataPrefixes", said.map(|said| said.of_nodes).unwrap_or_default())
}

pub(super) fn of_services(input: Input) -> Values {
    let said = input.parsed.descriptor.as_ref().map(Describe::common);
    not_own(input, "/services/metadataPrefixes", said.map(|said| said.of_services).unwrap_or_default())
}

/// The prefixes at a place of the descriptor that are no domain, or one that steers Kubernetes, networks or machines.
fn not_own(input: Input, pointer: &str, prefixes: &[String]) -> Values {
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
        (input.parsed.descriptor_error(&place, format!("the prefix {:?}", brief(prefix))), prefix.clone())
    };
    others.map(defect).collect()
}
