use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ccm_drivers::{
    conformance::{self, CHECKS, Outcome, Plan, RUN_LABEL, Report, instance_names},
    contract::{Error, ErrorKind, State},
    settings::{COMMON, Given, problems},
};

use tokio::sync::Notify;

use super::{changes::BROKEN, *};

mod leaves;
mod secrets;
mod slow;

const RUN: &str = "7e57c0de";

fn values() -> Values {
    let fake = Fake::new();
    Values::resolve("fake", fake.settings().iter().chain(&COMMON), &Given::default()).unwrap()
}

fn plan<'a>(driver: &'a dyn DriverType, values: &'a Values) -> Plan<'a> {
    Plan {
        driver,
        values,
        template: InstanceSpec { cluster: "cluster".to_owned(), ..InstanceSpec::default() },
        other_image: Some("fedora".to_owned()),
        wrong_credentials: None,
        read_only: false,
        run: RUN.to_owned(),
        limit: Duration::ZERO,
        only: Vec::new(),
    }
}

async fn run(plan: &Plan<'_>) -> Report {
    conformance::run(plan, &|_| ()).await
}

/// The ids of checks that did not pass, with their outcomes.
fn not_passed(report: &Report) -> Vec<(&'static str, &Outcome)> {
    let results = report.results.iter();
    results.filter(|(_, outcome)| *outcome != Outcome::Passed).map(|(check, outcome)| (check.id, outcome)).collect()
}

async fn all(driver: &dyn DriverType) -> Vec<Instance> {
    let driver = driver.open(&values()).await.unwrap();
    of(&*driver).list(&Filter::default()).await.unwrap()
}

/// Makes an instance of somebody else.
async fn make(driver: &dyn DriverType, name: &str, key: &str, label: Option<&str>) -> Instance {
    let labels = label.map(|label| (RUN_LABEL.to_owned(), label.to_owned())).into_iter().collect();
    let spec = InstanceSpec { name: name.to_owned(), key: key.to_owned(), labels, ..InstanceSpec::default() };
    of(&*driver.open(&values()).await.unwrap()).create(&spec).await.unwrap()
}

#[tokio::test]
async fn the_fake_driver_passes_every_check() {
    let (fake, values) = (Fake::new(), values());
    let report = run(&plan(&fake, &values)).await;
    assert_eq!(not_passed(&report), []);
    assert_eq!(
        report.results.iter().map(|(check, _)| check.id).collect::<Vec<_>>(),
        CHECKS.each_ref().map(|one| one.id)
    );
    assert_eq!((report.driver.as_str(), report.run.as_str(), report.left), ("fake", RUN, Vec::new()));
    assert_eq!(all(&fake).await, []);
}

#[tokio::test]
async fn each_broken_driver_fails_its_check_and_no_other() {
    for (id, make) in &BROKEN {
        let (driver, values) = (Changed { fake: Fake::new(), make }, values());
        let report = run(&plan(&driver, &values)).await;
        match &not_passed(&report)[..] {
            [(failed, Outcome::Failed(problems))] if failed == id => {
                assert!(problems[0].contains(": expected ") || problems[0].contains("panicked"), "{problems:?}");
            }
            other => panic!("{id}: {other:#?}"),
        }
        assert_eq!((report.left, all(&driver.fake).await), (Vec::new(), Vec::new()), "{id}");
    }
    let mut ids = BROKEN.map(|(id, _)| id).to_vec();
    ids.dedup();
    assert_eq!(ids, CHECKS.each_ref().map(|check| check.id));
}

#[test]
fn the_declarations_of_the_driver_have_no_problem() {
    let fake = Fake::new();
    assert_eq!(problems(fake.name(), fake.settings(), fake.options()), [""; 0]);
}

/// Counts instances after each create.
struct Counts {
    creates: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl Change for Counts {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        let made = of(next).create(spec).await;
        if let Ok(all) = of(next).list(&Filter::default()).await {
            self.most.fetch_max(all.len(), Ordering::SeqCst);
        }
        made
    }
}

#[tokio::test]
async fn a_run_makes_few_instances_and_touches_no_others() {
    let (creates, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = |_: &Values| -> Box<dyn Change> { Box::new(Counts { creates: creates.clone(), most: most.clone() }) };
    let (driver, values) = (Changed { fake: Fake::new(), make: counts }, values());
    let name = format!("{}0", instance_names(RUN)[0]);
    for (name, key, label) in [
        ("other", "uid", None),
        ("label-only", "uid-2", Some(RUN)),
        (name.as_str(), "verify-7e57c0de-10", Some(RUN)),
        ("of-another-run", "verify-other-1", Some("other")),
    ] {
        make(&driver.fake, name, key, label).await;
    }
    let before = all(&driver.fake).await;
    let report = run(&plan(&driver, &values)).await;
    assert_eq!(not_passed(&report), []);
    assert_eq!(all(&driver.fake).await, before);
    let most_own = most.load(Ordering::SeqCst) - before.len();
    assert!((1..=5).contains(&most_own), "{most_own}");

    creates.store(0, Ordering::SeqCst);
    for report in [
        run(&Plan { read_only: true, ..plan(&driver, &values) }).await,
        run(&Plan { read_only: true, ..plan(&Fake::new(), &values) }).await,
    ] {
        for (check, outcome) in &report.results {
            let not_run = Outcome::NotRun("it needs instances, and the run only reads".to_owned());
            assert_eq!(*outcome, if check.needs_instances { not_run } else { Outcome::Passed }, "{}", check.id);
        }
    }
    assert_eq!((creates.load(Ordering::SeqCst), all(&driver.fake).await), (0, before));
}

/// Shows the instances of others with one providerID.
struct OthersAreAlike;

#[async_trait]
impl Change for OthersAreAlike {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut all = of(next).list(filter).await?;
        for one in all.iter_mut().filter(|one| !one.labels.contains_key(RUN_LABEL)) {
            (one.marks.owner, one.provider_id) = (None, "fake:///alike".to_owned());
        }
        Ok(all)
    }
}

