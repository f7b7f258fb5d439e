//! The rules for providers that do not come with this program (pure).
//!
//! They ask what a provider could do to a cluster, whoever wrote it. What a cloud-controller-manager usually needs is listed, everything
//! else is refused. An administrator allows more by the exact value, in a [`super::Policy`]; what no cloud-controller-manager needs, or
//! would make every other rule void, cannot be allowed.

mod accounts;
mod containers;
mod metadata;
mod never;
mod objects;
mod pods;
mod prefixes;
mod rights;
mod rules;
mod secrets;
mod types;

pub(super) use rules::RULES;

/// How names begin that are Kubernetes' own.
const SYSTEM: &str = "system:";

#[cfg(test)]
pub(crate) mod tests;
