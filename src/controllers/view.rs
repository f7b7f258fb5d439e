//! What the controllers of a process see of the cluster, once for all of them (IO).
//!
//! Owns the watches, the documents taken from them, and the one way to the ClusterOperator. It decides nothing.

use std::{collections::BTreeSet, time::Instant};

use kube::Client;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    config::cloud_conf,
    controllers::observe::{Observer, OptionalDocuments},
    facts::{Sources, images::Images, tls::TlsFlags},
    object::reference::Reference,
    plan::Plan,
    provider::{
        Phase, Provider,
        catalog::{Catalog, Selection},
    },
    status::cluster_operator::Status,
};
use crate::{controllers::backoff::Backoff, process::lease::Authority};

/// What a process is told of the cluster when it is started.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The namespace to be managed.
    pub namespace: String,
    /// The namespace that the process runs in.
    pub own_namespace: String,
    /// The version that the operator brings.
    pub release_version: Option<String>,
    /// TLS settings that win over the cluster's.
    pub tls_flags: TlsFlags,
    /// Whether the operator runs in this process.
    pub with_operator: bool,
    /// Whether the config-sync controllers do.
    pub with_config_sync: bool,
}

/// The cluster, as this process sees it.
pub struct Cluster {
    pub(super) client: Client,
    pub(super) catalog: Catalog,
    pub(super) observer: Observer,
    pub(super) sources: Sources,
    pub(super) settings: ClusterSettings,
    /// What is wrong with a document that was seen.
    pub(super) unreadable: Option<String>,
    /// What the pods refer to that are planned.
    pub(super) references: BTreeSet<Reference>,
    /// What the ClusterOperator said last: deleted and made again, it is to say what it said before.
    said: Status,
    /// Told whether the control plane is one node, once that is known.
    single_replica: watch::Sender<Option<bool>>,
    /// Grows whenever a document or a named object may have changed.
    revision: u64,
}

impl Cluster {
    /// A cluster of which nothing was seen yet; `set_id` marks our objects.
    pub fn new(
        client: Client,
        catalog: Catalog,
        settings: ClusterSettings,
        set_id: String,
        single_replica: watch::Sender<Option<bool>>,
    ) -> Self {
        let optional = OptionalDocuments {
            cluster_version: Sources::needs_cluster_version(settings.release_version.as_deref()),
            network: settings.with_config_sync,
        };
        let mut sources = Sources::new(&settings.namespace, Ok(Images::default()));
        sources.release_version.clone_from(&settings.release_version);
        sources.tls_flags = settings.tls_flags.clone();
        let mut observer = Observer::new(client.clone(), set_id, optional);
        if settings.with_operator {
            observer.watch_inventory(&settings.own_namespace);
        }
        Self {
            observer,
            client,
            catalog,
            sources,
            settings,
            unreadable: None,
            references: BTreeSet::new(),
            said: Status::default(),
            single_replica,
            revision: 0,
        }
    }

    /// Takes over what the watches have delivered.
    pub(super) fn refresh(&mut self) {
        self.said = self.status();
        if !self.observer.knows_documents() {
            return;
        }
        let documents = self.observer.update(&mut self.sources);
        if documents != Ok(false) {
            self.unreadable = documents.err();
            let single_replica = self.sources.is_single_replica();
            self.single_replica.send_if_modified(|known| known.replace(single_replica) != Some(single_replica));
            self.follow();
            self.revision += 1;
        }
        if self.observer.take_named_changed() {
            self.sources.digests = Some(self.observer.digests(&self.references));
            self.revision += 1;
        }
    }

    /// Grows whenever a document or a named object may have changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether all has been seen that a plan is made of.
    pub(super) fn knows_inputs(&self) -> bool {
        self.observer.knows_documents() && self.observer.pending_named(&self.references).is_empty()
    }

