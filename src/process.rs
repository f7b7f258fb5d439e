//! The parts of any controller process (IO): leases, health, metrics, logs. Knows no cloud.

pub mod http;
pub mod lease;
pub mod logs;
pub mod metrics;
