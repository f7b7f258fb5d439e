//! A driver whose operations have the limit of the run. What takes longer is a problem of the check, and a Timeout.

use std::fmt;

use super::{Context, locked};
use crate::contract::{
    AccountInfo, Driver, Error, ErrorKind, Filter, Instance, InstanceSpec, Instances, Inventory, Region, Resource,
    ResourceKind, Result, Usage, Zone,
};

/// How often the limit of an operation `create` may take.
const LIMITS_OF_CREATE: u32 = 10;

/// An opened driver.
pub(in super::super) struct Client<'c> {
    driver: Box<dyn Driver>,
    context: &'c Context<'c>,
}

/// An operation, for the checks that expect the same of many.
#[derive(Clone)]
pub(in super::super) enum Operation {
    Verify,
    Regions,
    Zones,
    Inventory(ResourceKind),
    List,
    Get(String),
    Usage(String),
    Create(Box<InstanceSpec>),
    Start(String),
    Stop(String),
    Delete(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verify => f.write_str("verify"),
            Self::Regions => f.write_str("the list of regions"),
            Self::Zones => f.write_str("the list of zones"),
            Self::Inventory(kind) => write!(f, "the list of {}", kind.plural()),
            Self::List => f.write_str("the list of instances"),
            Self::Get(id) => write!(f, "get of {id:?}"),
            Self::Usage(id) => write!(f, "the metrics of {id:?}"),
            Self::Create(spec) => write!(f, "create of {:?}", spec.name),
            Self::Start(id) => write!(f, "start of {id:?}"),
            Self::Stop(id) => write!(f, "stop of {id:?}"),
            Self::Delete(id) => write!(f, "delete of {id:?}"),
        }
    }
}

impl Context<'_> {
    /// Waits for an operation, for as long as some limits.
    pub(in super::super) async fn within<T>(
        &self,
        what: impl fmt::Display,
        limits: u32,
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let limit = self.plan.limit.saturating_mul(limits);
        if limit.is_zero() {
            return operation.await;
        }
        tokio::time::timeout(limit, operation).await.unwrap_or_else(|_| {
            let problem = format!("{what}: no answer within {limit:?}");
            self.problem(problem.clone());
            Err(Error::new(ErrorKind::Timeout, problem))
        })
    }
}

impl<'c> Client<'c> {
    pub(super) fn new(driver: Box<dyn Driver>, context: &'c Context<'c>) -> Self {
        Self { driver, context }
    }

    pub(in super::super) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    pub(in super::super) fn has_instances(&self) -> bool {
        self.driver.instances().is_some()
    }

    fn instances(&self) -> Result<&dyn Instances> {
        self.driver.instances().ok_or_else(|| Error::not_supported("the driver has no instances"))
    }

    /// The operations that read and that the driver has. `id` is of an instance.
    pub(in super::super) fn reads(&self, id: &str) -> Vec<Operation> {
        let mut all = vec![Operation::Verify];
        all.extend(self.driver.inventory().into_iter().flat_map(Inventory::kinds).copied().map(Operation::Inventory));
        if self.has_instances() {
            all.extend([Operation::List, Operation::Get(id.to_owned())]);
        }
        all.extend(self.driver.metrics().map(|_| Operation::Usage(id.to_owned())));
        all
    }

    pub(in super::super) async fn perform(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Verify => self.verify().await.map(drop),
            Operation::Regions => self.regions().await.map(drop),
            Operation::Zones => self.zones(None).await.map(drop),
            Operation::Inventory(kind) => self.resources(*kind, None).await.map(drop),
            Operation::List => self.list(&Filter::default()).await.map(drop),
            Operation::Get(id) => self.get(id).await.map(drop),
            Operation::Usage(id) => self.usage(id).await.map(drop),
            Operation::Create(spec) => self.create(spec).await.map(drop),
            Operation::Start(id) => self.start(id).await,
            Operation::Stop(id) => self.stop(id).await,
            Operation::Delete(id) => self.delete(id).await,
        }
    }

    pub(in super::super) async fn verify(&self) -> Result<AccountInfo> {
        self.context.within(Operation::Verify, 1, self.driver.account().verify()).await
    }

    pub(in super::super) async fn regions(&self) -> Result<Vec<Region>> {
        self.context.within(Operation::Regions, 1, self.driver.topology().regions()).await
    }

    pub(in super::super) async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        self.context.within(Operation::Zones, 1, self.driver.topology().zones(region)).await
    }

    pub(in super::super) async fn resources(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        let inventory = self.driver.inventory().ok_or_else(|| Error::not_supported("the driver has no inventory"))?;
        self.context.within(Operation::Inventory(kind), 1, inventory.list(kind, region)).await
    }

    pub(in super::super) async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        self.context.within(Operation::List, 1, self.instances()?.list(filter)).await
    }

    pub(in super::super) async fn get(&self, id: &str) -> Result<Instance> {
        self.context.within(Operation::Get(id.to_owned()), 1, self.instances()?.get(id)).await
    }

    pub(in super::super) async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let get = self.instances()?.get_by_provider_id(provider_id);
        self.context.within(format!("get of the providerID {provider_id:?}"), 1, get).await
    }

    pub(in super::super) async fn usage(&self, id: &str) -> Result<Usage> {
        let metrics = self.driver.metrics().ok_or_else(|| Error::not_supported("the driver has no metrics"))?;
        self.context.within(Operation::Usage(id.to_owned()), 1, metrics.usage(id)).await
    }

    pub(in super::super) async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        let what = Operation::Create(Box::new(spec.clone()));
        let create = self.instances()?.create(spec);
        self.context.asks_for_an_instance();
        let made = self.context.within(what, LIMITS_OF_CREATE, create).await;
        let id = match &made {
            Ok(instance) => Some(&instance.id),
            Err(error) => error.instance.as_ref(),
        };
        locked(&self.context.made).extend(id.cloned());
        made
    }

    pub(in super::super) async fn start(&self, id: &str) -> Result<()> {
        self.context.within(Operation::Start(id.to_owned()), 1, self.instances()?.start(id)).await
    }

    pub(in super::super) async fn stop(&self, id: &str) -> Result<()> {
        self.context.within(Operation::Stop(id.to_owned()), 1, self.instances()?.stop(id)).await
    }

    pub(in super::super) async fn delete(&self, id: &str) -> Result<()> {
        self.context.within(Operation::Delete(id.to_owned()), 1, self.instances()?.delete(id)).await?;
        locked(&self.context.deleted).insert(id.to_owned());
        Ok(())
    }

    /// Ends the connections of a driver, so that many can be opened one after the other.
    pub(in super::super) async fn close(self) -> Result<()> {
        self.context.within("close", 1, self.driver.close()).await
    }
}
