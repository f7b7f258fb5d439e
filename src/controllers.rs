//! Thin loops: a trigger, then observe → plan → act → report (IO).

mod applying;
mod backoff;
mod images_file;
pub mod operator;
