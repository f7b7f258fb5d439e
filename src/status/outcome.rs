//! The outcome of acting on a plan (pure): the same for every status that reports it.

use crate::{apply::settled::Settled, object::Key};

/// What acting on a plan has come to for one that is reported to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acted {
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

impl Acted {
    /// What is wrong with it, if so: also a rollout that takes long, while nodes may hold it up.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Failed { error, .. } | Self::Stuck(_, error) => Some(error.clone()),
            Self::RollingOut { rollouts, nodes, .. } if !nodes.is_empty() => {
                Some(format!("the rollout of {} does not end{nodes}", names(rollouts)))
            }
            Self::RollingOut { .. } | Self::Applied(_) => None,
        }
    }

    /// Whether it is about a rollout that has not ended.
    pub fn is_rollout(&self) -> bool {
        matches!(self, Self::RollingOut { .. } | Self::Stuck(..))
    }
}
