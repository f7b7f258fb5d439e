//! Our cloud-controller-manager: beside k8s.io/cloud-provider on the same cloud, in two replicas, and with drivers that lie.

mod aws;
mod cases;
mod cloud;
mod cluster;
mod compare;
mod differences;
mod guard;
mod liars;
mod program;
mod replicas;
mod scenario;

pub(crate) use program::{NAME, ours};
