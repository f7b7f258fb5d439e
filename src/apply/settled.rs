//! The proof that the cluster is as planned (pure).

/// The proof that objects are as planned: each has completed its steps without an error, or an administrator has excluded it from
/// changes. Only an executor creates a proof, after it has processed all objects, so that nothing else can be reported as done:
///
/// ```compile_fail,E0423
/// use ccm_operator::{apply::settled::Settled, status::outcome::Outcome};
///
/// let never_applied = Outcome::Applied(Settled(()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled(());

impl Settled {
    /// Returns the proof for a pass that has processed all objects. `controllers/executor.rs` is the only caller (`tests/it/structure.rs`).
    pub(crate) fn after_pass() -> Self {
        Self(())
    }
}
