//! Turns live objects into the planned ones (pure, except for `write` and `dry_run`).
//!
//! [`steps`] decides the requests for an object. [`mod@write`] sends them, and [`dry_run`] sends them as dry runs. So
//! `diff` and the operator cannot differ.

pub mod change;
pub mod diff;
pub mod dry_run;
pub mod inventory;
pub mod ownership;
pub mod settled;
pub mod steps;
pub mod write;
