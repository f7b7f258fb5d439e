//! From the live object to the planned one (pure, except for `write` and `dry_run`).
//!
//! One ladder ([`steps`]) decides the requests for an object. [`mod@write`] performs them, [`dry_run`] asks the API server about
//! them, so that `diff` and the operator cannot differ.

pub mod change;
pub mod diff;
pub mod dry_run;
pub mod inventory;
pub mod ownership;
pub mod settled;
pub mod steps;
pub mod write;