#[tokio::test]
async fn the_provider_ids_of_others_are_their_own_affair() {
    let alike = |_: &Values| -> Box<dyn Change> { Box::new(OthersAreAlike) };
    let (driver, values) = (Changed { fake: Fake::new(), make: alike }, values());
    for (name, key) in [("one", "uid"), ("other", "uid-2")] {
        make(&driver.fake, name, key, None).await;
    }
    let report = run(&Plan { only: vec!["I9".to_owned()], ..plan(&driver, &values) }).await;
    assert_eq!(not_passed(&report), []);
}

/// Makes nothing.
struct MakesNothing {
    panics: bool,
}

#[async_trait]
impl Change for MakesNothing {
    async fn create(&self, _next: &dyn Driver, _spec: &InstanceSpec) -> Result<Instance> {
        assert!(!self.panics, "a fault");
        Err(Error::new(ErrorKind::Internal, "a fault"))
    }
}

#[tokio::test]
async fn a_create_that_fails_is_reported_once() {
    for panics in [false, true] {
        let make = |_: &Values| -> Box<dyn Change> { Box::new(MakesNothing { panics }) };
        let (driver, values) = (Changed { fake: Fake::new(), make }, values());
        let report = run(&plan(&driver, &values)).await;
        let with_reason = |words: &str| {
            let has = |outcome: &Outcome| outcome.reasons().iter().any(|reason| reason.contains(words));
            report.results.iter().filter(|(_, outcome)| has(outcome)).map(|(check, _)| check.id).collect::<Vec<_>>()
        };
        let others = with_reason("I1 has failed, so no instance can be made");
        let expected = ["I2", "I3", "I4", "I5", "I6", "I9", "I11", "I13", "I14", "I15", "I18", "I19"];
        assert_eq!(others, expected, "{report:?}");
        // The other one asks for a create that has to be refused.
        assert_eq!(with_reason("a fault"), ["I1", "I17"], "{report:?}");
        // Without I1, the check itself says why.
        let report = run(&Plan { only: vec!["I2".to_owned()], ..plan(&driver, &values) }).await;
        assert!(report.results[0].1.reasons()[0].contains("a fault"), "{report:?}");
    }
}

/// Says that an instance is made, and never returns it.
struct Hangs(Arc<Notify>);

#[async_trait]
impl Change for Hangs {
    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        of(next).create(spec).await?;
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_interrupted_run_is_cleaned_up() {
    let made = Arc::new(Notify::new());
    let hangs = |_: &Values| -> Box<dyn Change> { Box::new(Hangs(made.clone())) };
    let (driver, values) = (Changed { fake: Fake::new(), make: hangs }, values());
    let plan = plan(&driver, &values);
    tokio::select! {
        _ = run(&plan) => panic!("it has to hang"),
        () = made.notified() => {}
    }
    let left = all(&driver.fake).await;
    assert_eq!(left.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [&instance_names(RUN)[0]]);
    let opened = driver.open(&values).await.unwrap();
    assert_eq!(conformance::clean_up(&*opened, Some(RUN), Duration::ZERO).await.unwrap().deleted, left);
    assert_eq!(all(&driver.fake).await, []);
}

/// Is unavailable for some reads after a deletion: longer than one list and one get of it.
struct UnavailableForAMoment(Arc<AtomicUsize>);

impl UnavailableForAMoment {
    fn read<T>(&self, result: Result<T>) -> Result<T> {
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(Error::new(ErrorKind::Unavailable, "a moment")),
            Err(_) => result,
        }
    }
}

#[async_trait]
impl Change for UnavailableForAMoment {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        self.read(of(next).list(filter).await)
    }

    async fn get(&self, next: &dyn Driver, id: &str) -> Result<Instance> {
        self.read(of(next).get(id).await)
    }

    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        self.0.store(4, Ordering::SeqCst);
        of(next).delete(id).await
    }
}

