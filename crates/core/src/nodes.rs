//! Nodes, and the reasons why a cloud-controller-manager does not serve them (pure).
//!
//! The API shows that a node waits, but almost never why: k8s.io/cloud-provider emits no Event when an attempt fails. So a diagnosis reads
//! the sources in order of cost: the nodes, the objects of the cloud-controller-manager, its lease, Events, permissions, and finally its
//! log. The operator's layer `evidence` reads them from a cluster; this layer only diagnoses them. The expected behavior and messages are
//! those of k8s.io/cloud-provider v0.36.2.

pub mod cause;
pub mod diagnose;
pub mod diagnosis;
pub mod evidence;
pub mod guard;
pub mod identity;
pub mod log;
pub mod node;
pub mod observed;
pub mod pages;
pub mod placement;
pub mod reason;
pub mod waiting;

use k8s_openapi::jiff::SignedDuration;

/// The maximum clock skew between two machines.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);
