//! The rules for external providers (pure).
//!
//! They check the possible effects of a provider on a cluster, without trust in its author. They list the usual needs of a
//! cloud-controller-manager and refuse everything else. An administrator can allow exact values in a [`super::Policy`].
//! Two kinds of values cannot be allowed: those that no cloud-controller-manager needs, and those that would void every other rule.

mod accounts;
mod containers;
mod metadata;
mod never;
mod objects;
mod permissions;
mod pods;
mod rules;
mod secrets;

pub(super) use rules::RULES;

/// The prefix of Kubernetes' own names.
const SYSTEM: &str = "system:";

#[cfg(test)]
pub(crate) mod tests;
