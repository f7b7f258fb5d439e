//! A cluster read once (IO), for commands that look at it and end.
//!
//! The operator itself watches ([`crate::controllers::observe`]); this reads the same documents and objects with the rights of
//! whoever asks, who may be an administrator far away. Nothing here writes.

use std::{fs, path::Path};

use kube::{
    Client,
    api::{ApiResource, GroupVersionKind, ListParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::{
    read::{Error, Reader, describe},
    request,
};
use crate::{
    config::{
        Context,
        cloud_conf::{self, Inputs, Synced},
    },
    facts::{
        Sources,
        images::{self, Images},
    },
    object::reference::{self, Digests},
    provider::catalog::{Catalog, Selection},
    status::cluster_operator,
};

/// The ConfigMap with the images, in the operator's namespace, and its key.
const IMAGES: (&str, &str) = ("cloud-controller-manager-images", "images.json");

/// Whose objects are read.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The namespace that is managed.
    pub namespace: String,
    /// The namespace that the operator runs in.
    pub own_namespace: String,
}

/// Reads a cluster.
pub(super) struct Snapshot {
    reader: Reader,
    place: Place,
}

impl Snapshot {
    /// Asks for nothing yet.
    pub(super) fn new(client: Client, place: Place) -> Self {
        Self { reader: Reader::new(client), place }
    }

    /// What reads single objects.
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Whose objects are read.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The documents that facts are taken from. The images are those of a file, or of the ConfigMap that the operator's
    /// Pod mounts.
    pub(super) async fn sources(&self, images_json: Option<&Path>) -> Result<Sources, Error> {
        let images = match images_json {
            Some(path) => images_of_file(path),
            None => self.images().await?,
        };
        let mut sources = Sources::new(&self.place.namespace, images);
        sources.infrastructure = self.document("Infrastructure", "infrastructures", "cluster").await?;
        sources.proxy = self.document("Proxy", "proxies", "cluster").await?;
        sources.feature_gate = self.document("FeatureGate", "featuregates", "cluster").await?;
        sources.network = self.document("Network", "networks", "cluster").await?;
        sources.api_server = self.document("APIServer", "apiservers", "cluster").await?;
        sources.cluster_version = self.document("ClusterVersion", "clusterversions", "version").await?;
        Ok(sources)
    }

    /// What each ConfigMap and Secret holds that the provider's pods refer to, as a digest.
    pub(super) async fn digests(&self, catalog: &Catalog, sources: &Sources) -> Result<Digests, Error> {
        let mut digests = Digests::new();
        if let Ok(Selection::Provider(provider)) = catalog.select(sources) {
            for reference in provider.references(&self.place.namespace) {
                let resource = request::resource_of(reference.kind);
                if let Some(live) = self.reader.get(&resource, Some(&reference.namespace), &reference.name).await? {
                    digests.insert(reference, reference::digest(&live));
                }
            }
        }
        Ok(digests)
    }

    /// What the cloud's configuration is to be, `None` where none is synced. The inner error says what is wrong with it.
    pub(super) async fn cloud_config(
        &self,
        catalog: &Catalog,
        sources: &Sources,
    ) -> Result<Option<Result<Synced, cloud_conf::Error>>, Error> {
        let Ok(Selection::Provider(provider)) = catalog.select(sources) else { return Ok(None) };
        let Some(settings) = &provider.descriptor.cloud_config else { return Ok(None) };
        let named = sources.infrastructure.as_ref().map(|found| found.spec.cloud_config.clone()).unwrap_or_default();
        let (mut managed, mut user) = (None, None);
        let wanted = [(cloud_conf::managed(settings), &mut managed), (cloud_conf::user(settings, &named), &mut user)];
        for (reference, found) in wanted {
            if let Some(reference) = reference {
                let resource = request::config_map_resource();
                *found = self.reader.get(&resource, Some(&reference.namespace), &reference.name).await?;
            }
        }
        let context = &Context::gather(sources);
        let (managed, user) = (managed.as_ref(), user.as_ref());
        Ok(Some(cloud_conf::sync(&Inputs { settings, named: &named, managed, user, context })))
    }

    /// The ClusterOperator.
    pub(super) async fn cluster_operator(&self) -> Result<Option<Value>, Error> {
        self.reader.get(&crate::status::write::resource(), None, cluster_operator::CLUSTER_OPERATOR).await
    }

    /// The objects of a kind of the core group in the managed namespace.
    pub(super) async fn list(&self, kind: &str, plural: &str) -> Result<Vec<Value>, Error> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), plural);
        self.reader.list(&resource, Some(&self.place.namespace), &ListParams::default()).await
    }

    async fn images(&self) -> Result<Result<Images, images::Error>, Error> {
        let (name, key) = IMAGES;
        let from = format!("ConfigMap {}/{name}", self.place.own_namespace);
        let resource = request::config_map_resource();
        let config_map = self.reader.get(&resource, Some(&self.place.own_namespace), name).await?;
        Ok(match config_map.as_ref().map(|config_map| config_map["data"][key].as_str()) {
            Some(Some(json)) => Images::parse(json, &from),
            Some(None) => Err(images::Error::Unreadable { from, why: format!("it has no key {key}") }),
            None => Err(images::Error::Unreadable { from, why: "it is not there".to_owned() }),
        })
    }

    async fn document<T: DeserializeOwned>(&self, kind: &str, plural: &str, name: &str) -> Result<Option<T>, Error> {
        let resource = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        let object = self.reader.get(&resource, None, name).await?;
        let read = object.map(T::deserialize).transpose();
        read.map_err(|source| Error::Parse { what: describe(&resource, None, name), source })
    }
}

fn images_of_file(path: &Path) -> Result<Images, images::Error> {
    let from = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(json) => Images::parse(&json, &from),
        Err(error) => Err(images::Error::Unreadable { from, why: error.to_string() }),
    }
}
