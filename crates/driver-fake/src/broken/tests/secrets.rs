//! Results without secrets.

use super::*;

/// Repeats its token: in errors of `create`, of `list` and of `verify`, and when it panics.
struct Tells(String);

#[async_trait]
impl Change for Tells {
    fn values(&self, values: &Values) -> Values {
        values.clone().with("token", "fake-token")
    }

    async fn verify(&self, next: &dyn Driver) -> Result<AccountInfo> {
        if self.0 == WRONG { Err(self.refused()) } else { next.account().verify().await }
    }

    async fn create(&self, _next: &dyn Driver, _spec: &InstanceSpec) -> Result<Instance> {
        Err(self.refused())
    }

    async fn run(&self, _next: &dyn Driver, _id: &str, _command: &[String]) -> Result<CommandOutput> {
        panic!("no command with the token {}", self.0)
    }
}

impl Tells {
    fn refused(&self) -> Error {
        let long = "-".repeat(190);
        Error::new(ErrorKind::Forbidden, format!("{:?} {long} {}", self.0, self.0))
    }
}

const TOKEN: &str = "hunter2 \"and more\"";
const WRONG: &str = "swordfish";

#[tokio::test]
async fn no_result_has_a_secret() {
    let tells =
        |values: &Values| -> Box<dyn Change> { Box::new(Tells(values.text("token").unwrap_or_default().to_owned())) };
    let (driver, values) = (Changed { fake: Fake::new(), make: tells }, values());
    let token = values.clone().with("token", TOKEN);
    let wrong_credentials = Some(values.clone().with("token", WRONG));
    let report = run(&Plan { wrong_credentials, ..plan(&driver, &token) }).await;
    let of = |id: &str| &report.results.iter().find(|(check, _)| check.id == id).unwrap().1;
    assert!(matches!(of("I1"), Outcome::Failed(_)) && matches!(of("I2"), Outcome::NotRun(_)));
    assert!(of("I7").reasons()[0].contains("(secret)"), "{:?}", of("I7"));
    assert!(of("I10").reasons()[0].ends_with("panicked: no command with the token (secret)"), "{:?}", of("I10"));
    for (check, outcome) in &report.results {
        for reason in outcome.reasons() {
            assert!(!reason.contains("hunt") && !reason.contains("word"), "{}: {reason}", check.id);
        }
    }
    // What is declared as the default is known to everybody.
    let report = run(&Plan { only: vec!["I1".to_owned()], ..plan(&driver, &values) }).await;
    assert!(report.results[0].1.reasons()[0].contains("fake-token"), "{report:?}");
}
