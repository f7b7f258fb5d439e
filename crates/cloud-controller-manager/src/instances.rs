//! Questions about instances, as the controllers ask the driver (IO).
//!
//! Where several nodes need an answer at once, one list of the account answers all of them. Only what is not in the list is asked for
//! alone, because only the driver's own `NotFound` counts.
//!
//! Before an answer changes a node, the account is verified: a driver may have connected again, to the cloud of another account.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_drivers::contract::{Driver, Error, ErrorKind, Filter, Instance, Instances, Result};
use tokio::time::Instant;

/// The age up to which a list answers for several nodes.
const FRESH: Duration = Duration::from_secs(2);

/// From this number of nodes on, one list is asked for and not each instance.
pub(crate) const SEVERAL: usize = 4;

/// The cloud of the driver.
pub(crate) struct Cloud {
    driver: Arc<dyn Driver>,
    /// The last list of all instances.
    listing: tokio::sync::Mutex<Option<Listing>>,
    /// When the last verification of the account began that succeeded.
    verified: tokio::sync::Mutex<Option<Instant>>,
    /// The beginnings of the providerIDs of this cloud, such as `docker://`, learned from its instances.
    schemes: Mutex<BTreeSet<String>>,
}

struct Listing {
    /// When it was asked for.
    begun: Instant,
    result: Result<List>,
}

/// All instances of the account.
#[derive(Clone)]
pub(crate) struct List {
    pub(crate) instances: Arc<Vec<Instance>>,
    /// When they were answered.
    answered: Instant,
}

/// The instance of a node.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) instance: Instance,
    /// When it was answered.
    answered: Instant,
}

/// A node, as the cloud knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// `spec.providerID`, or an empty text.
    pub(crate) provider_id: &'a str,
    /// The name of the node, which is that of its instance where it has no providerID.
    pub(crate) name: &'a str,
}

impl Cloud {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            driver,
            listing: tokio::sync::Mutex::default(),
            verified: tokio::sync::Mutex::default(),
            schemes: Mutex::default(),
        }
    }

    fn instances(&self) -> Result<&dyn Instances> {
        self.driver.instances().ok_or_else(|| Error::not_supported("the driver does not have the capability instances"))
    }

    /// Makes sure that an answer is of the account that was used first, before a node is changed by it.
    pub(crate) async fn confirm(&self, answer: &Answer) -> Result<()> {
        self.verify_after(answer.answered).await
    }

    /// Verifies the account, unless that has been done since this time. Another account than the first one is an error.
    pub(crate) async fn verify_after(&self, time: Instant) -> Result<()> {
        let mut verified = self.verified.lock().await;
        if verified.is_some_and(|begun| begun >= time) {
            return Ok(());
        }
        let begun = Instant::now();
        self.driver.account().verify().await?;
        *verified = Some(begun);
        Ok(())
    }

    /// Finds the instance of a node. If `is_one_of_several`, one list may answer, which was asked for at most two seconds before `since`.
    pub(crate) async fn find(&self, node: Key<'_>, is_one_of_several: bool, since: Instant) -> Result<Answer> {
        if is_one_of_several {
            match self.list(since).await {
                Ok(all) => {
                    if let Some(instance) = only(&all.instances, node)? {
                        return Ok(Answer { instance, answered: all.answered });
                    }
                }
                Err(error) if error.kind.is_transient() => return Err(error),
                // A driver that may not list may still know single instances.
                Err(_) => {}
            }
        }
        let instance = self.get(node).await?;
        self.learn(std::slice::from_ref(&instance));
        Ok(Answer { instance, answered: Instant::now() })
    }

    async fn get(&self, node: Key<'_>) -> Result<Instance> {
        let instances = self.instances()?;
        if !node.provider_id.is_empty() {
            return instances.get_by_provider_id(node.provider_id).await;
        }
        let filter = Filter { name: Some(node.name.to_owned()), ..Filter::default() };
        let all = instances.list(&filter).await?;
        let found = only(&all, node)?;
        found.ok_or_else(|| Error::not_found(format!("no instance has the name {:?}", node.name)))
    }

    /// Lists all instances of the account. A list that was asked for at most two seconds before `since` is not asked for again.
    pub(crate) async fn list(&self, since: Instant) -> Result<List> {
        let mut listing = self.listing.lock().await;
        if let Some(known) = listing.as_ref().filter(|known| known.begun + FRESH >= since) {
            return known.result.clone();
        }
        let begun = Instant::now();
        let result = match self.instances() {
            Ok(instances) => instances.list(&Filter::default()).await,
            Err(error) => Err(error),
        };
        let result = result.map(|all| List { instances: Arc::new(all), answered: Instant::now() });
        if let Ok(all) = &result {
            self.learn(&all.instances);
        }
        *listing = Some(Listing { begun, result: result.clone() });
        result
    }

    /// Lists all instances of the account anew: the proof that one of them is gone.
    pub(crate) async fn list_begun_after(&self, since: Instant) -> Result<List> {
        self.list(since + FRESH).await
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
        let schemes = self.schemes();
        Ok(!schemes.is_empty() && !ccm_core::provider::owns(&schemes, provider_id))
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
            format!(
                "the instances {:?} and {:?} both fit the node {name:?} with the providerID {provider_id:?}",
                one.id, other.id
            ),
        )),
        (found, _) => Ok(found.cloned()),
    }
}
