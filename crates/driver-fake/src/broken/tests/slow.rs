//! Deletions that take their time, or end in a panic.

use std::{collections::BTreeSet, sync::Mutex};

use ccm_drivers::contract::State;

use super::*;

/// Panics when it is asked to delete the first or the second instance of the run, or to list.
struct Panics {
    lists: bool,
}

#[async_trait]
impl Change for Panics {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        assert!(!self.lists, "no list");
        of(next).list(filter).await
    }

    async fn delete(&self, next: &dyn Driver, id: &str) -> Result<()> {
        let is_one = of(next).get(id).await.is_ok_and(|one| instance_names(RUN)[..2].contains(&one.name));
        assert!(self.lists || !is_one, "no delete");
        of(next).delete(id).await
    }
}

#[tokio::test]
async fn a_driver_that_panics_does_not_end_the_run() {
    let panics = |lists| {
        let make = move |_: &Values| -> Box<dyn Change> { Box::new(Panics { lists }) };
        Changed { fake: Fake::new(), make }
    };
    for (driver, words) in [(panics(false), "no delete"), (panics(true), "no list")] {
        make(&driver.fake, &instance_names(RUN)[1], "verify-7e57c0de-2", None).await;
        let third = make(&driver.fake, &instance_names(RUN)[2], "verify-7e57c0de-3", None).await;
        let values = values();
        let report = run(&Plan { only: vec!["I2".to_owned(), "I7".to_owned()], ..plan(&driver, &values) }).await;
        assert_eq!(report.results[0].1, Outcome::Failed(vec![format!("the driver panicked: {words}")]));
        assert_eq!(report.results.len(), 2, "the next check runs");
        if words == "no delete" {
            let left: BTreeSet<_> = all(&driver.fake).await.into_iter().map(|one| one.id).collect();
            assert!(left.len() == 2 && !left.contains(&third.id), "the others are deleted all the same");
            assert_eq!(left, report.left.into_iter().collect());
        }
    }
}

/// Deletes as a cloud that takes its time: what is deleted is in some lists yet.
#[derive(Default)]
struct DeletesSlowly {
    deleted: Mutex<Option<String>>,
    lists: AtomicUsize,
    deletes: Arc<AtomicUsize>,
}

#[async_trait]
impl Change for DeletesSlowly {
    async fn list(&self, next: &dyn Driver, filter: &Filter) -> Result<Vec<Instance>> {
        let mut all = of(next).list(filter).await?;
        let Some(id) = self.deleted.lock().unwrap().clone() else { return Ok(all) };
        if self.lists.fetch_add(1, Ordering::SeqCst) == 2 {
            of(next).delete(&id).await?;
        }
        for one in all.iter_mut().filter(|one| one.id == id) {
            one.state = State::Deleting;
        }
        Ok(all)
    }

    async fn delete(&self, _next: &dyn Driver, id: &str) -> Result<()> {
        self.deletes.fetch_add(1, Ordering::SeqCst);
        *self.deleted.lock().unwrap() = Some(id.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn what_the_cloud_is_deleting_is_waited_for() {
    let deletes = Arc::new(AtomicUsize::new(0));
    let slowly = |_: &Values| -> Box<dyn Change> {
        Box::new(DeletesSlowly { deletes: deletes.clone(), ..DeletesSlowly::default() })
    };
    let (driver, values) = (Changed { fake: Fake::new(), make: slowly }, values());
    let report = run(&Plan { only: vec!["I1".to_owned()], ..plan(&driver, &values) }).await;
    assert_eq!((not_passed(&report), report.left.len(), all(&driver.fake).await), (vec![], 0, vec![]));
    assert_eq!(deletes.load(Ordering::SeqCst), 2, "it is repeated once, in case that it was interrupted");
}
