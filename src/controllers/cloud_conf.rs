//! Keeps ConfigMap `cloud-conf` as the cloud's configuration, completed and checked (IO).
//!
//! Thin: what it is to hold is [`crate::config`]'s, how it is written [`super::sync`]'s.

use tracing::{info, warn};

use crate::error::chain;
use crate::{
    config::cloud_conf::{self, Inputs, Synced},
    controllers::events::Events,
    status::cluster_operator,
};
use crate::{
    controllers::{
        Round,
        sync::{Desired, Syncer},
        view::View,
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
    pub(super) async fn pass(&mut self, view: &mut View) -> Round {
        let needs = view.cloud_config_references();
        if self.revision != view.revision() || matches!(self.desired, Desired::Waiting(_)) {
            let desired = if view.observer.knows_documents() {
                let pending = view.observer.pending_named(&needs);
                if pending.is_empty() { self.desire(view) } else { Desired::Waiting(pending) }
            } else {
                Desired::Waiting(view.observer.pending(&needs))
            };
            if self.desired != desired {
                self.desired = desired;
                self.syncer.replanned();
            }
            self.revision = view.revision();
        }
        self.syncer.pass(view, &self.desired, &needs).await
    }

    fn desire(&mut self, view: &View) -> Desired {
        let failed = |error| Desired::Failed { error, is_terminal: true };
        let facts = match view.facts() {
            Ok(facts) => facts,
            Err(error) => return failed(error),
        };
        if let Err(error) = &facts.platform {
            return failed(chain(error));
        }
        let Some(settings) = view.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return Desired::Objects(Vec::new());
        };
        let inputs = Inputs {
            settings,
            facts,
            managed: cloud_conf::managed(settings).and_then(|managed| view.observer.named(&managed)),
            user: cloud_conf::user(settings, facts).and_then(|user| view.observer.named(user)),
        };
        match cloud_conf::sync(&inputs) {
            Err(error) => failed(format!("failed to sync the cloud configuration: {}", chain(&error))),
            Ok(synced) => {
                self.log(&synced);
                match synced.objects(&facts.namespace) {
                    Ok(objects) => Desired::Objects(objects),
                    Err(error) => failed(chain(&error)),
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
        facts::Documents,
        process::{lease::Leadership, metrics::Metrics},
    };

    #[tokio::test]
    async fn what_is_published_comes_after_what_the_cluster_needs() {
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
        let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
        let events = Events::start(client, Metrics::default());
        let mut controller = CloudConfig::new(Authority { leadership, shutdown }, events);
        let desired = controller.desire(&view);
        let Desired::Objects(objects) = desired else { panic!("{desired:?}") };
        let names: Vec<_> = objects.iter().map(Object::name).collect();
        assert_eq!(names, [cloud_conf::TARGET_NAME, cloud_conf::MANAGED_NAME]);
    }
}
