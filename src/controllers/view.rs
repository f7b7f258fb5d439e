//! The controllers' view of the cluster (IO).
//!
//! It owns the watches and the facts read from them, and is the only way to write the status. It decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use kube::Client;
use tokio::sync::watch;
use tracing::warn;

pub(super) mod external;

use crate::{
    apply::inventory,
    config::{certificates, cloud_conf},
    controllers::{
        backoff::{Backoff, RepairLimiter, STATUS_WRITES},
        metrics::Metrics,
        observer::{ClusterType, Id},
        target::Target,
    },
    error::chain,
    facts::{
        Documents, Facts, Platform, Settings,
        images::{self, Images},
        tls::TlsSettings,
    },
    files,
    nodes::identity::CcmIdentity,
    object::{Key, reference::Reference},
    plan::{Plan, limits::Limits},
    process::leadership::Authority,
    provider::{OpenShift, Phase, catalog::Catalog, external::read::Externals},
    status::{self, cluster_operator::Status},
};

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct ViewSettings {
    /// Facts from the command line.
    pub facts: Settings,
    /// The namespace that the process runs in.
    pub own_namespace: String,
    /// Whether the operator runs in this process.
    pub with_operator: bool,
    /// Whether the config-sync controllers run in this process.
    pub with_config_sync: bool,
    /// The namespaces that `CloudControllerManager`s may name; empty if none is given.
    pub namespaces: Vec<String>,
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub node_deletion: bool,
    /// What `CloudControllerManager`s may ask for.
    pub limits: Limits,
    /// The external providers whose objects are to go, unless a provider of this name is given.
    pub remove_providers: Vec<String>,
}

/// The cluster, as this process sees it.
pub struct View {
    pub(super) target: Target,
    pub(super) settings: ViewSettings,
    pub(super) catalog: Catalog,
    externals: Externals,
    /// Whether the catalog has changed since that was last asked.
    catalog_changed: bool,
    documents: Documents,
    facts: Facts,
    /// The error of a document that cannot be read.
    unreadable: Option<String>,
    /// The ConfigMaps and Secrets that the planned pods refer to.
    pub(super) references: BTreeSet<Reference>,
    /// The last status that was seen; restored if the ClusterOperator is deleted.
    last_status: Status,
    /// Whether the control plane is a single node; `None` until this is known.
    single_replica: watch::Sender<Option<bool>>,
    /// The TLS settings of the cluster.
    tls: watch::Sender<TlsSettings>,
    revision: u64,
    /// Limits the writes of the status: others may undo every one of them.
    limiter: RepairLimiter,
    /// The writers of the status whose writes are held back, each with the time of the next one.
    held_writers: BTreeMap<String, Instant>,
    /// The writers whose writes are limited, which is logged once.
    limited_writers: BTreeSet<String>,
}

impl View {
    /// A cluster that has not been seen yet. Must be called in a runtime.
    pub fn new(
        (client, metrics): (Client, Metrics),
        externals: Externals,
        settings: ViewSettings,
        single_replica: watch::Sender<Option<bool>>,
    ) -> Self {
        let set_id = inventory::set_id(&settings.own_namespace);
        let mut target = Target::new(client, set_id, metrics);
        let observer = &mut target.observer;
        if settings.namespaces.is_empty() {
            // On OpenShift, as is likely, nothing is waited for before the rest is asked for.
            observer.want_documents(Documents::needed(&settings.facts, settings.with_config_sync, None).collect());
            observer.watch_status();
        } else {
            observer.is_told_kubernetes();
        }
        if settings.with_operator {
            observer.watch_inventory(&settings.own_namespace);
        }
        let documents = Documents::default();
        Self {
            target,
            catalog: externals.catalog(),
            externals,
            catalog_changed: false,
            facts: documents.facts(&settings.facts),
            documents,
            settings,
            unreadable: None,
            references: BTreeSet::new(),
            last_status: Status::default(),
            single_replica,
            tls: watch::Sender::default(),
            revision: 0,
            limiter: RepairLimiter::new(STATUS_WRITES),
            held_writers: BTreeMap::new(),
            limited_writers: BTreeSet::new(),
        }
    }

    /// Tells the lease whether the control plane is a single node.
    pub(super) fn topology_is(&self, single_replica: bool) {
        self.single_replica.send_if_modified(|known| known.replace(single_replica) != Some(single_replica));
    }

