//! The outcome of a pass for one member of the fleet (pure). Every status is computed from it.

use crate::{apply::settled::Settled, object::Key};

/// The outcome of a pass for one member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No provider serves the cluster. Holds the reason as text.
    Nothing(String),
    /// An input is invalid. Nothing is changed until it is fixed.
    BadInput,
    /// A check before the first installation failed, and nothing is created. Holds the check and its fix.
    PreflightRefused(String),
    /// The administrator has paused management, and nothing is changed.
    Paused,
    /// The member's objects are being deleted. Holds the remaining objects.
    Removing(Vec<String>),
    /// All objects of the member are deleted.
    Removed,
    /// The pass failed. The error is reported.
    Failed {
        /// The error with its causes, on one line.
        error: String,
        /// Whether a retry is useless.
        is_terminal: bool,
    },
    /// All objects are applied, and some workloads are being rolled out.
    RollingOut {
        /// The proof that all objects are applied.
        settled: Settled,
        /// The workloads that are being rolled out.
        rollouts: Vec<Key>,
        /// The nodes that may delay the rollouts, as text; empty until they take long.
        nodes: String,
    },
    /// All objects are applied, and a rollout is stuck. Holds the reason.
    Stuck(Settled, String),
    /// All objects are applied, and all workloads run.
    Applied(Settled),
}

/// Lists the names of objects as text.
pub fn names(objects: &[Key]) -> String {
    objects.iter().map(Key::to_string).collect::<Vec<_>>().join(", ")
}

impl Outcome {
    /// Returns a failure that a retry may fix.
    pub fn failed(error: String) -> Self {
        Self::Failed { error, is_terminal: false }
    }

    /// Whether nothing is left to do and there is no problem.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Nothing(_) | Self::Paused | Self::Removed | Self::Applied(_))
    }

    /// Returns the problem, unless an input is invalid. A long rollout that nodes may delay counts as a problem.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::PreflightRefused(error) | Self::Failed { error, .. } | Self::Stuck(_, error) => Some(error.clone()),
            Self::RollingOut { rollouts, nodes, .. } if !nodes.is_empty() => {
                Some(format!("the rollout of {} does not end{nodes}", names(rollouts)))
            }
            _ => None,
        }
    }

    /// Describes the outcome on one line, for the log.
    pub fn summary(&self) -> String {
        match self {
            Self::Nothing(why) => format!("nothing is to be applied: {why}"),
            Self::BadInput => "an input is bad".to_owned(),
            Self::PreflightRefused(error) | Self::Failed { error, .. } | Self::Stuck(_, error) => error.clone(),
            Self::Paused => "it is paused: nothing is changed".to_owned(),
            Self::Removing(left) => format!("removing {}", left.join(", ")),
            Self::Removed => "all its objects are deleted".to_owned(),
            Self::RollingOut { rollouts, nodes, .. } => {
                format!("waiting for the rollout of {}{nodes}", names(rollouts))
            }
            Self::Applied(_) => "everything is applied and runs".to_owned(),
        }
    }

    /// Whether a rollout is not done.
    pub fn is_rollout(&self) -> bool {
        matches!(self, Self::RollingOut { .. } | Self::Stuck(..))
    }
}
