//! The controllers' view of the cluster (IO).
//!
//! It owns the watches and the facts read from them. It writes and decides nothing.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use kube::Client;
use tokio::sync::watch;

use crate::{
    apply::inventory,
    config::{certificates, cloud_conf},
    controllers::{
        metrics::Metrics,
        observer::{ClusterType, InputKind},
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
    object::reference::Reference,
    plan::{Plan, limits::Limits},
    provider::{OpenShiftProvider, Phase, catalog::Catalog, external::read::ExternalProviders},
    status::cluster_operator::Status,
};

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct ViewSettings {
    /// The settings of an OpenShift cluster.
    pub cluster: Settings,
    /// The namespace that the process runs in.
    pub own_namespace: String,
    /// Whether the operator runs in this process.
    pub with_operator: bool,
    /// Whether the config-sync controllers run in this process.
    pub with_config_sync: bool,
    /// The namespaces that `CloudControllerManager`s may name; empty if the command line gives none.
    pub namespaces: Vec<String>,
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub node_deletion: bool,
    /// The limits of the fields of `CloudControllerManager`s.
    pub limits: Limits,
    /// The external providers whose objects are deleted, unless a provider with this name is given.
    pub remove_providers: Vec<String>,
}

/// The cluster in the view of this process.
pub struct View {
    pub(super) target: Target,
    pub(super) settings: ViewSettings,
    pub(super) catalog: Catalog,
    externals: ExternalProviders,
    catalog_changed: bool,
    documents: Documents,
    facts: Facts,
    unreadable: Option<String>,
    /// The ConfigMaps and Secrets that the planned pods refer to.
    pub(super) references: BTreeSet<Reference>,
    /// The last status that was seen; restored if the ClusterOperator is deleted.
    pub(super) last_status: Status,
    /// Whether the control plane is a single node; `None` until this is known.
    single_replica: watch::Sender<Option<bool>>,
    tls: watch::Sender<TlsSettings>,
    /// A number that grows whenever a document or a named object may have changed.
    pub(super) revision: u64,
}

impl View {
    /// Creates the view of a cluster that has not been observed yet. Must be called in a runtime.
    pub fn new(
        (client, metrics): (Client, Metrics),
        externals: ExternalProviders,
        settings: ViewSettings,
        single_replica: watch::Sender<Option<bool>>,
    ) -> Self {
        let set_id = inventory::set_id(&settings.own_namespace);
        let mut target = Target::new(client, set_id, metrics);
        let observer = &mut target.observer;
        if settings.namespaces.is_empty() {
            // Watches all documents at once, so that on OpenShift they need not wait for the Infrastructure.
            observer.want_documents(Documents::needed(&settings.cluster, settings.with_config_sync, None).collect());
            observer.watch_status();
        } else {
            observer.watch_given_kubernetes();
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
            facts: documents.facts(&settings.cluster),
            documents,
            settings,
            unreadable: None,
            references: BTreeSet::new(),
            last_status: Status::default(),
            single_replica,
            tls: watch::Sender::default(),
            revision: 0,
        }
    }

    /// Publishes whether the control plane is a single node, for the timings of the lease.
    pub(super) fn publish_topology(&self, single_replica: bool) {
        self.single_replica.send_if_modified(|known| known.replace(single_replica) != Some(single_replica));
    }

    /// Publishes the TLS settings for the server of the metrics, unless they cannot be read.
    pub(super) fn publish_tls(&self) {
        let Ok(tls) = &self.facts.tls else { return };
        let has_changed = *self.tls.borrow() != *tls;
        if has_changed {
            self.tls.send_replace(tls.clone());
        }
    }

    /// Returns the TLS settings of the cluster, once they are known.
    pub fn tls(&self) -> watch::Receiver<TlsSettings> {
        self.tls.subscribe()
    }

    /// Starts and ends the watches that depend on the type of the cluster, and returns the type. On OpenShift all documents are watched.
    pub(super) fn observe_cluster_type(&mut self) -> ClusterType {
        let cluster_type = self.target.observer.observe_cluster_type();
        if cluster_type == ClusterType::OpenShift && self.target.observer.watches_only_platform() {
            self.want_documents(None);
        }
        cluster_type
    }

    /// Updates the facts from the watches, at the start of each controller's pass: the pass before may have written an input.
    pub(super) fn refresh(&mut self) {
        self.remember_status();
        if !self.target.observer.has_documents() {
            self.watch_ahead();
            return;
        }
        if let Some(read) = self.target.observer.update(&mut self.documents) {
            self.unreadable = read.err();
            self.update_facts();
            if let Ok(platform) = self.facts.platform.clone() {
                self.want_documents(platform.as_ref());
            }
            self.publish_tls();
            self.publish_topology(self.facts.single_replica);
            self.watch_named_objects();
            self.revision += 1;
        }
        if self.target.observer.take_change(InputKind::NamedObjects) {
            self.facts.digests = Some(self.target.observer.digests(&self.references));
            self.revision += 1;
        }
    }

    /// Publishes the topology, and watches the documents of the platform, as soon as the Infrastructure has been seen. The lease needs
    /// no other document.
    fn watch_ahead(&mut self) {
        if self.single_replica.borrow().is_none() {
            let facts = self.target.observer.documents_so_far().facts(&self.settings.cluster);
            if let Ok(Some(platform)) = facts.platform {
                self.publish_topology(facts.single_replica);
                self.want_documents(Some(&platform));
            }
        }
    }

    fn want_documents(&mut self, platform: Option<&Platform>) {
        let ViewSettings { cluster, with_config_sync, .. } = &self.settings;
        self.target.observer.want_documents(Documents::needed(cluster, *with_config_sync, platform).collect());
    }

    /// Recomputes the facts of the documents; images and digests have other sources.
    fn update_facts(&mut self) {
        let (images, digests) = (self.facts.images.clone(), self.facts.digests.clone());
        self.facts = Facts { images, digests, ..self.documents.facts(&self.settings.cluster) };
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

    pub(super) fn provider_paths(&self) -> impl Iterator<Item = PathBuf> {
        self.externals.paths().map(Path::to_owned)
    }

    /// Reads the refused external providers again, and returns whether one has changed. The providers in use stay as they were checked.
    pub(super) fn retry_providers(&mut self) -> bool {
        let has_changed = self.externals.retry();
        if has_changed {
            self.catalog = self.externals.catalog();
            self.catalog_changed = true;
            self.revision += 1;
            self.watch_named_objects();
        }
        has_changed
    }

    /// Whether the catalog has changed since the last call.
    pub(super) fn take_catalog_change(&mut self) -> bool {
        std::mem::take(&mut self.catalog_changed)
    }

    pub(super) fn external_provider(&self) -> Option<&str> {
        self.provider().filter(|provider| provider.origin.is_some()).map(OpenShiftProvider::name)
    }

    /// Returns the name of the external provider that has installed the applied objects, if it no longer serves the cluster.
    pub(super) fn gone_provider(&self) -> Option<String> {
        let applied = inventory::external_provider(self.target.observer.inventory())?;
        // The provider that should serve the cluster may be the refused one.
        if !self.catalog.refused().is_empty() || !matches!(self.facts().map(|facts| &facts.platform), Ok(Ok(Some(_)))) {
            return None;
        }
        (self.external_provider() != Some(applied)).then(|| applied.to_owned())
    }

    /// Returns the facts, unless a document cannot be read.
    pub(super) fn facts(&self) -> Result<&Facts, String> {
        self.unreadable.clone().map_or(Ok(&self.facts), Err)
    }

    /// Returns the plan for the cluster, with our label, or the error of an input.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let plan = Plan::new(&self.catalog, self.facts()?, Phase::Cluster).map_err(|error| chain(&error))?;
        Ok(plan.labeled(&self.target.observer.set_id))
    }

    /// Returns the provider that serves the cluster, or `None` if there is none or the platform is unknown.
    pub(super) fn provider(&self) -> Option<&OpenShiftProvider> {
        self.catalog.provider(&self.facts)
    }

    /// Returns the cloud-controller-manager that the platform's provider installs.
    pub(super) fn identity(&self) -> Option<CcmIdentity> {
        CcmIdentity::openshift(self.provider()?, self.target.observer.platform_document()?, &self.facts.namespace)
    }

    /// Returns the live status, completed from the previous one if the ClusterOperator was deleted.
    pub(super) fn status(&self) -> Status {
        self.target.observer.status_object().map(Status::of).unwrap_or_default().completed(&self.last_status)
    }

    /// Records the live status, to restore it if the ClusterOperator is deleted.
    pub(super) fn remember_status(&mut self) {
        self.last_status = self.status();
    }

    /// Returns the ConfigMap that cloud-controller-managers read their configuration from.
    pub(super) fn cloud_config(&self) -> Reference {
        Reference::config_map(&self.facts.namespace, cloud_conf::TARGET_NAME)
    }

    /// Returns the sources and the target of the cloud's configuration.
    pub(super) fn cloud_config_references(&self) -> BTreeSet<Reference> {
        let Some(settings) = self.provider().and_then(|provider| provider.descriptor.cloud_config.as_ref()) else {
            return BTreeSet::new();
        };
        let user = cloud_conf::user(settings, &self.facts).cloned();
        [Some(self.cloud_config()), cloud_conf::managed(settings), user].into_iter().flatten().collect()
    }

    /// Returns the sources and the target of the trusted certificates.
    pub(super) fn trusted_ca_references(&self) -> BTreeSet<Reference> {
        if !self.facts.has_trusted_ca {
            return BTreeSet::new();
        }
        let target = Reference::config_map(&self.facts.namespace, certificates::TARGET_NAME);
        [Some(target), Some(self.cloud_config()), self.facts.user_ca.clone()].into_iter().flatten().collect()
    }

    /// Watches the named objects that the controllers read, and no others.
    fn watch_named_objects(&mut self) {
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
        self.target.observer.watch_named(&named);
    }
}

/// Describes the problem of applied objects whose external provider is not given, with its fix, for people.
pub(super) fn not_given(name: &str) -> String {
    format!(
        "the objects in this cluster are of the external provider {name:?}, which is not given: nothing is changed or deleted; give it \
         again, or give --remove-provider {name} to delete them"
    )
}

/// Reads the images from a file.
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
        let cluster = Settings { namespace: "managed".into(), release_version, ..Settings::default() };
        let settings = ViewSettings {
            cluster,
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
            ExternalProviders::none(embedded::catalog().unwrap()),
            settings,
            watch::channel(None).0,
        );
        view.set_documents(documents);
        view
    }

    impl View {
        /// Replaces the documents.
        pub(in crate::controllers) fn set_documents(&mut self, documents: Documents) {
            self.documents = documents;
            self.update_facts();
        }
    }
}
