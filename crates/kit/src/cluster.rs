//! The API server: connection, requests and watches (IO).

pub mod access_review;
pub mod client;
mod connections;
mod env_file;
pub mod events;
pub mod kubeconfig;
pub mod read;
pub mod request;
pub mod seen;
pub mod watch;
pub mod watches;
