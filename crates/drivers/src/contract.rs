//! The contract of a driver (pure): what a cloud can be asked, and what the answers mean. docs/drivers/contract.md has it for
//! people, with the terms of other systems.
//!
//! - Capabilities follow from the traits that a driver implements: [`Driver`] has a method for each optional one.
//! - Only [`ErrorKind::NotFound`] may lead to a deletion: of a Node, of a finalizer, of a record. It means that the cloud was
//!   reached with the right credentials, looked in the right account, and does not have it.
//! - All operations can be repeated: see [`Instances`].
//! - Nothing that only `create` needs (an image, a network, an instance type) is looked at by another operation.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::settings::{Setting, Values};

mod error;
mod instance;
mod resource;

pub use error::{Error, ErrorKind, Result};
pub use instance::{Address, AddressKind, Filter, Instance, InstanceSpec, Marks, State, UserData, rfc3339};
pub use resource::{CommandOutput, Region, Resource, ResourceKind, Usage, Zone};

/// What a driver may be capable of. A capability is advertised by the trait that implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// [`Account`].
    Account,
    /// [`Topology`].
    Topology,
    /// [`Instances`].
    Instances,
    /// [`Inventory`], of one kind.
    Inventory(ResourceKind),
    /// [`Metrics`].
    Metrics,
    /// [`RunCommand`].
    RunCommand,
}

/// How a driver has a capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mode {
    /// Nothing can be changed.
    pub read_only: bool,
    /// The cloud has no such thing, and the driver answers as if it had one, such as the only region of a private cloud.
    pub emulated: bool,
}

/// Where a driver connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A host and a port.
    Tcp(String, u16),
    /// The socket of this path.
    Unix(std::path::PathBuf),
}

/// A driver before it has an account: its name and its settings.
#[async_trait]
pub trait DriverType: Send + Sync {
    /// The name of the cloud, such as `docker`: lowercase letters, digits and hyphens.
    fn name(&self) -> &str;

    /// One sentence for the help.
    fn summary(&self) -> &str;

    /// Its own settings, besides [`crate::settings::COMMON`].
    fn settings(&self) -> &[Setting];

    /// The options of `create` that only this driver has.
    fn options(&self) -> &[Setting] {
        &[]
    }

    /// Returns a driver for an account, without a request to the cloud. The values are of all settings. Where the setting
    /// `accountID` has a value, the driver gives no answer of another account: each time that it reconnects it looks again.
    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>>;

    /// Returns the place that a driver with these values connects to, for checks that stand in between; `None` if there is
    /// none.
    async fn endpoint(&self, _values: &Values) -> Result<Option<Endpoint>> {
        Ok(None)
    }

    /// Returns the values with which the driver connects to another place and talks to the same cloud there.
    async fn through(&self, values: &Values, _endpoint: &Endpoint) -> Result<Values> {
        Ok(values.clone())
    }
}

/// A driver with an account. Use it by [`crate::middleware::Session`], which verifies the credentials first.
#[async_trait]
pub trait Driver: Send + Sync {
    /// The account.
    fn account(&self) -> &dyn Account;

    /// Regions and zones.
    fn topology(&self) -> &dyn Topology;

    /// Instances, if it has any.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// What instances are made of and run on, to look at.
    fn inventory(&self) -> Option<&dyn Inventory> {
        None
    }

    /// What instances use.
    fn metrics(&self) -> Option<&dyn Metrics> {
        None
    }

    /// Commands inside of instances.
    fn run_command(&self) -> Option<&dyn RunCommand> {
        None
    }

    /// How it has a capability.
    fn mode(&self, _capability: Capability) -> Mode {
        Mode::default()
    }

    /// Ends connections and whatever else belongs to the driver; nothing in the cloud changes.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Who the credentials belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountInfo {
    /// The id of the account: the same for as long as it exists, and of no other account of this kind of cloud.
    pub id: String,
    /// The name that people give to it, or an empty text.
    pub name: String,
    /// Parts of the account with instances of their own, such as subscriptions or projects; empty if it has none.
    pub sub_accounts: Vec<SubAccount>,
}

impl AccountInfo {
    /// The id of the account and those of its parts. Two accounts that have one of them in common have instances in common.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.id.as_str()).chain(self.sub_accounts.iter().map(|part| part.id.as_str()))
    }
}

/// A part of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubAccount {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// The account of the credentials.
#[async_trait]
pub trait Account: Send + Sync {
    /// Asks the cloud who the credentials belong to. Wrong credentials are [`ErrorKind::InvalidCredentials`], and never
    /// `NotFound`.
    async fn verify(&self) -> Result<AccountInfo>;

    /// Checks what the settings name and only `create` needs: that the default image, network and instance type exist.
    async fn verify_settings(&self) -> Result<()> {
        Ok(())
    }
}

/// Regions and zones. Their ids are unique in an account: no region has the id of a zone, and a zone is in one region.
#[async_trait]
pub trait Topology: Send + Sync {
    /// The text that stands before the ids of regions and zones where those of several clouds stand together, such as `docker/`.
    fn id_prefix(&self) -> String;

    /// All regions.
    async fn regions(&self) -> Result<Vec<Region>>;

    /// The zones of a region, or of all. A region that does not exist is `InvalidArgument` of the field `region`.
    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>>;

