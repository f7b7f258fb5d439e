//! The version of this program (pure).

/// The version of the package, and of the embedded providers.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from; `None` if the build did not set it.
pub const COMMIT: Option<&str> = option_env!("CCM_OPERATOR_COMMIT");
