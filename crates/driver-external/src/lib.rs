//! Drivers in programs of their own, in any language: one executable file, one JSON request on its standard input, one JSON answer
//! on its standard output. docs/drivers/protocol.md has the protocol for people.
//!
//! - The bytes that were verified are those that run: a sealed file in memory.
//! - A driver is started by a supervisor, which is this program once more. It ends all that the driver has started.
//! - Only a whole answer of the right account, about what was asked for, says that something is gone.

#![forbid(unsafe_code)]

mod answer;
mod caller;
mod driver;
mod external;
mod frame;
mod pin;
mod problem;
mod program;
mod protocol;
mod run;
mod supervisor;
mod tree;

pub use external::External;
pub use pin::Pin;
pub use problem::Problem;
pub use program::Program;
pub use protocol::VERSION as PROTOCOL_VERSION;
pub use supervisor::supervise;
