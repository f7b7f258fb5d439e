//! The changes, each wrong in one way.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use ccm_drivers::{
    contract::{
        AccountInfo, CommandOutput, Driver, Error, ErrorKind, Filter, Instance, InstanceSpec, Result, State, Zone,
    },
    settings::{ACCOUNT_ID, Values},
};

use super::{Change, of};

mod places;

use places::{AlwaysTheFirstZone, AnswersTheFirstZone, ListsEveryRegion, ListsEveryZone, ZoneInTwoRegions};

/// Makes the change of a driver that is opened with some values.
pub(super) type Make = fn(&Values) -> Box<dyn Change>;

/// The broken drivers by the check that each fails, in the order of the checks.
pub(super) static BROKEN: [(&str, Make); 28] = [
    ("I1", |_| Box::new(TakesAnotherSpec)),
    ("I2", |_| Box::new(DeletesOnce)),
    ("I3", |_| Box::new(GoneIsInternal)),
    ("I3", |_| Box::new(NowhereIsEmpty)),
    ("I3", |_| Box::new(NowhereIsNotFound)),
    ("I4", |_| Box::new(StoppedIsGone)),
    ("I5", |_| Box::new(LosesTheId)),
    ("I6", |_| Box::new(KeepsTheImage(Mutex::default()))),
    ("I6", |_| Box::new(OneImage)),
    ("I7", |values| Box::new(WrongIsUnavailable(values.text(ACCOUNT_ID).is_none()))),
    ("I8", |_| Box::new(UnavailableIsGone)),
    ("I9", |_| Box::new(ZoneInTwoRegions)),
    ("I9", |_| Box::new(AlwaysTheFirstZone)),
    ("I9", |_| Box::new(AnswersTheFirstZone)),
    ("I9", |_| Box::new(ListsEveryRegion)),
    ("I9", |_| Box::new(ListsEveryZone)),
    ("I10", |_| Box::new(RunsNothing)),
    ("I11", |_| Box::new(DropsEmptyLabels)),
    ("I12", |_| Box::new(Panics)),
    ("I13", |_| Box::new(OtherProviderId)),
    ("I14", |_| Box::new(FindsByBeginning)),
    ("I15", |_| Box::new(OneAtATime(AtomicBool::new(false)))),
    ("I16", |_| Box::new(NeedsItsSettings)),
    ("I17", |_| Box::new(AnyAccount)),
    ("I18", |_| Box::new(KeepsLabels(Mutex::default()))),
    ("I19", |_| Box::new(IgnoresTheZone)),
    ("I19", |_| Box::new(WrongNetworkIsGone)),
    ("I19", |_| Box::new(LeavesAnother)),
];

/// I1: an instance of another spec is as good.
struct TakesAnotherSpec;

#[async_trait]
impl Change for TakesAnotherSpec {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let filter = Filter { owner: Some(spec.key.clone()), ..Filter::default() };
        match of(next).create(spec).await {
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                of(next).list(&filter).await?.into_iter().next().ok_or(error)
            }
            made => made,
        }
    }
}

/// I2: what is gone cannot be deleted.
struct DeletesOnce;

#[async_trait]
impl Change for DeletesOnce {
    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        of(next).get(id).await?;
        of(next).delete(id).await
    }
}

/// I3: an instance that is gone is a fault.
struct GoneIsInternal;

#[async_trait]
impl Change for GoneIsInternal {
    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        of(next)
            .get(id)
            .await
            .map_err(|error| Error::new(turned(error.kind, &ErrorKind::NotFound, ErrorKind::Internal), id))
    }
}

/// I3: a region or a zone that does not exist has no instances.
struct NowhereIsEmpty;

#[async_trait]
impl Change for NowhereIsEmpty {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        match of(next).list(filter).await {
            Err(Error { kind: ErrorKind::InvalidArgument(_), .. }) => Ok(Vec::new()),
            listed => listed,
        }
    }
}

/// I3: a region that does not exist is gone.
struct NowhereIsNotFound;

#[async_trait]
impl Change for NowhereIsNotFound {
    async fn zones(&self, next: &dyn Driver, region: Option<&str>) -> Result<Vec<Zone>> {
        let invalid = ErrorKind::InvalidArgument("region".to_owned());
        let listed = next.topology().zones(region).await;
        listed.map_err(|error| Error::new(turned(error.kind, &invalid, ErrorKind::NotFound), error.message))
    }
}

fn turned(kind: ErrorKind, from: &ErrorKind, to: ErrorKind) -> ErrorKind {
    if kind == *from { to } else { kind }
}

/// I4: an instance that is stopped is gone.
struct StoppedIsGone;

#[async_trait]
impl Change for StoppedIsGone {
    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        let got = of(next).get(id).await?;
        if got.state == State::Stopped { Err(Error::not_found("it does not run")) } else { Ok(got) }
    }
}

/// I5: a create that fails does not say what it has made.
struct LosesTheId;

#[async_trait]
impl Change for LosesTheId {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        of(next).create(spec).await.map_err(|error| Error { instance: None, ..error })
    }
}

/// I6: the image of a call is the default of the next.
struct KeepsTheImage(Mutex<String>);

