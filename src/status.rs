//! The state of a cluster: rollouts, the ClusterOperator, and the screen of the `status` command (pure, except for `write`).

pub(crate) mod ccm;
pub mod cluster_operator;
pub mod outcome;
pub(crate) mod rollout;
pub(crate) mod screen;
pub(crate) mod trial;
pub(crate) mod write;
