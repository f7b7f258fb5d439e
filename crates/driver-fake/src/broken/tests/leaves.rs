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
