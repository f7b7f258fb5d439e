//! What a pass has come to for one that is reported to (pure): the same for every status.

use crate::{apply::settled::Settled, object::Key};

/// What a pass has come to for one that is reported to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No provider serves the cluster: why, for people.
    Nothing(String),
    /// An input is bad: nothing is changed until it is another one.
    BadInput,
    /// A check before the first installation refuses it: which one, and what to do. Nothing is created.
    Refused(String),
    /// The administrator wants nothing changed.
    Paused,
    /// It is being removed; what is left.
    Removing(Vec<String>),
    /// Nothing of it is left.
    Removed,
    /// It has failed, and that has to be reported.
    Failed {
        /// The error with its causes, in one line.
        error: String,
        /// Whether trying again is of no use.
        is_terminal: bool,
    },
    /// Everything is applied, and some workloads are being rolled out.
    RollingOut {
        /// That everything is applied.
        settled: Settled,
        /// These workloads.
        rollouts: Vec<Key>,
        /// The nodes that may hold them up, for people, once they take long.
        nodes: String,
    },
    /// Everything is applied, and workloads do not come up: why.
    Stuck(Settled, String),
    /// Everything is applied and runs.
    Applied(Settled),
}

/// These objects, for people.
pub fn names(objects: &[Key]) -> String {
    objects.iter().map(Key::to_string).collect::<Vec<_>>().join(", ")
}

impl Outcome {
    /// A failure that may pass by itself.
    pub fn failed(error: String) -> Self {
        Self::Failed { error, is_terminal: false }
    }

    /// Whether nothing more is to be done, and nothing is wrong.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Nothing(_) | Self::Paused | Self::Removed | Self::Applied(_))
    }

    /// What is wrong, if that does not stand in the inputs: also a rollout that takes long, while nodes may hold it up.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Refused(error) | Self::Failed { error, .. } | Self::Stuck(_, error) => Some(error.clone()),
            Self::RollingOut { rollouts, nodes, .. } if !nodes.is_empty() => {
                Some(format!("the rollout of {} does not end{nodes}", names(rollouts)))
            }
            _ => None,
        }
    }

    /// Whether it is about a rollout that has not ended.
    pub fn is_rollout(&self) -> bool {
        matches!(self, Self::RollingOut { .. } | Self::Stuck(..))
    }
}
