use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::{
    contract::{Driver, Error, ErrorKind, Result},
    settings::{Given, Kind, Setting},
};

/// A driver that does not open, and says the value of its secret.
struct Closed {
    panics: bool,
}

static TOKEN: [Setting; 1] = [Setting::new("token", Kind::Text, "").secret()];

#[async_trait]
impl DriverType for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }

    fn summary(&self) -> &'static str {
        "It does not open."
    }

    fn settings(&self) -> &[Setting] {
        &[]
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        let words = format!("it is closed to {:?}", values.text("token").unwrap_or_default());
        assert!(!self.panics, "{words}");
        Err(Error::new(ErrorKind::Internal, words))
    }
}

fn plan(values: &Values) -> Plan<'_> {
    Plan {
        driver: &Closed { panics: false },
        values,
        template: InstanceSpec::default(),
        other_image: None,
        wrong_credentials: None,
        read_only: false,
        run: "r".to_owned(),
        limit: Duration::from_secs(30),
        only: Vec::new(),
    }
}

#[test]
fn checks_are_numbered_and_have_names_of_their_own() {
    let ids: Vec<_> = (1..=19).map(|number| format!("I{number}")).collect();
    assert_eq!(CHECKS.each_ref().map(|check| check.id), *ids);
    let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), CHECKS.len());
    for check in &CHECKS {
        assert!(check.protects.ends_with('.') && !check.protects.contains(". "), "{}", check.protects);
    }
}

#[test]
fn the_page_has_the_checks() {
    let page = include_str!("../../../../docs/drivers/conformance.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| I")).collect();
    assert_eq!(
        rows,
        CHECKS.each_ref().map(|Check { id, name, protects, .. }| format!("| {id} | `{name}` | {protects} |"))
    );
}

#[tokio::test]
async fn a_driver_that_does_not_open_has_no_result() {
    let flags = [("token".to_owned(), "hunter2".to_owned())].into();
    let values = Values::resolve("closed", &TOKEN, &Given { flags, ..Given::default() }).unwrap();
    let mut plan = plan(&values);
    plan.only = vec!["I12".to_owned(), "I2".to_owned()];
    let asked = std::sync::Mutex::new(Vec::new());
    let report = run(&plan, &|check| asked.lock().unwrap().push(check.id)).await;
    let reason = "the account could not be verified: Internal (it is closed to \"(secret)\")";
    let row = |index: usize| {
        let Check { id, name, protects, .. } = &CHECKS[index];
        json!({"id": id, "name": name, "protects": protects, "outcome": "notRun", "reasons": [reason]})
    };
    let expected = json!({"driver": "closed", "run": "r", "results": [row(1), row(11)], "left": []});
    assert_eq!(serde_json::to_value(report).unwrap(), expected);
    assert_eq!(asked.into_inner().unwrap(), ["I2", "I12"], "the order is that of the table");

    let panics = Plan { driver: &Closed { panics: true }, only: Vec::new(), ..plan };
    let report = run(&panics, &|_| ()).await;
    assert_eq!(
        report.results.iter().map(|(check, _)| check.id).collect::<Vec<_>>(),
        CHECKS.each_ref().map(|one| one.id)
    );
    let reason = "the account could not be verified: the driver panicked: it is closed to \"(secret)\"";
    assert!(report.results.iter().all(|(_, outcome)| *outcome == Outcome::NotRun(reason.to_owned())), "{report:?}");
}

#[test]
fn what_takes_too_long_is_said_once() {
    let all =
        ["list: no answer within 30s", "list: expected success, seen Timeout (list: no answer within 30s)", "other"];
    assert_eq!(each_once(&all.map(str::to_owned)), all[1..]);
    let long = "x".repeat(1000);
    let seen = format!("seen Timeout ({})", brief(&long));
    assert_eq!(each_once(&[long, seen.clone()]), [seen]);
}

#[test]
fn what_was_seen_is_in_words() {
    use super::context::{count, mark_words};
    let marks = crate::contract::Marks { owner: Some("uid".to_owned()), cluster: None };
    assert_eq!(mark_words(&marks), "the owner \"uid\" and no cluster");
    assert_eq!(count(&Ok(Vec::new())), "an empty list");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_does_not_end_is_a_problem() {
    let values = Values::default();
    let plan = plan(&values);
    let context = Context::new(&plan);
    let result: Result<()> = context.within("list", 10, std::future::pending()).await;
    assert_eq!(result.unwrap_err().kind, ErrorKind::Timeout);
    assert_eq!(context.take_problems(), ["list: no answer within 300s"]);
    context.within("list", 1, async { Ok(()) }).await.unwrap();
    assert_eq!(context.take_problems(), [""; 0]);
}