#[async_trait]
impl Change for KeepsTheImage {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let mut spec = spec.clone();
        if spec.image.is_empty() {
            spec.image.clone_from(&self.0.lock().unwrap());
        } else {
            self.0.lock().unwrap().clone_from(&spec.image);
        }
        of(next).create(&spec).await
    }
}

/// I6: the second image is the first one.
struct OneImage;

#[async_trait]
impl Change for OneImage {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let image = if spec.image == "fedora" { String::new() } else { spec.image.clone() };
        of(next).create(&InstanceSpec { image, ..spec.clone() }).await
    }
}

/// I7: a cloud that refuses the credentials is away.
struct WrongIsUnavailable(bool);

#[async_trait]
impl Change for WrongIsUnavailable {
    async fn verify(&self, next: &dyn Driver) -> Result<AccountInfo> {
        let to = if self.0 { ErrorKind::Unavailable } else { ErrorKind::InvalidCredentials };
        let verified = next.account().verify().await;
        verified.map_err(|error| Error::new(turned(error.kind, &ErrorKind::InvalidCredentials, to), "login"))
    }
}

/// I8: an instance is gone while the cloud is away.
struct UnavailableIsGone;

#[async_trait]
impl Change for UnavailableIsGone {
    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        let got = of(next).get(id).await;
        got.map_err(|error| Error::new(turned(error.kind, &ErrorKind::Unavailable, ErrorKind::NotFound), id))
    }
}

/// I10: commands are advertised, and not there.
struct RunsNothing;

#[async_trait]
impl Change for RunsNothing {
    async fn run(&self, _next: &dyn Driver, _id: &str, _command: &[String]) -> Result<CommandOutput> {
        Err(Error::not_supported("not yet"))
    }
}

/// I11: the list has no labels without a value.
struct DropsEmptyLabels;

#[async_trait]
impl Change for DropsEmptyLabels {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut all = of(next).list(filter).await?;
        for one in &mut all {
            one.labels.retain(|_, value| !value.is_empty());
        }
        Ok(all)
    }
}

/// I12: an answer that is none ends it.
struct Panics;

#[async_trait]
impl Change for Panics {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let listed = of(next).list(filter).await;
        assert!(!matches!(&listed, Err(error) if error.kind == ErrorKind::Internal), "an odd answer");
        listed
    }
}

/// I13: the providerID has another form in one of the answers.
struct OtherProviderId;

#[async_trait]
impl Change for OtherProviderId {
    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        Ok(Instance { provider_id: format!("fake:///{id}"), ..of(next).get(id).await? })
    }
}

/// I14: the beginning of an id is enough.
struct FindsByBeginning;

#[async_trait]
impl Change for FindsByBeginning {
    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        match of(next).get(id).await {
            Err(error) if error.is_not_found() => {
                let all = of(next).list(&Filter::default()).await?;
                all.into_iter().find(|one| one.id.starts_with(id)).ok_or(error)
            }
            got => got,
        }
    }
}

/// I15: a create is refused while another one goes on.
struct OneAtATime(AtomicBool);

#[async_trait]
impl Change for OneAtATime {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        if self.0.swap(true, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::AlreadyExists, "it is made at this moment"));
        }
        let made = of(next).create(spec).await;
        self.0.store(false, Ordering::SeqCst);
        made
    }
}

/// I16: what only create needs is checked by delete.
struct NeedsItsSettings;

#[async_trait]
impl Change for NeedsItsSettings {
    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        next.account().verify_settings().await?;
        of(next).delete(id).await
    }
}

/// I17: the account may be any.
struct AnyAccount;

#[async_trait]
impl Change for AnyAccount {
    fn values(&self, values: &Values) -> Values {
        values.clone().with(ACCOUNT_ID, "")
    }
}

/// I18: the list keeps the labels of names that it has seen.
struct KeepsLabels(Mutex<BTreeMap<String, BTreeMap<String, String>>>);

#[async_trait]
impl Change for KeepsLabels {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut all = of(next).list(filter).await?;
        let mut kept = self.0.lock().unwrap();
        for one in &mut all {
            one.labels = kept.entry(one.name.clone()).or_insert_with(|| one.labels.clone()).clone();
        }
        Ok(all)
    }
}

/// I19: a zone that does not exist is any zone.
struct IgnoresTheZone;

#[async_trait]
impl Change for IgnoresTheZone {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let exists = next.topology().zones(None).await?.iter().any(|zone| zone.id == spec.zone);
        let zone = if exists { spec.zone.clone() } else { String::new() };
        of(next).create(&InstanceSpec { zone, ..spec.clone() }).await
    }
}

/// I19: a network that does not exist is an instance that does not exist.
struct WrongNetworkIsGone;

#[async_trait]
impl Change for WrongNetworkIsGone {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        let invalid = ErrorKind::InvalidArgument("networks".to_owned());
        let made = of(next).create(spec).await;
        made.map_err(|error| Error { kind: turned(error.kind.clone(), &invalid, ErrorKind::NotFound), ..error })
    }
}

/// I19: an instance type is looked at after something was made.
struct LeavesAnother;

#[async_trait]
impl Change for LeavesAnother {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        match of(next).create(spec).await {
            Err(error) if error.kind == ErrorKind::InvalidArgument("instanceType".to_owned()) => {
                of(next).create(&InstanceSpec { instance_type: String::new(), ..spec.clone() }).await?;
                Err(error)
            }
            made => made,
        }
    }
}
