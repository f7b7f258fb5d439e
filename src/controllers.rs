//! Thin loops: a trigger, then observe → plan → act → report (IO).

mod backoff;
mod images_file;
pub mod operator;