    /// A region by its id. One that does not exist is `NotFound`.
    async fn region(&self, id: &str) -> Result<Region> {
        let found = self.regions().await?.into_iter().find(|region| region.id == id);
        found.ok_or_else(|| Error::not_found(format!("there is no region {id:?}")))
    }

    /// A zone by its id. One that does not exist is `NotFound`.
    async fn zone(&self, id: &str) -> Result<Zone> {
        let found = self.zones(None).await?.into_iter().find(|zone| zone.id == id);
        found.ok_or_else(|| Error::not_found(format!("there is no zone {id:?}")))
    }
}

/// Instances: what becomes a node.
///
/// Ids are whole and exact: the beginning of an id, a name, or the id of an instance that is gone never means another
/// instance. What was deleted is not in the next answer.
#[async_trait]
pub trait Instances: Send + Sync {
    /// The instances that fit a filter, whoever made them. A region or a zone of the filter that does not exist is `InvalidArgument` of
    /// the field `region` or `zone`: with an empty list, a typo would look as if all instances were gone.
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>>;

    /// An instance by its id. One that is stopped exists. One that is gone is `NotFound`.
    async fn get(&self, id: &str) -> Result<Instance>;

    /// The instance of a Node with this `spec.providerID`, as [`Instances::get`]. Several instances with it are `Internal`. Unless a
    /// driver has a shorter way, it is looked for in the list of all.
    async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let all = self.list(&Filter::default()).await?;
        let mut found = all.into_iter().filter(|instance| instance.provider_id == provider_id);
        match (found.next(), found.next()) {
            (Some(instance), None) => Ok(instance),
            (None, _) => Err(Error::not_found(format!("no instance has the providerID {provider_id:?}"))),
            (Some(one), Some(other)) => Err(Error::new(
                ErrorKind::Internal,
                format!("the instances {:?} and {:?} both have the providerID {provider_id:?}", one.id, other.id),
            )),
        }
    }

    /// Makes an instance and starts it. Repeated with the same key and the same rest it returns the same instance; with the
    /// same key or name and another rest it is `AlreadyExists`. The cluster is no part of the comparison. An empty key or name is
    /// `InvalidArgument` of the field, and so are a region, zone, image, instance type or network that does not exist, and a label that
    /// begins with [`Marks::PREFIX`], of `labels`. A failure after something was made carries the id. Nothing of one call is left for
    /// the next.
    async fn create(&self, spec: &InstanceSpec) -> Result<Instance>;

    /// Deletes an instance and what was made with it. One that is gone is a success. One without [`Marks`] of an owner, which
    /// others have made, is Forbidden.
    async fn delete(&self, id: &str) -> Result<()>;

    /// Starts an instance; one that runs is a success. One without an owner is Forbidden, as for [`Instances::delete`]. One whose
    /// creation has not finished may be `InvalidArgument` of the field `id`: `create` has to be repeated.
    async fn start(&self, id: &str) -> Result<()>;

    /// Stops an instance; one that is stopped is a success. One without an owner is Forbidden, as for [`Instances::delete`].
    async fn stop(&self, id: &str) -> Result<()>;
}

/// What instances are made of and run on, to look at.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// The kinds that this cloud has.
    fn kinds(&self) -> &[ResourceKind];

    /// Those of a kind, of a region or of all. A kind that is not in [`Inventory::kinds`] is `NotSupported`, and a region that
    /// does not exist is `InvalidArgument` of the field `region`.
    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>>;

    /// One by its global id.
    async fn get(&self, kind: ResourceKind, id: &str) -> Result<Resource> {
        let found = self.list(kind, None).await?.into_iter().find(|resource| resource.id == id);
        found.ok_or_else(|| Error::not_found(format!("there is no {} {id:?}", kind.word())))
    }
}

/// What instances use.
#[async_trait]
pub trait Metrics: Send + Sync {
    /// What an instance has used.
    async fn usage(&self, id: &str) -> Result<Usage>;
}

/// Commands inside of instances.
#[async_trait]
pub trait RunCommand: Send + Sync {
    /// Runs a command inside of an instance that runs, and waits for its end. If the instance does not run, it is
    /// `InvalidArgument` of the field `id`. An instance without an owner is Forbidden, as for [`Instances::delete`]. The layer waits
    /// as long as for `create`; a command that takes longer goes on inside of the instance.
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput>;
}

/// Returns the capabilities that a driver advertises, each with its mode.
pub fn capabilities(driver: &dyn Driver) -> BTreeMap<Capability, Mode> {
    let mut all = vec![Capability::Account, Capability::Topology];
    all.extend(driver.instances().map(|_| Capability::Instances));
    all.extend(driver.inventory().into_iter().flat_map(Inventory::kinds).map(|kind| Capability::Inventory(*kind)));
    all.extend(driver.metrics().map(|_| Capability::Metrics));
    all.extend(driver.run_command().map(|_| Capability::RunCommand));
    all.into_iter().map(|capability| (capability, driver.mode(capability))).collect()
}

impl Capability {
    /// Its name, such as `instances` or `networks`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Topology => "topology",
            Self::Instances => "instances",
            Self::Inventory(kind) => kind.plural(),
            Self::Metrics => "metrics",
            Self::RunCommand => "run-command",
        }
    }
}
