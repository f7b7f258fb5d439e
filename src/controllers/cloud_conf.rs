//! Keeps ConfigMap `cloud-conf` as the cloud's configuration, completed and checked (IO).
//!
//! Thin: what it is to hold is [`crate::config`]'s, how it is written [`super::syncer`]'s.

use tracing::{info, warn};

use crate::{
    config::{
        Context,
        cloud_conf::{self, Inputs, Synced},
    },
    controllers::events::Events,
    status::cluster_operator,
};
use crate::{
    controllers::{
        Round,
        sync::{Desired, Syncer},
        view::Cluster,
    },
    process::lease::Authority,
};

/// How many warnings of one configuration are logged.
const LOGGED_WARNINGS: usize = 20;

/// The controller of the cloud's configuration.
pub(super) struct CloudConfig {
    syncer: Syncer,
    desired: Desired,
    /// The revision of the cluster that this is for.
    revision: u64,
    /// What was last said of the configuration.
    logged: Vec<String>,
}

impl CloudConfig {
    /// One that has seen nothing yet.
    pub(super) fn new(authority: Authority, events: Events) -> Self {
        let syncer = Syncer::new(&cluster_operator::CLOUD_CONFIG, authority, events);
        Self { syncer, desired: Desired::Waiting(Vec::new()), revision: 0, logged: Vec::new() }
    }

    /// One pass.
    pub(super) async fn pass(&mut self, cluster: &mut Cluster) -> Round {
        let needs = cluster.cloud_config_references();
        if self.revision != cluster.revision() || matches!(self.desired, Desired::Waiting(_)) {
            let desired = if cluster.observer.knows_documents() {
                let pending = cluster.observer.pending_named(&needs);
                if pending.is_empty() { self.desire(cluster) } else { Desired::Waiting(pending) }
            } else {
                Desired::Waiting(cluster.observer.pending(&needs))
            };
            if self.desired != desired {
                self.desired = desired;
                self.syncer.replanned();
            }
            self.revision = cluster.revision();
        }
        self.syncer.pass(cluster, &self.desired, &needs).await
    }

    fn desire(&mut self, cluster: &Cluster) -> Desired {
        let failed = |error| Desired::Failed { error, is_terminal: true };
        if let Some(error) = &cluster.unreadable {
            return failed(error.clone());
        }
        if let Err(error) = cluster.sources.platform() {
            return failed(crate::error::chain(&error));
        }
        let Some(settings) = cluster.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return Desired::Objects(Vec::new());
        };
        let named = cluster.sources.infrastructure.as_ref().map(|found| found.spec.cloud_config.clone());
        let named = named.unwrap_or_default();
        let find = |reference: Option<_>| reference.and_then(|reference| cluster.observer.named(&reference));
        let inputs = Inputs {
            settings,
            named: &named,
            managed: find(cloud_conf::managed(settings)),
            user: find(cloud_conf::user(settings, &named)),
            context: &Context::gather(&cluster.sources),
        };
        match cloud_conf::sync(&inputs) {
            Err(error) => failed(format!("failed to sync the cloud configuration: {}", crate::error::chain(&error))),
            Ok(synced) => {
                self.log(&synced);
                match synced.objects(&cluster.settings.namespace) {
                    Ok(objects) => Desired::Objects(objects),
                    Err(error) => failed(crate::error::chain(&error)),
                }
            }
        }
    }

    /// Says once where the configuration is from, what becomes of it, and what of it has no effect. No values.
    fn log(&mut self, synced: &Synced) {
        let from = synced.from.as_deref().unwrap_or("none: an empty one is completed");
        let mut lines = vec![format!("the cloud configuration is from {from}")];
        lines.extend(synced.changes.iter().map(|change| format!("{}: {}", change.key, change.rule)));
        let said = lines.iter().chain(&synced.warnings).cloned().collect();
        if self.logged != said {
            for line in &lines {
                info!("{line}");
            }
            for warning in synced.warnings.iter().take(LOGGED_WARNINGS) {
                warn!("{warning}");
            }
            if let Some(more) = synced.warnings.len().checked_sub(LOGGED_WARNINGS).filter(|more| *more > 0) {
                warn!("and {more} more of the like; `ccm-operator cloud-config` shows all of them");
            }
            self.logged = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::object::Object;
    use crate::{
        controllers::view,
        process::{lease::Leadership, metrics::Metrics},
    };

    #[tokio::test]
    async fn what_is_published_comes_after_what_the_cluster_needs() {
        let client = Client::new(Router::new(), "own");
        let mut cluster = view::tests::unseen(client.clone());
        cluster.sources.infrastructure = serde_json::from_value(json!({
            "spec": {
                "cloudConfig": {"name": "absent"},
                "platformSpec": {"vsphere": {"vcenters": [{"server": "one", "datacenters": ["dc"]}]}},
            },
            "status": {"platformStatus": {"type": "VSphere"}},
        }))
        .unwrap();
        let gates = [json!({"version": "1", "enabled": [{"name": "VSphereMultiVCenterDay2"}]})];
        cluster.sources.feature_gate = serde_json::from_value(json!({"status": {"featureGates": gates}})).unwrap();
        cluster.sources.release_version = Some("1".into());
        let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
        let events = Events::start(client, Metrics::default());
        let mut controller = CloudConfig::new(Authority { leadership, shutdown }, events);
        let desired = controller.desire(&cluster);
        let Desired::Objects(objects) = desired else { panic!("{desired:?}") };
        let names: Vec<_> = objects.iter().map(Object::name).collect();
        assert_eq!(names, [cloud_conf::TARGET_NAME, cloud_conf::MANAGED_NAME]);
    }
}
