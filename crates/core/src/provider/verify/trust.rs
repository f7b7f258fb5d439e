//! The rules for external providers (pure).
//!
//! They check what a provider could do to a cluster, without trust in its author. The usual needs of a cloud-controller-manager are
//! listed, and everything else is refused. An administrator can allow more by its exact value, in a [`super::Policy`].
//! Two things cannot be allowed: what no cloud-controller-manager needs, and what would make every other rule void.

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

/// How names begin that are Kubernetes' own.
const SYSTEM: &str = "system:";

#[cfg(test)]
pub(crate) mod tests;
