//! The state of a cluster: rollouts, the ClusterOperator, and the screen of the command `status` (pure, except for `write`).

pub mod ccm;
pub mod cluster_operator;
pub mod outcome;
pub mod rollout;
pub mod screen;
pub mod trial;
pub mod write;
