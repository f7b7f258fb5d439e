//! The config-sync controllers, which share one lease, and the writer of both results to the status (IO).

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tracing::{info, warn};

use crate::{
    config::cloud_conf::{self, Inputs, Synced},
    controllers::{
        Pass, now_in_seconds,
        status_writer::StatusWriter,
        sync::{ConfigMapSync, DesiredConfigMaps, Source},
        target::Target,
        trusted_ca::TrustedCa,
        view::View,
    },
    error::chain,
    process::leadership::Authority,
    status::cluster_operator::{CLOUD_CONFIG, SyncController, SyncResult, TRUSTED_CA},
};

/// The time for which the first good result waits for the other one, so that one write reports both.
const TOGETHER: Duration = Duration::from_secs(5);

/// The field manager of both controllers' conditions.
const FIELD_MANAGER: &str = "ccm-operator-config-sync";

/// The maximum number of logged warnings about one configuration.
const LOGGED_WARNINGS: usize = 20;

pub(super) struct ConfigSync {
    cloud_config: ConfigMapSync<CloudConfig>,
    trusted_ca: ConfigMapSync<TrustedCa>,
    authority: Authority,
    writer: StatusWriter,
    first_result: Option<Instant>,
}

impl ConfigSync {
    /// `system_bundle` is the file with the certificates that the system trusts.
    pub(super) fn new(authority: Authority, system_bundle: PathBuf, target: &Target) -> Self {
        let with = || (authority.clone(), target.events.clone());
        let cloud_config = CloudConfig::default();
        let cloud_config = ConfigMapSync::new(cloud_config, View::cloud_config_references, &CLOUD_CONFIG, with());
        let trusted_ca = TrustedCa::new(system_bundle);
        let trusted_ca = ConfigMapSync::new(trusted_ca, View::trusted_ca_references, &TRUSTED_CA, with());
        Self { cloud_config, trusted_ca, authority, writer: StatusWriter::default(), first_result: None }
    }

    pub(super) fn system_bundle(&self) -> &Path {
        &self.trusted_ca.source.system_bundle
    }

    pub(super) fn read_system_bundle(&mut self) -> bool {
        let has_changed = self.trusted_ca.source.read_system_bundle();
        self.trusted_ca.revision.take_if(|_| has_changed);
        has_changed
    }

    /// Runs a pass of each controller. The configuration comes first, because the certificates may be part of it.
    pub(super) async fn pass(&mut self, view: &mut View) -> [Pass; 2] {
        let cloud_config = self.cloud_config.pass(view).await;
        let mut trusted_ca = self.trusted_ca.pass(view).await;
        if self.authority.write_budget().is_some() {
            trusted_ca.retrying.extend(self.report(view).await.err());
            let together = self.first_result.map(|first| first + TOGETHER);
            trusted_ca.due.extend(self.writer.due().chain(together));
        }
        [cloud_config, trusted_ca]
    }

    /// Reports the results, unless the status has them already.
    async fn report(&mut self, view: &mut View) -> Result<(), String> {
        let results = [self.cloud_config.result(), self.trusted_ca.result()];
        if results.iter().any(|(_, result)| result.is_some()) {
            self.first_result.get_or_insert_with(Instant::now);
        }
        let status = view.status();
        // A new error and the end of an error are reported at once.
        let is_news = |(controller, result): &(&SyncController, Option<&SyncResult>)| match result {
            Some(result) => result.is_err() || status.problem_of(controller).is_some(),
            None => false,
        };
        let is_early = self.first_result.is_none_or(|first| first.elapsed() < TOGETHER)
            && results.iter().any(|(_, result)| result.is_none())
            && !results.iter().any(is_news);
        if is_early || !view.target.observer.has_seen_status_object() {
            return Ok(());
        }
        let next = status.next_of(&results, &now_in_seconds().to_string());
        self.writer.write(view, (FIELD_MANAGER, &next), false, &self.authority).await
    }
}

/// Keeps the cloud's configuration in ConfigMap `cloud-conf`, completed and checked: [`crate::config`] computes the content.
#[derive(Default)]
struct CloudConfig {
    logged: Vec<String>,
}

impl Source for CloudConfig {
    fn desire(&mut self, view: &View) -> DesiredConfigMaps {
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
}

impl CloudConfig {
    /// Logs the source of the configuration, its changes and its warnings, once for each state. Values are not logged.
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
    use crate::{controllers::view, facts::Documents, object::Object};

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
        let view = view::tests::view(client, documents, Some("1"));
        let objects = CloudConfig::default().desire(&view).unwrap();
        let names: Vec<_> = objects.iter().map(Object::name).collect();
        assert_eq!(names, [cloud_conf::TARGET_NAME, cloud_conf::MANAGED_NAME]);
    }
}
