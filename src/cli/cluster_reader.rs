//! Reads a cluster once (IO), for commands that show its state.
//!
//! The operator itself watches ([`crate::controllers`]). This module reads the same documents and objects with the
//! caller's permissions, and writes nothing.

use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::{
    apply::{dry_run, inventory},
    cluster::{
        read::{self, Error},
        request::describe_objects,
    },
    config::cloud_conf::{self, Inputs, Synced},
    controllers::view::images_of_file,
    error::chain,
    facts::{
        DOCUMENTS, Documents, Facts, OPERATOR_LEASE, PLATFORM_DOCUMENT, Settings,
        images::{self, Images},
    },
    object::{
        EVENT, Kind, POD,
        reference::{self, Digests, Reference},
    },
    plan::Plan,
    process::lease::LEASE,
    provider::{Phase, catalog::Catalog},
    status::{self, screen::StatusInput},
};

/// The ConfigMap with the images, in the operator's namespace, and its key.
const IMAGES: (&str, &str) = ("cloud-controller-manager-images", "images.json");

/// An OpenShift cluster that a command reads.
pub(super) struct ClusterReader {
    pub(super) client: Client,
    /// The managed namespace.
    pub(super) namespace: String,
    /// The namespace that the operator runs in.
    pub(super) own_namespace: String,
}

impl ClusterReader {
    /// Reads the facts of the cluster. The images come from a file, or from the ConfigMap that the operator's Pod mounts.
    pub(super) async fn facts(&self, images_json: Option<&Path>) -> Result<Facts, Error> {
        let (facts, refused) = self.documents(images_json).await?;
        refused.into_iter().next().map_or(Ok(facts), Err)
    }

    /// Reads the input of the status report, including the reads that the API server has refused. Fails if the API server does not answer.
    pub(super) async fn status_input(
        &self,
        catalog: &Catalog,
        images_json: Option<&Path>,
    ) -> Result<StatusInput, Error> {
        let (mut input, mut unread) = (StatusInput { now: Timestamp::now(), ..StatusInput::default() }, Vec::new());
        let status = read::get(&self.client, &status::write::KIND, "", status::write::NAME).await;
        input.cluster_operator = answered(status, &mut unread)?;
        let lease = read::get(&self.client, &LEASE, &self.own_namespace, OPERATOR_LEASE).await;
        input.lease = answered(lease, &mut unread)?;
        let (mut facts, refused) = self.documents(images_json).await?;
        input.platform = facts.platform.clone().ok().flatten().map(|platform| platform.name);
        if refused.is_empty() {
            facts.digests = answered(self.digests(catalog, &facts).await, &mut unread)?;
            input.knows_digests = facts.digests.is_some();
            let plan = Plan::new(catalog, &facts, Phase::Cluster);
            let plan = plan.map(|plan| plan.labeled(&inventory::set_id(&self.own_namespace)));
            if let Ok(plan) = &plan {
                for object in plan.objects() {
                    input.live.push(answered(read::live(&self.client, object).await, &mut unread)?);
                }
                let left_over = dry_run::left_over(&self.client, &self.own_namespace, plan.objects()).await;
                input.left_over = answered(left_over, &mut unread)?.unwrap_or_default();
            }
            input.plan = Some(plan.map_err(|error| chain(&error)));
        }
        unread.extend(refused);
        input.pods = answered(self.list(&POD).await, &mut unread)?.unwrap_or_default();
        input.events = answered(self.list(&EVENT).await, &mut unread)?.unwrap_or_default();
        input.unread = unread.iter().map(|error| chain(error)).collect();
        Ok(input)
    }

    /// Reads the facts of the cluster, and returns the reads that the API server has refused.
    async fn documents(&self, images_json: Option<&Path>) -> Result<(Facts, Vec<Error>), Error> {
        let (mut refused, mut documents) = (Vec::new(), Documents::default());
        let images = match images_json {
            Some(path) => images_of_file(path),
            None => answered(self.images().await, &mut refused)?.unwrap_or_else(|| Ok(Images::default())),
        };
        for document in &DOCUMENTS {
            let object = read::get(&self.client, &document.kind, "", document.name).await;
            if let Err(Error::NotServed(kind)) = &object
                && *document == PLATFORM_DOCUMENT
            {
                let what = "it is no OpenShift or OKD cluster; on others `kubectl describe ccm` shows the state";
                return Err(Error::NotServed(format!("{kind}: {what}")));
            }
            let Some(object) = answered(object, &mut refused)? else { continue };
            let failed = |source| Error::Parse { what: describe_objects(&document.kind, "", document.name), source };
            documents.take(document, object.as_ref()).map_err(failed)?;
        }
        let settings = Settings { namespace: self.namespace.clone(), ..Settings::default() };
        Ok((Facts { images, ..documents.facts(&settings) }, refused))
    }

    /// Reads the digests of the ConfigMaps and Secrets that the provider's pods refer to.
    pub(super) async fn digests(&self, catalog: &Catalog, facts: &Facts) -> Result<Digests, Error> {
        let mut digests = Digests::new();
        let references = catalog.provider(facts).map(|provider| provider.references(&facts.namespace));
        for reference in references.unwrap_or_default() {
            if let Some(live) = self.named(Some(&reference)).await? {
                let digest = reference::live_digest(reference.kind, &live);
                digests.insert(reference, digest);
            }
        }
        Ok(digests)
    }

    /// Computes the desired cloud configuration; returns `None` if none is synced. The inner error is a defect of its input.
    pub(super) async fn cloud_config(
        &self,
        catalog: &Catalog,
        facts: &Facts,
    ) -> Result<Option<Result<Synced, cloud_conf::Error>>, Error> {
        let settings = catalog.provider(facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
        let Some(settings) = settings else { return Ok(None) };
        let managed = self.named(cloud_conf::managed(settings).as_ref()).await?;
        let user = self.named(cloud_conf::user(settings, facts)).await?;
        Ok(Some(cloud_conf::compute(&Inputs { settings, facts, managed: managed.as_ref(), user: user.as_ref() })))
    }

    async fn named(&self, reference: Option<&Reference>) -> Result<Option<Value>, Error> {
        let Some(Reference { kind, namespace, name }) = reference else { return Ok(None) };
        read::get(&self.client, kind, namespace, name).await
    }

    /// Lists the objects of a kind in the managed namespace.
    async fn list(&self, kind: &Kind) -> Result<Vec<Value>, Error> {
        read::list(&self.client, kind, &self.namespace, &ListParams::default()).await
    }

    async fn images(&self) -> Result<Result<Images, images::Error>, Error> {
        let (name, key) = IMAGES;
        let from = format!("ConfigMap {}/{name}", self.own_namespace);
        let config_map = self.named(Some(&Reference::config_map(&self.own_namespace, name))).await?;
        Ok(match config_map.as_ref().map(|config_map| config_map["data"][key].as_str()) {
            Some(Some(json)) => Images::parse(json, &from),
            Some(None) => Err(images::Error::Unreadable { from, why: format!("it has no key {key}") }),
            None => Err(images::Error::Unreadable { from, why: "it does not exist".to_owned() }),
        })
    }
}

/// Returns the result of a read, or records the refusal of the API server and returns `None`. Fails if there is no answer.
fn answered<T>(read: Result<T, Error>, refused: &mut Vec<Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_an_answer() => {
            refused.push(error);
            Ok(None)
        }
        read => read.map(Some),
    }
}
