//! Keeps the cloud's configuration in ConfigMap `cloud-conf`, completed and checked (IO).
//!
//! [`crate::config`] computes the content, [`super::sync`] writes it.

use tracing::{info, warn};

use crate::{
    config::cloud_conf::{self, Inputs, Synced},
    controllers::{
        Pass,
        sync::{Desired, Sync},
        view::View,
    },
    error::chain,
};

/// The most warnings about one configuration that are logged.
const LOGGED_WARNINGS: usize = 20;

pub(super) struct CloudConfig {
    pub(super) sync: Sync,
    /// The lines last logged about the configuration.
    logged: Vec<String>,
}

impl CloudConfig {
    pub(super) fn new(sync: Sync) -> Self {
        Self { sync, logged: Vec::new() }
    }

    pub(super) async fn pass(&mut self, view: &mut View) -> Pass {
        let needs = view.cloud_config_references();
        if self.sync.is_outdated(view, &needs) {
            let desired = self.desire(view);
            self.sync.desire(desired, view);
        }
        self.sync.pass(view, &needs).await
    }

    fn desire(&mut self, view: &View) -> Desired {
        let facts = view.facts()?;
        facts.platform.as_ref().map_err(|error| chain(error))?;
        view.catalog.check().map_err(|refused| refused.to_string())?;
        let Some(settings) = view.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return Ok(Vec::new());
        };
        let inputs = Inputs {
            settings,
            facts,
            managed: cloud_conf::managed(settings).and_then(|managed| view.target.observer.named(&managed)),
            user: cloud_conf::user(settings, facts).and_then(|user| view.target.observer.named(user)),
        };
        let failed = |error| format!("failed to sync the cloud configuration: {}", chain(&error));
        let synced = cloud_conf::compute(&inputs).map_err(failed)?;
        self.log(&synced);
        Ok(synced.objects(&facts.namespace).map_err(|error| chain(&error))?)
    }

    /// Logs the source of the configuration, its changes and its warnings, each state once. No values.
    fn log(&mut self, synced: &Synced) {
        let from = synced.from.as_deref().unwrap_or("none: an empty one is completed");
        let mut lines = vec![format!("the cloud configuration is from {from}")];
        lines.extend(synced.changes.iter().map(|change| format!("{}: {}", change.key, change.rule)));
        let all = lines.iter().chain(&synced.warnings).cloned().collect();
        if self.logged == all {
            return;
        }
        for line in &lines {
            info!("{line}");
        }
        for warning in synced.warnings.iter().take(LOGGED_WARNINGS) {
            warn!("{warning}");
        }
        if let Some(more @ 1..) = synced.warnings.len().checked_sub(LOGGED_WARNINGS) {
            warn!("and {more} more of the like; `ccm-operator cloud-config` shows all of them");
        }
        self.logged = all;
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;
    use serde_json::json;

    use super::*;
    use crate::{
        controllers::{sync::tests, view},
        facts::Documents,
        object::Object,
        status::cluster_operator,
    };

    #[tokio::test]
    async fn the_published_copy_is_written_last() {
        let client = Client::new(Router::new(), "own");
        let infrastructure = json!({
            "spec": {
                "cloudConfig": {"name": "absent"},
                "platformSpec": {"vsphere": {"vcenters": [{"server": "one", "datacenters": ["dc"]}]}},
            },
            "status": {"platformStatus": {"type": "VSphere"}},
        });
        let gates = [json!({"version": "1", "enabled": [{"name": "VSphereMultiVCenterDay2"}]})];
        let documents = Documents {
            infrastructure: serde_json::from_value(infrastructure).unwrap(),
            feature_gate: serde_json::from_value(json!({"status": {"featureGates": gates}})).unwrap(),
            ..Documents::default()
        };
        let view = view::tests::view(client.clone(), documents, Some("1"));
        let mut controller = CloudConfig::new(tests::sync(&cluster_operator::CLOUD_CONFIG, client));
        let objects = controller.desire(&view).unwrap();
        let names: Vec<_> = objects.iter().map(Object::name).collect();
        assert_eq!(names, [cloud_conf::TARGET_NAME, cloud_conf::MANAGED_NAME]);
    }
}
