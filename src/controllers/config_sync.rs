//! The config-sync controllers, which run under one lease, and the one writer of both results to the status (IO).

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use kube::Client;

use crate::{
    controllers::{
        Pass, backoff::Backoff, cloud_conf::CloudConfig, events::Events, now_in_seconds, sync::Sync,
        trusted_ca::TrustedCa, view::View,
    },
    process::{leadership::Authority, metrics::Metrics},
    status::cluster_operator::{CLOUD_CONFIG, TRUSTED_CA},
};

/// The field manager of both controllers' conditions.
const FIELD_MANAGER: &str = "ccm-operator-config-sync";

pub(super) struct ConfigSync {
    cloud_config: CloudConfig,
    trusted_ca: TrustedCa,
    authority: Authority,
    reporting: Backoff,
}

impl ConfigSync {
    /// `system_bundle` is the file with the certificates that the system trusts.
    pub(super) fn new(
        authority: Authority,
        system_bundle: PathBuf,
        client: &Client,
        events: &Events,
        metrics: Metrics,
    ) -> Self {
        let sync = |controller| Sync::new(controller, authority.clone(), client.clone(), events.clone());
        let cloud_config = CloudConfig::new(sync(&CLOUD_CONFIG));
        let trusted_ca = TrustedCa::new(sync(&TRUSTED_CA), system_bundle, events.clone(), metrics);
        Self { cloud_config, trusted_ca, authority, reporting: Backoff::default() }
    }

    /// The file with the certificates that the system trusts.
    pub(super) fn system_bundle(&self) -> &Path {
        &self.trusted_ca.system_bundle
    }

    /// Reads the system's certificates if the file has changed; returns whether it has.
    pub(super) fn read_system_bundle(&mut self) -> bool {
        self.trusted_ca.read_system_bundle()
    }

    /// A pass of each controller: the certificates may be part of the configuration.
    pub(super) async fn pass(&mut self, view: &mut View) -> [Pass; 2] {
        let cloud_config = self.cloud_config.pass(view).await;
        view.refresh();
        let mut trusted_ca = self.trusted_ca.pass(view).await;
        if self.authority.write_budget().is_some() {
            trusted_ca.retrying.extend(self.report(view).await.err());
            trusted_ca.due.extend([self.reporting.due(), view.status_due()].into_iter().flatten());
        }
        [cloud_config, trusted_ca]
    }

    /// Reports the results, unless the status has them already.
    async fn report(&mut self, view: &mut View) -> Result<(), String> {
        let results = [self.cloud_config.sync.result(), self.trusted_ca.sync.result()];
        // Nothing waits for one good result, so that both become one write. An error is reported at once.
        let is_early = results.iter().any(|(_, result)| result.is_none())
            && results.iter().all(|(_, result)| !matches!(result, Some(Err(_))));
        if is_early || !view.observer.knows_status_object() {
            return Ok(());
        }
        self.reporting.ready(Instant::now())?;
        let next = view.status().next_of(&results, &now_in_seconds().to_string());
        view.report((FIELD_MANAGER, &next), false, &self.authority, &mut self.reporting).await
    }
}
