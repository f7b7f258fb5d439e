//! Changes of regions and zones.

use async_trait::async_trait;
use ccm_drivers::contract::{Driver, Filter, Instance, InstanceSpec, Result, Zone};

use super::{Change, of};

/// I9: two regions have a zone of one id.
pub(super) struct ZoneInTwoRegions;

#[async_trait]
impl Change for ZoneInTwoRegions {
    async fn zones(&self, next: &dyn Driver, region: Option<&str>) -> Result<Vec<Zone>> {
        let mut zones = next.topology().zones(region).await?;
        for zone in &mut zones {
            zone.id = zone.id.replace("south", "north");
        }
        Ok(zones)
    }
}

/// Whether a place is one of the cloud: what is none is refused as before.
async fn exists(next: &dyn Driver, place: &str) -> Result<bool> {
    Ok(next.topology().zones(None).await?.iter().any(|zone| zone.id == place || zone.region == place))
}

/// I9: an instance is made in the first zone, whatever other one was asked for.
pub(super) struct AlwaysTheFirstZone;

#[async_trait]
impl Change for AlwaysTheFirstZone {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let mut spec = spec.clone();
        if exists(next, &spec.zone).await? {
            (spec.region, spec.zone) = (String::new(), String::new());
        }
        of(next).create(&spec).await
    }
}

/// I9: the answer has the region that was asked for, and the first zone.
pub(super) struct AnswersTheFirstZone;

#[async_trait]
impl Change for AnswersTheFirstZone {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        Ok(Instance { zone: "north-1".to_owned(), ..of(next).create(spec).await? })
    }
}

/// I9: the list of a region is that of all.
pub(super) struct ListsEveryRegion;

#[async_trait]
impl Change for ListsEveryRegion {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut filter = filter.clone();
        if exists(next, filter.region.as_deref().unwrap_or_default()).await? {
            filter.region = None;
        }
        of(next).list(&filter).await
    }
}

/// I9: the list of a zone is that of all.
pub(super) struct ListsEveryZone;

#[async_trait]
impl Change for ListsEveryZone {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut filter = filter.clone();
        if exists(next, filter.zone.as_deref().unwrap_or_default()).await? {
            filter.zone = None;
        }
        of(next).list(&filter).await
    }
}