    /// Serves with the TLS settings that are known, if they can be read.
    pub(super) fn serve_tls(&self) {
        if let Ok(tls) = &self.facts.tls {
            self.tls.send_if_modified(|known| {
                known != tls && {
                    tls.clone_into(known);
                    true
                }
            });
        }
    }

    /// The TLS settings of the cluster, once they are known.
    pub fn tls(&self) -> watch::Receiver<TlsSettings> {
        self.tls.subscribe()
    }

    /// The kind of the cluster. On OpenShift all documents are watched from then on.
    pub(super) fn cluster_type(&mut self) -> ClusterType {
        let cluster_type = self.target.observer.cluster_type();
        if cluster_type == ClusterType::OpenShift && self.target.observer.watches_one_document() {
            self.want_documents(None);
        }
        cluster_type
    }

    /// Updates the facts from the watches.
    pub(super) fn refresh(&mut self) {
        self.last_status = self.status();
        if !self.target.observer.knows_documents() {
            self.watch_ahead();
            return;
        }
        if let Some(read) = self.target.observer.update(&mut self.documents) {
            self.unreadable = read.err();
            self.gather();
            if let Ok(platform) = self.facts.platform.clone() {
                self.want_documents(platform.as_ref());
            }
            self.serve_tls();
            self.topology_is(self.facts.single_replica);
            self.follow();
            self.revision += 1;
        }
        if std::mem::take(&mut self.target.observer.named_changed) {
            self.facts.digests = Some(self.target.observer.digests(&self.references));
            self.revision += 1;
        }
    }

    /// Takes the topology and the platform as soon as the document that has them was seen: the lease needs no other, and
    /// the platform may need more documents.
    fn watch_ahead(&mut self) {
        if self.single_replica.borrow().is_none() {
            let facts = self.target.observer.documents_so_far().facts(&self.settings.facts);
            if let Ok(Some(platform)) = facts.platform {
                self.single_replica.send_replace(Some(facts.single_replica));
                self.want_documents(Some(&platform));
            }
        }
    }

    /// Watches the documents that the platform needs.
    fn want_documents(&mut self, platform: Option<&Platform>) {
        let ViewSettings { facts, with_config_sync, .. } = &self.settings;
        self.target.observer.want_documents(Documents::needed(facts, *with_config_sync, platform).collect());
    }

    /// Recomputes the facts of the documents; images and digests have other sources.
    fn gather(&mut self) {
        let (images, digests) = (self.facts.images.clone(), self.facts.digests.clone());
        self.facts = Facts { images, digests, ..self.documents.facts(&self.settings.facts) };
    }

    /// Grows whenever a document or a named object may have changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Reads the images file; returns whether the images have changed.
    pub(super) fn read_images(&mut self, path: &Path) -> bool {
        let images = images_of_file(path);
        let has_changed = self.facts.images != images;
        if has_changed {
            self.facts.images = images;
            self.revision += 1;
        }
        has_changed
    }

    /// The facts, unless a document cannot be read.
    pub(super) fn facts(&self) -> Result<&Facts, String> {
        self.unreadable.clone().map_or(Ok(&self.facts), Err)
    }

