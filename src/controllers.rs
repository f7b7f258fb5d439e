//! Thin loops: a trigger, then observe → plan → act → report (IO).

mod backoff;
pub mod dry_run;
mod images_file;
pub mod operator;
