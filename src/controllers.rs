//! Thin loops: a trigger, then observe → plan → act → report (IO).

pub mod operator;
