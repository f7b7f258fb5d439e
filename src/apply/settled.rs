//! The proof that the cluster is as planned (pure).

/// The proof that objects are as planned: each has come to the end of its steps without an error, or is left alone as its
/// administrator wants. Only an executor that has worked through all of them gives one, so that nothing else can be reported as done:
///
/// ```compile_fail,E0423
/// use ccm_operator::{apply::settled::Settled, status::outcome::Outcome};
///
/// let never_applied = Outcome::Applied(Settled(()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled(());

impl Settled {
    /// Of a pass that has worked through all objects. `controllers/executor.rs` is the only caller (`tests/it/structure.rs`).
    pub(crate) fn after_pass() -> Self {
        Self(())
    }
}
