//! What a process with controllers needs: a client and watches, leases, health, metrics, logs and changes of files. It
//! knows no cloud and no product.

#![forbid(unsafe_code)]

use ccm_base::{error, files, grace, object, text};

pub mod cluster;

pub mod process;
