//! Keeps ConfigMap `cloud-conf` as the cloud's configuration, completed and checked (IO).
//!
//! Thin: what it is to hold is [`crate::cloud_config`]'s, how it is written [`super::syncer`]'s.

use tracing::{info, warn};

use super::{
    Round,
    authority::Authority,
    cluster::Cluster,
    syncer::{Desired, Syncer},
};
use crate::{
    cloud_config::{
        Context,
        sync::{self, Inputs, Synced},
    },
    events::Events,
    status,
};

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
        let syncer = Syncer::new(&status::CLOUD_CONFIG, authority, events);
        Self { syncer, desired: Desired::Waiting(Vec::new()), revision: 0, logged: Vec::new() }
    }

    /// One pass.
    pub(super) async fn pass(&mut self, cluster: &mut Cluster) -> Round {
        let needs = cluster.cloud_config_references();
        if self.revision != cluster.revision() || matches!(self.desired, Desired::Waiting(_)) {
            self.desired = if cluster.observer.knows_documents() {
                let pending = cluster.observer.pending_named(&needs);
                if pending.is_empty() { self.desire(cluster) } else { Desired::Waiting(pending) }
            } else {
                Desired::Waiting(cluster.observer.pending(&needs))
            };
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
            return failed(crate::chain(&error));
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
            managed: find(sync::managed(settings)),
            user: find(sync::user(settings, &named)),
            context: &Context::gather(&cluster.sources),
        };
        match sync::sync(&inputs) {
            Err(error) => failed(format!("failed to sync the cloud configuration: {}", crate::chain(&error))),
            Ok(synced) => {
                self.log(&synced);
                match synced.objects(&cluster.settings.namespace) {
                    Ok(objects) => Desired::Objects(objects),
                    Err(error) => failed(crate::chain(&error)),
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
            for warning in &synced.warnings {
                warn!("{warning}");
            }
            self.logged = said;
        }
    }
}
