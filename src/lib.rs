//! A cloud-controller-manager operator: what the binary `ccm-operator` is made of.
//!
//! Data flows one way: observe (IO) → [`facts`] → [`plan`] (pure) → [`render`] to files or [`apply`] to a cluster (IO)
//! → [`rollout`] and [`status`] (pure) → report. ARCHITECTURE.md has the picture and the rules.

#![forbid(unsafe_code)]

pub mod apply;
pub mod azure_credentials;
pub mod bundle;
pub mod catalog;
pub mod cli;
pub mod client;
pub mod cloud_config;
pub mod config_hash;
pub mod controllers;
pub mod diff;
pub mod embedded;
pub mod events;
pub mod facts;
pub mod inspect;
pub mod lease;
pub mod mask;
pub mod metrics;
pub mod object;
pub mod observe;
pub mod openshift;
pub mod output;
pub mod payload;
pub mod plan;
pub mod provider;
pub mod reader;
pub mod render;
pub mod report;
pub mod rollout;
pub mod server;
pub mod status;
pub mod telemetry;
pub mod trust_bundle;
pub mod verify;
pub mod watch;
pub mod yaml;

use std::time::Duration;

/// An error with its causes in one line, each said once.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let words = error.downcast_ref().map_or_else(|| error.to_string(), words);
        // Some libraries repeat the cause in the message.
        if !text.contains(&words) {
            text = if text.is_empty() { words } else { format!("{text}: {words}") };
        }
        next = error.source();
        if let Some(kube::Error::Api(_)) = error.downcast_ref() {
            break;
        }
    }
    text.replace('\n', " ")
}

/// How long the API server has asked to be left alone, where it has refused something and said so; else no time.
pub(crate) fn retry_after(error: &(dyn std::error::Error + 'static)) -> Duration {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let details = causes.filter_map(|cause| match cause.downcast_ref()? {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    });
    Duration::from_secs(details.map(|details| u64::from(details.retry_after_seconds)).max().unwrap_or_default())
}

/// What an error of the client says: the API server's own words stand for its answers.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