    /// The plan for what was seen, or what is wrong with it.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        match &self.unreadable {
            Some(error) => Err(error.clone()),
            None => {
                Plan::new(&self.catalog, &self.sources, Phase::Cluster).map_err(|error| crate::error::chain(&error))
            }
        }
    }

    /// The provider that serves the cluster, if one does; `None` also while the platform is not known.
    pub(super) fn provider(&self) -> Option<&Provider> {
        match self.catalog.select(&self.sources) {
            Ok(Selection::Provider(provider)) => Some(provider),
            Ok(Selection::Nothing(_)) | Err(_) => None,
        }
    }

    /// What the ClusterOperator says, and said before it was deleted.
    pub(super) fn status(&self) -> Status {
        self.observer.cluster_operator().map(Status::of).unwrap_or_default().completed(&self.said)
    }

    /// Makes the ClusterOperator say what a field manager has to say; a failure is logged once and noted in `reporting`.
    pub(super) async fn report(
        &mut self,
        writer: (&str, &Status),
        is_well: bool,
        authority: &Authority,
        reporting: &mut Backoff,
    ) -> Result<(), String> {
        let live = self.observer.cluster_operator();
        match crate::status::write::write(&self.client, live, writer, is_well, || authority.write_budget()).await {
            Ok(written) => {
                *reporting = Backoff::default();
                if let Some(written) = written {
                    self.observer.put_cluster_operator(written);
                    self.said = self.status();
                }
                Ok(())
            }
            Err(error) => {
                let text = crate::error::chain(&error);
                if reporting.failed(&text, error.retry_after(), Instant::now()) {
                    warn!("{text}; trying again");
                }
                Err(text)
            }
        }
    }

    /// The ConfigMap that cloud-controller-managers read their configuration from.
    pub(super) fn cloud_config(&self) -> Reference {
        Reference::config_map(&self.settings.namespace, cloud_conf::TARGET_NAME)
    }

    /// The ConfigMap with the certificates that they trust.
    pub(super) fn trusted_ca(&self) -> Reference {
        Reference::config_map(&self.settings.namespace, super::trusted_ca::TARGET_NAME)
    }

    /// The ConfigMap in which the administrator put certificates to be trusted, if any.
    pub(super) fn user_ca(&self) -> Option<Reference> {
        let name = &self.sources.proxy.as_ref()?.spec.trusted_ca.name;
        (!name.is_empty()).then(|| Reference::config_map(cloud_conf::USER_NAMESPACE, name))
    }

    /// What the cloud's configuration is taken from and written to.
    pub(super) fn cloud_config_references(&self) -> BTreeSet<Reference> {
        let Some(settings) = self.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return BTreeSet::new();
        };
        let infrastructure = self.sources.infrastructure.as_ref();
        let user = infrastructure.and_then(|found| cloud_conf::user(settings, &found.spec.cloud_config));
        [Some(self.cloud_config()), cloud_conf::managed(settings), user].into_iter().flatten().collect()
    }

    /// What certificates to be trusted are taken from and written to.
    pub(super) fn trusted_ca_references(&self) -> BTreeSet<Reference> {
        if self.sources.proxy.is_none() {
            return BTreeSet::new();
        }
        [Some(self.trusted_ca()), Some(self.cloud_config()), self.user_ca()].into_iter().flatten().collect()
    }

    /// Watches the named objects that matter, and no other.
    fn follow(&mut self) {
        let namespace = &self.settings.namespace;
        let references = self.provider().map(|provider| provider.references(namespace)).unwrap_or_default();
        let mut named = BTreeSet::new();
        if self.settings.with_config_sync {
            named.extend(self.cloud_config_references());
            named.extend(self.trusted_ca_references());
        }
        if self.settings.with_operator {
            self.references = references;
            named.extend(self.references.iter().cloned());
        }
        self.observer.want(&named);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::provider::embedded;

    /// A cluster of which nothing was seen.
    pub(in crate::controllers) fn unseen(client: Client) -> Cluster {
        let settings = ClusterSettings {
            namespace: "managed".into(),
            own_namespace: "own".into(),
            release_version: None,
            tls_flags: TlsFlags::default(),
            with_operator: false,
            with_config_sync: true,
        };
        Cluster::new(client, embedded::catalog().unwrap(), settings, "set".into(), watch::channel(None).0)
    }
}
