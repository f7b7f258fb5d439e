//! A cluster read once (IO), for commands that look at it and end.
//!
//! The operator itself watches ([`crate::observe`]); this reads the same documents and objects with the rights of
//! whoever asks, who may be an administrator far away. Nothing here writes.

use std::{fs, path::Path};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    apply::{
        self, PART_OF_LABEL, REQUEST_TIMEOUT,
        inventory::{self, Scope, Verdict},
    },
    catalog::{Catalog, Selection},
    cloud_config::{
        Context,
        sync::{self, Inputs, Synced},
    },
    config_hash::{self, Digests},
    facts::{
        Sources,
        images::{self, Images},
    },
    object::Object,
    status,
};

/// The ConfigMap with the images, in the operator's namespace, and its key.
const IMAGES: (&str, &str) = ("cloud-controller-manager-images", "images.json");

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("failed to read {what}")]
    Read {
        /// What was asked for, as RBAC and kubectl name it.
        what: String,
        /// The cause.
        source: apply::Cause,
    },
    /// It is not what it should be.
    #[error("failed to understand {what}")]
    Parse {
        /// What was read.
        what: String,
        /// The cause.
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether the API server answered; if it did not, asking for more is of no use.
    pub fn is_an_answer(&self) -> bool {
        matches!(self, Self::Parse { .. } | Self::Read { source: apply::Cause::Api(kube::Error::Api(_)), .. })
    }
}

/// Whose objects are read.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace that is managed.
    pub namespace: String,
    /// The namespace that the operator runs in.
    pub own_namespace: String,
}

/// Reads a cluster.
pub struct Reader {
    client: Client,
    place: Place,
}

