//! A cluster read once (IO), for commands that look at it and end.
//!
//! The operator itself watches ([`crate::controllers`]); this reads the same documents and objects with the rights of
//! whoever asks, who may be an administrator far away. Nothing here writes.

use std::{fs, path::Path};

use kube::{
    Client,
    api::{ApiResource, GroupVersionKind, ListParams},
};
use serde_json::Value;

use crate::{
    cluster::{
        read::{Error, Reader, describe},
        request,
    },
    config::cloud_conf::{self, Inputs, Synced},
    facts::{
        Documents, Facts, Settings,
        images::{self, Images},
    },
    object::reference::{self, Digests, Reference},
    provider::catalog::Catalog,
    status,
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

    /// What is known about the cluster. The images are those of a file, or of the ConfigMap that the operator's Pod mounts.
    pub(super) async fn facts(&self, images_json: Option<&Path>) -> Result<Facts, Error> {
        let images = match images_json {
            Some(path) => images_of_file(path),
            None => self.images().await?,
        };
        let mut documents = Documents::default();
        for document in Documents::all() {
            let resource = request::resource(&document.kind);
            let object = self.reader.get(&resource, None, document.name).await?;
            let failed = |source| Error::Parse { what: describe(&resource, None, document.name), source };
            documents.take(document, object.as_ref()).map_err(failed)?;
        }
        let settings = Settings { namespace: self.place.namespace.clone(), ..Settings::default() };
        Ok(Facts { images, ..documents.facts(&settings) })
    }

    /// What each ConfigMap and Secret holds that the provider's pods refer to, as a digest.
    pub(super) async fn digests(&self, catalog: &Catalog, facts: &Facts) -> Result<Digests, Error> {
        let mut digests = Digests::new();
        for reference in
            catalog.provider(facts).map(|provider| provider.references(&facts.namespace)).unwrap_or_default()
        {
            if let Some(live) = self.named(&reference).await? {
                digests.insert(reference, reference::digest(&live));
            }
        }
        Ok(digests)
    }

    /// What the cloud's configuration is to be, `None` where none is synced. The inner error says what is wrong with it.
    pub(super) async fn cloud_config(
        &self,
        catalog: &Catalog,
        facts: &Facts,
    ) -> Result<Option<Result<Synced, cloud_conf::Error>>, Error> {
        let settings = catalog.provider(facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
        let Some(settings) = settings else { return Ok(None) };
        let (mut managed, mut user) = (None, None);
        if let Some(reference) = cloud_conf::managed(settings) {
            managed = self.named(&reference).await?;
        }
        if let Some(reference) = cloud_conf::user(settings, facts) {
            user = self.named(reference).await?;
        }
        let (managed, user) = (managed.as_ref(), user.as_ref());
        Ok(Some(cloud_conf::sync(&Inputs { settings, facts, managed, user })))
    }

    async fn named(&self, reference: &Reference) -> Result<Option<Value>, Error> {
        let resource = request::resource(reference.kind.kind());
        self.reader.get(&resource, Some(&reference.namespace), &reference.name).await
    }

    /// The object that holds the status.
    pub(super) async fn status_object(&self) -> Result<Option<Value>, Error> {
        self.reader.get(&request::resource(&status::write::KIND), None, status::write::NAME).await
    }

    /// The objects of a kind of the core group in the managed namespace.
    pub(super) async fn list(&self, kind: &str, plural: &str) -> Result<Vec<Value>, Error> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), plural);
        self.reader.list(&resource, Some(&self.place.namespace), &ListParams::default()).await
    }

    async fn images(&self) -> Result<Result<Images, images::Error>, Error> {
        let (name, key) = IMAGES;
        let from = format!("ConfigMap {}/{name}", self.place.own_namespace);
        let config_map = self.named(&Reference::config_map(&self.place.own_namespace, name)).await?;
        Ok(match config_map.as_ref().map(|config_map| config_map["data"][key].as_str()) {
            Some(Some(json)) => Images::parse(json, &from),
            Some(None) => Err(images::Error::Unreadable { from, why: format!("it has no key {key}") }),
            None => Err(images::Error::Unreadable { from, why: "it is not there".to_owned() }),
        })
    }
}

fn images_of_file(path: &Path) -> Result<Images, images::Error> {
    let from = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(json) => Images::parse(&json, &from),
        Err(error) => Err(images::Error::Unreadable { from, why: error.to_string() }),
    }
}
