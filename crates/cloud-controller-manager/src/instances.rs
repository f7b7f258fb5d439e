//! Questions about instances, as the controllers ask the driver (IO).
//!
//! Where several nodes need an answer at once, one list of the account answers all of them. Only what is not in the list is asked for
//! alone, because only the driver's own `NotFound` counts.
//!
//! Each answer is of the account that was used first: `cloud_driver.rs` opens the driver with its id, and then a driver has no answer of
//! another one.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_base::error::brief;
use ccm_drivers::contract::{Driver, Error, ErrorKind, Filter, Instance, Instances, Result};
use tokio::time::Instant;

/// The age up to which a list answers for nodes that have changed after it was asked for.
const FRESH: Duration = Duration::from_secs(2);

/// The age up to which a list answers at all: with thousands of nodes, the last ones wait for minutes.
const OLDEST: Duration = Duration::from_secs(30);

/// From this number of nodes on, one list is asked for and not each instance.
pub(crate) const SEVERAL: usize = 4;

/// The cloud of the driver.
pub(crate) struct Cloud {
    driver: Arc<dyn Driver>,
    /// The last list of all instances.
    listing: tokio::sync::Mutex<Option<Listing>>,
    /// The beginnings of the providerIDs of this cloud, such as `docker://`, learned from its instances.
    schemes: Mutex<BTreeSet<String>>,
}

struct Listing {
    /// When it was asked for.
    begun: Instant,
    result: Result<Arc<Vec<Instance>>>,
}

/// A node, as the cloud knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// `spec.providerID`, or an empty text.
    pub(crate) provider_id: &'a str,
    /// The name of the node, which is that of its instance where it has no providerID.
    pub(crate) name: &'a str,
}

impl fmt::Display for Key<'_> {
    /// What its instance has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, text) =
            if self.provider_id.is_empty() { ("name", self.name) } else { ("providerID", self.provider_id) };
        write!(f, "{what} {:?}", brief(text))
    }
}

impl Cloud {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, listing: tokio::sync::Mutex::default(), schemes: Mutex::default() }
    }

    fn instances(&self) -> Result<&dyn Instances> {
        self.driver.instances().ok_or_else(|| Error::not_supported("the driver does not have the capability instances"))
    }

    /// Verifies once more that the account is the one that was used first. Another one is an error.
    pub(crate) async fn verify(&self) -> Result<()> {
        self.driver.account().verify().await.map(drop)
    }

    /// Finds the instance of a node. If `is_one_of_several`, one list may answer, which was asked for at most two seconds before `since`.
    /// What it does not answer is asked for alone.
    pub(crate) async fn find(&self, node: Key<'_>, is_one_of_several: bool, since: Instant) -> Result<Instance> {
        if is_one_of_several {
            match self.list(since).await.map(|all| only(&all, node)) {
                Ok(Ok(Some(instance))) => return Ok(instance),
                Err(error) if error.kind.is_transient() => return Err(error),
                // A driver that may not list may still know single instances.
                Ok(_) | Err(_) => {}
            }
        }
        let instance = self.get(node).await?;
        self.learn(std::slice::from_ref(&instance));
        Ok(instance)
    }

    async fn get(&self, node: Key<'_>) -> Result<Instance> {
        let instances = self.instances()?;
        if !node.provider_id.is_empty() {
            return instances.get_by_provider_id(node.provider_id).await;
        }
        let filter = Filter { name: Some(node.name.to_owned()), ..Filter::default() };
        let all = instances.list(&filter).await?;
        let found = only(&all, node)?;
        found.ok_or_else(|| Error::not_found(format!("no instance has the {node}")))
    }

    /// Lists all instances of the account. A list that was asked for at most two seconds before `since` is not asked for again, and a
    /// failure only if it began after `since`.
    pub(crate) async fn list(&self, since: Instant) -> Result<Arc<Vec<Instance>>> {
        self.list_unless(|known| known.begun >= since || (known.result.is_ok() && known.begun + FRESH >= since)).await
    }

    /// Lists all instances of the account, with a list that was asked for after `since`: the proof that one of them is gone.
    pub(crate) async fn list_begun_after(&self, since: Instant) -> Result<Arc<Vec<Instance>>> {
        self.list_unless(|known| known.begun >= since).await
    }

    async fn list_unless(&self, answers: impl Fn(&Listing) -> bool) -> Result<Arc<Vec<Instance>>> {
        let mut listing = self.listing.lock().await;
        if let Some(known) = listing.as_ref().filter(|known| answers(known) && known.begun.elapsed() < OLDEST) {
            return known.result.clone();
        }
        let begun = Instant::now();
        let result = match self.instances() {
            Ok(instances) => instances.list(&Filter::default()).await.map(Arc::new),
            Err(error) => Err(error),
        };
        if let Ok(all) = &result {
            self.learn(all);
        }
        *listing = Some(Listing { begun, result: result.clone() });
        result
    }

    /// Frees the memory of the last list.
    pub(crate) async fn forget_list(&self) {
        *self.listing.lock().await = None;
    }

    /// Whether a providerID is of another cloud. It is not as long as no instance of this cloud is known.
    pub(crate) async fn is_foreign(&self, provider_id: &str, since: Instant) -> Result<bool> {
        if provider_id.is_empty() {
            return Ok(false);
        }
        if self.schemes().is_empty() {
            match self.list(since).await {
                Err(error) if error.kind.is_transient() => return Err(error),
                _ => {}
            }
        }
        Ok(!self.schemes().is_empty() && !self.owns(provider_id))
    }

    /// Whether a node without a providerID, or with this one, may be of this cloud, as far as its instances are known.
    pub(crate) fn owns(&self, provider_id: &str) -> bool {
        provider_id.is_empty() || ccm_core::provider::owns(&self.schemes(), provider_id)
    }

    /// The beginnings of the providerIDs of this cloud, as far as they are known.
    pub(crate) fn schemes(&self) -> Vec<String> {
        self.schemes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn learn(&self, instances: &[Instance]) {
        let mut schemes = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
        for instance in instances {
            let scheme = instance.provider_id.split_once("://").map(|(scheme, _)| scheme);
            let is_new = |scheme: &&str| !schemes.iter().any(|known| known.strip_suffix("://") == Some(scheme));
            if let Some(new) = scheme.filter(is_new) {
                schemes.insert(format!("{new}://"));
            }
        }
    }
}

/// Returns the instance of a node in a list, if it is there.
fn only(all: &[Instance], node: Key<'_>) -> Result<Option<Instance>> {
    let Key { provider_id, name } = node;
    let mut found =
        all.iter().filter(|one| if provider_id.is_empty() { one.name == name } else { one.provider_id == provider_id });
    match (found.next(), found.next()) {
        (Some(one), Some(other)) => Err(Error::new(
            ErrorKind::Internal,
            format!("the instances {:?} and {:?} both have the {node}", brief(&one.id), brief(&other.id)),
        )),
        (found, _) => Ok(found.cloned()),
    }
}
