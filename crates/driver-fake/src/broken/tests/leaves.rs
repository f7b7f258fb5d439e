//! Instances that nobody would know of.

use super::*;

/// Answers to create and to list so that nobody can read it.
struct CannotBeRead;

fn unreadable() -> Error {
    Error::new(ErrorKind::Internal, "the answer has no field zone, and fake-token")
}

#[async_trait]
impl Change for CannotBeRead {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        of(next).list(filter).await?;
        Err(unreadable())
    }

    async fn create(&self, next: &dyn Driver, spec: &InstanceSpec) -> Result<Instance> {
        of(next).create(spec).await?;
        Err(unreadable())
    }
}

#[tokio::test]
async fn a_run_that_may_have_left_what_nobody_can_list_says_so() {
    let change = |_: &Values| -> Box<dyn Change> { Box::new(CannotBeRead) };
    let (driver, values) = (Changed { fake: Fake::new(), make: change }, values());
    let report = run(&plan(&driver, &values)).await;
    assert!(report.left.is_empty() && !all(&driver.fake).await.is_empty(), "{report:?}");
    let expected = "Internal (the answer has no field zone, and fake-token)";
    assert_eq!(report.list_error.as_deref(), Some(expected));
    // Neither without a create nor with a list that was read after it.
    for plan in [
        Plan { read_only: true, ..plan(&driver, &values) },
        Plan { values: &values.clone().with("token", "other"), ..plan(&driver, &values) },
        plan(&Fake::new(), &values),
    ] {
        assert_eq!(run(&plan).await.list_error, None);
    }
}

/// Says that it has deleted an instance.
struct SaysItIsGone;

#[async_trait]
impl Change for SaysItIsGone {
    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        // As before with wrong credentials, and for who else is refused.
        next.account().verify().await?;
        drop(of(next).get(id).await);
        Ok(())
    }
}

#[tokio::test]
async fn a_delete_that_does_nothing_is_said_once_and_by_the_clean_up() {
    let change = |_: &Values| -> Box<dyn Change> { Box::new(SaysItIsGone) };
    let (driver, values) = (Changed { fake: Fake::new(), make: change }, values());
    let report = run(&plan(&driver, &values)).await;
    let by_i2: Vec<_> = not_passed(&report)
        .into_iter()
        .filter(|(_, outcome)| {
            matches!(outcome, Outcome::NotRun(why) if why == "I2 has failed, and its instance could not be deleted")
        })
        .map(|(id, _)| id)
        .collect();
    assert_eq!(by_i2, ["I3", "I4", "I5", "I6", "I9", "I11", "I13", "I14", "I15", "I18", "I19"], "{report:?}");
    let left = all(&driver.fake).await;
    assert_eq!((report.left, left.len()), (left.iter().map(|one| one.id.clone()).collect(), 1));

    let opened = driver.open(&values).await.unwrap();
    let done = conformance::clean_up(&*opened, Some(RUN), Duration::ZERO).await.unwrap();
    assert_eq!((done.deleted, done.left), (vec![], left));
}

/// Breaks off the first delete, which goes on only when it is repeated.
struct BreaksOff(Arc<AtomicUsize>);

#[async_trait]
impl Change for BreaksOff {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut all = of(next).list(filter).await?;
        if self.0.load(Ordering::SeqCst) == 1 {
            for one in &mut all {
                one.state = State::Deleting;
            }
        }
        Ok(all)
    }

    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(Error::new(ErrorKind::Unavailable, "it has broken off"));
        }
        of(next).delete(id).await
    }
}

#[tokio::test]
async fn an_interrupted_delete_is_repeated() {
    let deletes = Arc::new(AtomicUsize::new(0));
    let change = |_: &Values| -> Box<dyn Change> { Box::new(BreaksOff(deletes.clone())) };
    let (driver, values) = (Changed { fake: Fake::new(), make: change }, values());
    let limit = Duration::from_secs(30);
    let report = run(&Plan { only: vec!["I1".to_owned()], limit, ..plan(&driver, &values) }).await;
    assert_eq!((&report.left[..], deletes.load(Ordering::SeqCst)), (&[][..], 2));

    deletes.store(1, Ordering::SeqCst);
    let made = make(&driver.fake, "one", "verify-7e57c0de-1", Some(RUN)).await;
    let opened = driver.open(&values).await.unwrap();
    let cleaned = conformance::clean_up(&*opened, Some(RUN), limit).await.unwrap();
    assert_eq!(cleaned.deleted.iter().map(|one| &one.id).collect::<Vec<_>>(), [&made.id]);
    assert_eq!(cleaned.left, []);
}