impl Reader {
    /// Asks for nothing yet.
    pub fn new(client: Client, place: Place) -> Self {
        Self { client, place }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whose objects are read.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The documents that facts are taken from. The images are those of a file, or of the ConfigMap that the operator's
    /// Pod mounts.
    pub async fn sources(&self, images_json: Option<&Path>) -> Result<Sources, Error> {
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
    pub async fn digests(&self, catalog: &Catalog, sources: &Sources) -> Result<Digests, Error> {
        let mut digests = Digests::new();
        if let Ok(Selection::Provider(provider)) = catalog.select(sources) {
            for reference in provider.references(&self.place.namespace) {
                let resource = apply::resource_of(reference.kind);
                if let Some(live) = self.get(&resource, Some(&reference.namespace), &reference.name).await? {
                    digests.insert(reference, config_hash::digest(&live));
                }
            }
        }
        Ok(digests)
    }

    /// What the cloud's configuration is to be, `None` where none is synced. The inner error says what is wrong with it.
    pub async fn cloud_config(
        &self,
        catalog: &Catalog,
        sources: &Sources,
    ) -> Result<Option<Result<Synced, sync::Error>>, Error> {
        let Ok(Selection::Provider(provider)) = catalog.select(sources) else { return Ok(None) };
        let Some(settings) = &provider.descriptor.cloud_config else { return Ok(None) };
        let named = sources.infrastructure.as_ref().map(|found| found.spec.cloud_config.clone()).unwrap_or_default();
        let (mut managed, mut user) = (None, None);
        let wanted = [(sync::managed(settings), &mut managed), (sync::user(settings, &named), &mut user)];
        for (reference, found) in wanted {
            if let Some(reference) = reference {
                let resource = apply::config_map_resource();
                *found = self.get(&resource, Some(&reference.namespace), &reference.name).await?;
            }
        }
        let context = &Context::gather(sources);
        let (managed, user) = (managed.as_ref(), user.as_ref());
        Ok(Some(sync::sync(&Inputs { settings, named: &named, managed, user, context })))
    }

    /// The live state of a planned object.
    pub async fn live(&self, object: &Object) -> Result<Option<Value>, Error> {
        let kind = object.kind();
        self.get(&apply::resource(kind), kind.namespaced.then(|| object.namespace()), object.name()).await
    }

    /// The ClusterOperator.
    pub async fn cluster_operator(&self) -> Result<Option<Value>, Error> {
        self.get(&status::write::resource(), None, status::CLUSTER_OPERATOR).await
    }

    /// The objects of a kind of the core group in the managed namespace.
    pub async fn list(&self, kind: &str, plural: &str) -> Result<Vec<Value>, Error> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), plural);
        self.list_of(&resource, Some(&self.place.namespace), &ListParams::default()).await
    }

    /// What carries our label where the inventory says that something may be, and is not planned any more, with what the
    /// operator does with it. Without a plan it does nothing.
    pub async fn left_over(&self, planned: &[Object]) -> Result<Vec<(Value, Verdict)>, Error> {
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        let set_id = apply::set_id(&self.place.own_namespace);
        let resource = apply::config_map_resource();
        let inventory = self.get(&resource, Some(&self.place.own_namespace), inventory::NAME).await?;
        let scope = inventory.as_ref().map(Scope::read).unwrap_or_default();
        let params = ListParams::default().labels(&format!("{PART_OF_LABEL}={set_id}"));
        let mut found = Vec::new();
        for place in scope.places() {
            let namespace = place.kind.namespaced.then_some(place.namespace.as_str());
            let listed = self.list_of(&apply::resource(place.kind), namespace, &params).await?;
            found.extend(listed.into_iter().map(|live| (place, live)));
        }
        let seen = found.iter().map(|(place, live)| (*place, live));
        let verdicts = inventory::verdicts(seen, planned, &set_id);
        Ok(verdicts.into_iter().map(|(_, live, verdict)| (live.clone(), verdict)).collect())
    }

    async fn images(&self) -> Result<Result<Images, images::Error>, Error> {
        let (name, key) = IMAGES;
        let from = format!("ConfigMap {}/{name}", self.place.own_namespace);
        let resource = apply::config_map_resource();
        let config_map = self.get(&resource, Some(&self.place.own_namespace), name).await?;
        Ok(match config_map.as_ref().map(|config_map| config_map["data"][key].as_str()) {
            Some(Some(json)) => Images::parse(json, &from),
            Some(None) => Err(images::Error::Unreadable { from, why: format!("it has no key {key}") }),
            None => Err(images::Error::Unreadable { from, why: "it is not there".to_owned() }),
        })
    }

    async fn document<T: DeserializeOwned>(&self, kind: &str, plural: &str, name: &str) -> Result<Option<T>, Error> {
        let resource = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        let object = self.get(&resource, None, name).await?;
        let read = object.map(T::deserialize).transpose();
        read.map_err(|source| Error::Parse { what: describe(&resource, None, name), source })
    }

    async fn get(&self, resource: &ApiResource, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let answer = apply::send(Some(REQUEST_TIMEOUT), self.api(resource, namespace).get_opt(name)).await;
        let failed = |source| Error::Read { what: describe(resource, namespace, name), source };
        Ok(answer.map_err(failed)?.as_ref().map(apply::to_value))
    }

    async fn list_of(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<Value>, Error> {
        let answer = apply::send(Some(REQUEST_TIMEOUT), self.api(resource, namespace).list(params)).await;
        let list = answer.map_err(|source| Error::Read { what: describe(resource, namespace, ""), source })?;
        let with_types = |object: &DynamicObject| {
            let mut value = apply::to_value(object);
            // The items of a list have no types of their own.
            value["apiVersion"] = resource.api_version.clone().into();
            value["kind"] = resource.kind.clone().into();
            value
        };
        Ok(list.items.iter().map(with_types).collect())
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }
}

fn images_of_file(path: &Path) -> Result<Images, images::Error> {
    let from = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(json) => Images::parse(&json, &from),
        Err(error) => Err(images::Error::Unreadable { from, why: error.to_string() }),
    }
}

fn describe(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let ApiResource { group, plural, .. } = resource;
    let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("{resource}{name}{place}")
}
