//! The parts of any controller process (IO): leases, health, metrics, logs. They are independent of any cloud and product.

pub mod changes;
pub mod dumps;
pub mod health;
pub mod http;
pub mod identity;
pub mod leadership;
pub mod lease;
pub mod logs;
pub mod peer;
pub mod review;
pub mod serving;
pub mod signals;
