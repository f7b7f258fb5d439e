//! The one table of drivers for all programs, and what chooses and configures one.
//!
//! `built_in.rs` is the only list of built-in drivers. At most one external driver joins them: the one that the command line or the
//! environment names.

#![forbid(unsafe_code)]

use ccm_base::{error, files, text, version};

mod built_in;
mod drivers;
mod external;
mod values;

pub use built_in::built_in;
pub use drivers::Drivers;
pub use external::DriverFlags;
pub use values::{account_settings, from_environment, read_accounts, resolve, settings};