#[tokio::test]
async fn what_was_deleted_while_the_cloud_could_not_tell_is_not_reported() {
    let left = Arc::new(AtomicUsize::new(0));
    let change = |_: &Values| -> Box<dyn Change> { Box::new(UnavailableForAMoment(left.clone())) };
    let (driver, values) = (Changed { fake: Fake::new(), make: change }, values());
    let report = run(&Plan { only: vec!["I1".to_owned()], ..plan(&driver, &values) }).await;
    assert_eq!((not_passed(&report), &report.left[..]), (Vec::new(), &[][..]));
}

/// Refuses to delete.
struct DeletesNothing;

#[async_trait]
impl Change for DeletesNothing {
    async fn delete(&self, _next: &dyn Driver, _id: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Forbidden, "no"))
    }
}

#[tokio::test]
async fn what_cannot_be_deleted_is_reported() {
    let (driver, values) =
        (Changed { fake: Fake::new(), make: |_: &Values| -> Box<dyn Change> { Box::new(DeletesNothing) } }, values());
    let report = run(&Plan { only: vec!["I2".to_owned()], ..plan(&driver, &values) }).await;
    assert!(matches!(&report.results[..], [(_, Outcome::Failed(_))]), "{:?}", report.results);
    assert_eq!(report.left, all(&driver.fake).await.into_iter().map(|one| one.id).collect::<Vec<_>>());
    assert_eq!(report.left.len(), 1);
    let opened = driver.open(&values).await.unwrap();
    assert_eq!(conformance::clean_up(&*opened, None, Duration::ZERO).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test]
async fn clean_up_deletes_what_has_a_key_and_the_label_or_a_name_of_its_run() {
    const ONE: &str = "00000001";
    const OTHER: &str = "0000000f";
    let fake = Fake::new();
    let (one, other) = (instance_names(ONE), instance_names(OTHER));
    let mut kept = Vec::new();
    for (name, key, label) in [
        ("no-label", "verify-00000001-3", None),
        ("no-key", "uid", Some(ONE)),
        ("key-of-another-run", "verify-0000000f-4", Some(ONE)),
        ("no-number", "verify-00000001-6", Some(ONE)),
        (&one[3], "verify-0000000f-5", None),
        ("ccm-verify-00000001-7", "verify-00000001-7", None),
        ("no-run", "verify--1", Some("")),
        ("another-word", "verify-another-1", Some("another")),
    ] {
        kept.push(make(&fake, name, key, label).await);
    }
    let of_other = make(&fake, &other[0], "verify-0000000f-1", Some(OTHER)).await;
    let first = make(&fake, &one[0], "verify-00000001-1", Some(ONE)).await;
    // A check gives an instance another name.
    let second = make(&fake, "i-0123456789", "verify-00000001-2", Some(ONE)).await;
    // A driver that loses labels.
    let third = make(&fake, &one[2], "verify-00000001-5", None).await;
    let third_of_other = make(&fake, &other[2], "verify-0000000f-3", None).await;
    let driver = fake.open(&values()).await.unwrap();
    let done = conformance::clean_up(&*driver, Some(ONE), Duration::ZERO).await.unwrap();
    assert_eq!((done.deleted, done.left), (vec![first, second, third], vec![]));
    let of_other = [of_other, third_of_other];
    assert_eq!(all(&fake).await, [&kept[..], &of_other].concat());
    assert_eq!(conformance::clean_up(&*driver, None, Duration::ZERO).await.unwrap().deleted, of_other);
    assert_eq!(all(&fake).await, kept);
}

#[tokio::test]
async fn a_check_that_cannot_be_run_says_why() {
    let (fake, values) = (Fake::new(), values());
    let only = |id: &str| Plan { only: vec![id.to_owned()], ..plan(&fake, &values) };
    let no_image =
        Plan { template: InstanceSpec { image: "none".to_owned(), ..InstanceSpec::default() }, ..only("I4") };
    let one_image = Plan { other_image: None, ..only("I6") };
    let same_image = Plan { other_image: Some("debian".to_owned()), ..only("I6") };
    let wrong = Plan { wrong_credentials: Some(values.clone().with("token", "other")), ..only("I7") };
    for (plan, expected) in [
        (no_image, Err("create: InvalidArgument")),
        (one_image, Err("all instances have the image \"debian\"")),
        (same_image, Err("all instances have the image \"debian\"")),
        (wrong, Ok(())),
    ] {
        let report = run(&plan).await;
        match (&report.results[..], expected) {
            ([(_, Outcome::NotRun(reason))], Err(expected)) => assert!(reason.starts_with(expected), "{reason}"),
            ([(_, Outcome::Passed)], Ok(())) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
    // What create does is a check of its own.
    let template = InstanceSpec { image: "none".to_owned(), ..InstanceSpec::default() };
    let report = run(&Plan { template, ..only("I1") }).await;
    assert!(matches!(&report.results[..], [(_, Outcome::Failed(_))]), "{:?}", report.results);

    let wrong = values.clone().with("token", "other");
    let report = run(&Plan { values: &wrong, ..plan(&fake, &values) }).await;
    for (_, outcome) in report.results {
        let is_credentials = matches!(&outcome, Outcome::NotRun(reason) if reason.contains("InvalidCredentials"));
        assert!(is_credentials, "{outcome:?}");
    }
}
