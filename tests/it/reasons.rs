//! Reasons why nodes wait, or are about to go: each is produced with a real cloud-controller-manager, found by the command `nodes`,
//! and cured. What was found is printed once all tests have ended: `make test-reasons`.

mod aws;
mod external;
mod fixture;
mod front;
mod incident;
mod kubelet;
mod migration;
mod protocol;
mod scheduler;
mod vsphere;

/// The wait limit of what counts only once it has lasted, or is looked at from time to time.
const LONG: std::time::Duration = std::time::Duration::from_secs(240);
