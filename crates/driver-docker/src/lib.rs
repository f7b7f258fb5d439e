//! The driver of Docker Engines: instances are containers. Each Engine is a region with one zone, and the account is the Engine
//! itself, by its own id.
//!
//! An Engine takes an id, a name and the beginning of an id for the same thing. This driver only ever gives it whole ids, and
//! compares the id of the answer. Of 64 digits it looks for the id first, and then for the name: between that comparison and a
//! change, a container of that name could take the place of one that is gone.

#![forbid(unsafe_code)]

use ccm_base::error::brief;

mod hosts;

mod tls;

mod tar;

mod client;

mod driver;

mod instances;

mod inventory;

mod metrics;

mod run_command;

mod driver_type;

#[cfg(test)]
mod stand_in;

pub use driver_type::Docker;
