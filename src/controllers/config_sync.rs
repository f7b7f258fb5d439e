//! The config-sync controllers, which share one lease, and the writer of both results to the status (IO).

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    controllers::{
        Pass, backoff::Backoff, cloud_conf::CloudConfig, now_in_seconds, sync::Sync, target::Target,
        trusted_ca::TrustedCa, view::View,
    },
    process::leadership::Authority,
    status::cluster_operator::{CLOUD_CONFIG, Controller, SyncResult, TRUSTED_CA},
};

/// How long a first good result waits for the other one, so that both become one write.
const TOGETHER: Duration = Duration::from_secs(5);

/// The field manager of both controllers' conditions.
const FIELD_MANAGER: &str = "ccm-operator-config-sync";

pub(super) struct ConfigSync {
    cloud_config: CloudConfig,
    trusted_ca: TrustedCa,
    authority: Authority,
    reporting: Backoff,
    /// When the first result was there.
    first_result: Option<Instant>,
}

impl ConfigSync {
    /// `system_bundle` is the file with the certificates that the system trusts.
    pub(super) fn new(authority: Authority, system_bundle: PathBuf, target: &Target) -> Self {
        let Target { events, metrics, .. } = target;
        let sync = |controller| Sync::new(controller, authority.clone(), events.clone());
        let cloud_config = CloudConfig::new(sync(&CLOUD_CONFIG));
        let trusted_ca = TrustedCa::new(sync(&TRUSTED_CA), system_bundle, events.clone(), metrics.clone());
        Self { cloud_config, trusted_ca, authority, reporting: Backoff::default(), first_result: None }
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
            let together = self.first_result.map(|first| first + TOGETHER);
            trusted_ca.due.extend([self.reporting.due(), view.status_due(), together].into_iter().flatten());
        }
        [cloud_config, trusted_ca]
    }

    /// Reports the results, unless the status has them already.
    async fn report(&mut self, view: &mut View) -> Result<(), String> {
        let results = [self.cloud_config.sync.result(), self.trusted_ca.sync.result()];
        if results.iter().any(|(_, result)| result.is_some()) {
            self.first_result.get_or_insert_with(Instant::now);
        }
        let status = view.status();
        // An error is reported at once, and so is its end.
        let is_news = |(controller, result): &(&Controller, Option<&SyncResult>)| match result {
            Some(result) => result.is_err() || status.problem_of(controller).is_some(),
            None => false,
        };
        let is_early = self.first_result.is_none_or(|first| first.elapsed() < TOGETHER)
            && results.iter().any(|(_, result)| result.is_none())
            && !results.iter().any(is_news);
        if is_early || !view.target.observer.knows_status_object() {
            return Ok(());
        }
        self.reporting.ready(Instant::now())?;
        let next = status.next_of(&results, &now_in_seconds().to_string());
        view.report((FIELD_MANAGER, &next), false, &self.authority, &mut self.reporting).await
    }
}
