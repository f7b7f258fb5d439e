//! From the live object to the planned one.
//!
//! What is done to an object decides one ladder ([`steps`]). [`write`] performs it, [`dry_run`] asks the API server about it:
//! what `diff` shows and what the operator does cannot differ.

pub mod change;
pub mod diff;
pub mod dry_run;
pub mod inventory;
pub mod ownership;
pub mod steps;
pub mod write;