    /// The plan for the cluster, with our label, or the error of an input.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let plan = Plan::new(&self.catalog, self.facts()?, Phase::Cluster).map_err(|error| chain(&error))?;
        Ok(plan.labeled(&self.target.observer.set_id))
    }

    /// The provider that serves the cluster; `None` also while the platform is not known.
    pub(super) fn provider(&self) -> Option<&OpenShift> {
        self.catalog.provider(&self.facts)
    }

    /// The cloud-controller-manager that the platform's provider installs.
    pub(super) fn identity(&self) -> Option<CcmIdentity> {
        CcmIdentity::openshift(self.provider()?, self.target.observer.infrastructure()?, &self.facts.namespace)
    }

    /// The live status, completed from the previous one if the ClusterOperator was deleted.
    pub(super) fn status(&self) -> Status {
        self.target.observer.status_object().map(Status::of).unwrap_or_default().completed(&self.last_status)
    }

    /// The status as of the last refresh or report.
    pub(super) fn last_status(&self) -> &Status {
        &self.last_status
    }

    /// When the next write of the status that is held back is due.
    pub(super) fn status_due(&self) -> Option<Instant> {
        self.held_writers.values().min().copied()
    }

    /// Writes a field manager's own part of the status; a failure is logged once and recorded in `reporting`.
    pub(super) async fn report(
        &mut self,
        writer: (&str, &Status),
        is_well: bool,
        authority: &Authority,
        reporting: &mut Backoff,
    ) -> Result<(), String> {
        let live = self.target.observer.status_object();
        if status::write::is_needed(live, writer.1, is_well) {
            // Each writer of the status has its own limit.
            let own = Key {
                group: String::new(),
                kind: status::write::KIND.kind.to_owned(),
                namespace: String::new(),
                name: writer.0.to_owned(),
            };
            let now = Instant::now();
            if let Err(free) = self.limiter.repair(own.clone(), now) {
                let text = "another writer keeps changing the status: it is written less often".to_owned();
                self.held_writers.insert(writer.0.to_owned(), free);
                if self.limited_writers.insert(writer.0.to_owned()) {
                    warn!("{text}");
                }
                return Err(text);
            }
            if !self.limiter.limits(&own, now) {
                self.limited_writers.remove(writer.0);
            }
        }
        self.held_writers.remove(writer.0);
        match status::write::write(&self.target.client, live, writer, is_well, || authority.write_budget()).await {
            Ok(written) => {
                *reporting = Backoff::default();
                if let Some(written) = written {
                    self.target.observer.watches.put(&Id::Status, status::write::NAME, written);
                    self.last_status = self.status();
                }
                Ok(())
            }
            Err(error) => {
                let text = chain(&error);
                if reporting.failed(&text, Duration::ZERO, error.retry_after(), Instant::now()) {
                    warn!("{text}; retrying");
                }
                Err(text)
            }
        }
    }

    /// The ConfigMap that cloud-controller-managers read their configuration from.
    pub(super) fn cloud_config(&self) -> Reference {
        Reference::config_map(&self.facts.namespace, cloud_conf::TARGET_NAME)
    }

    /// The sources and the target of the cloud's configuration.
    pub(super) fn cloud_config_references(&self) -> BTreeSet<Reference> {
        let Some(settings) = self.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return BTreeSet::new();
        };
        let user = cloud_conf::user(settings, &self.facts).cloned();
        [Some(self.cloud_config()), cloud_conf::managed(settings), user].into_iter().flatten().collect()
    }

    /// The sources and the target of the trusted certificates.
    pub(super) fn trusted_ca_references(&self) -> BTreeSet<Reference> {
        if !self.facts.has_trusted_ca {
            return BTreeSet::new();
        }
        let target = Reference::config_map(&self.facts.namespace, certificates::TARGET_NAME);
        [Some(target), Some(self.cloud_config()), self.facts.user_ca.clone()].into_iter().flatten().collect()
    }

    /// Watches the named objects that the controllers read, and no others.
    fn follow(&mut self) {
        let namespace = &self.facts.namespace;
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
        self.target.observer.want(&named);
    }
}

/// The images in a file.
pub fn images_of_file(path: &Path) -> Result<Images, images::Error> {
    let from = path.display().to_string();
    match files::read_text(path) {
        Ok(json) => Images::parse(&json, &from),
        Err(error) => Err(images::Error::Unreadable { from, why: error.to_string() }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::provider::embedded;

    /// A cluster with these documents only.
    pub(in crate::controllers) fn view(client: Client, documents: Documents, release_version: Option<&str>) -> View {
        let release_version = release_version.map(Into::into);
        let facts = Settings { namespace: "managed".into(), release_version, ..Settings::default() };
        let settings = ViewSettings {
            facts,
            own_namespace: "own".into(),
            with_operator: false,
            with_config_sync: true,
            namespaces: Vec::new(),
            node_deletion: false,
            limits: Limits::default(),
            remove_providers: Vec::new(),
        };
        let mut view = View::new(
            (client, Metrics::default()),
            Externals::none(embedded::catalog().unwrap()),
            settings,
            watch::channel(None).0,
        );
        view.see(documents);
        view
    }

    impl View {
        /// Replaces the documents.
        pub(in crate::controllers) fn see(&mut self, documents: Documents) {
            self.documents = documents;
            self.gather();
        }
    }
}
