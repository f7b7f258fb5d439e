//! The parts of a process with controllers: a client and watches, leases, health, metrics, logs and changes of files. They are
//! independent of any cloud and product.

#![forbid(unsafe_code)]

use ccm_base::{error, files, grace, object, text};

pub mod cluster;

pub mod process;
