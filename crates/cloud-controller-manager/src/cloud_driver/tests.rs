use std::{
    collections::BTreeMap,
    sync::{Mutex as SyncMutex, PoisonError},
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::Response,
};
use ccm_driver_fake::Fake;
use ccm_drivers::settings::Given;
use ccm_kit::process::leadership::{Authority, Deadline, Leadership, Now};
use kube::Client;
use serde_json::{Value, json};

use super::*;
use crate::account::{ANNOTATION, Place};

/// An API server with one Lease, which another process renews before the first writes.
#[derive(Clone, Default)]
struct Leases(Arc<SyncMutex<Server>>);

#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    /// How many writes still meet a conflict.
    conflicts: u32,
    /// Whether reads fail.
    is_down: bool,
    reads: u32,
}

impl Leases {
    fn with(annotation: Option<&str>) -> Self {
        let annotations = annotation.map(|id| json!({ANNOTATION: id}));
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "ccm", "namespace": "kube-system", "annotations": annotations, "resourceVersion": "1"},
            "spec": {"holderIdentity": "me"},
        });
        let leases = Self::default();
        leases.lock(|state| (state.lease, state.version) = (Some(lease), 1));
        leases
    }

    fn lock<T>(&self, work: impl FnOnce(&mut Server) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn annotation(&self) -> Option<String> {
        self.lock(|state| Some(state.lease.as_ref()?["metadata"]["annotations"][ANNOTATION].as_str()?.to_owned()))
    }

    fn client(&self) -> Client {
        let leases = self.clone();
        let answer = move |request: Request<Body>| {
            let leases = leases.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let (code, body) = leases.lock(|state| state.answer(parts.method.as_str(), &body));
                let mut response = Response::new(Body::from(body.to_string()));
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                response
            }
        };
        Client::new(Router::new().fallback(answer), "kube-system")
    }
}

impl Server {
    fn answer(&mut self, method: &str, body: &[u8]) -> (u16, Value) {
        let status = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "" };
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason}))
        };
        if method == "GET" {
            self.reads += 1;
            return match &self.lease {
                _ if self.is_down => status(500),
                Some(lease) => (200, lease.clone()),
                None => status(404),
            };
        }
        let mut given: Value = serde_json::from_slice(body).unwrap();
        if self.conflicts > 0 {
            self.conflicts -= 1;
            self.version += 1;
            let version = self.version.to_string();
            if let Some(lease) = &mut self.lease {
                lease["metadata"]["resourceVersion"] = version.into();
            }
        }
        let known = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone()).unwrap_or_default();
        if given["metadata"]["resourceVersion"] != known {
            return status(409);
        }
        self.version += 1;
        given["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(given.clone());
        (200, given)
    }
}

/// A driver with a cloud of its own, which lives as long as the runtime of a test.
fn fake() -> &'static Fake {
    Box::leak(Box::new(Fake::new()))
}

/// A process that leads, or not.
fn authority(is_leading: bool) -> Authority {
    let deadline = Deadline::after(Now::read(), Duration::from_secs(3600));
    let leadership = if is_leading { Leadership::Leading(deadline) } else { Leadership::Waiting(None) };
    Authority { leadership: watch::channel(leadership).1, shutdown: watch::channel(false).1 }
}

struct Fixture {
    cloud: CloudDriver,
    problem: watch::Receiver<Option<String>>,
    failures: Arc<SyncMutex<Vec<&'static str>>>,
    /// The token that the next opening uses.
    token: Arc<SyncMutex<String>>,
    metrics: Metrics,
}

fn fixture(driver: &'static Fake, leases: &Leases, is_leading: bool) -> Fixture {
    let (failures, token) = (Arc::<SyncMutex<Vec<_>>>::default(), Arc::new(SyncMutex::new("fake-token".to_owned())));
    let (seen, given, metrics) = (failures.clone(), token.clone(), Metrics::new("fake"));
    let values = move || {
        let environment = BTreeMap::from([("token".to_owned(), given.lock().unwrap().clone())]);
        ccm_all_drivers::resolve(driver, &Given { environment, ..Given::default() }, None)
    };
    let (cloud, problem) = CloudDriver::new(Parts {
        driver,
        values: Box::new(values),
        account: FirstAccount::new(leases.client(), Place::of(("kube-system", "ccm")), authority(is_leading)),
        metrics: metrics.clone(),
        in_flight: InFlightHandle::default(),
        trace: false,
        on_failure: Box::new(move |reason, _| seen.lock().unwrap().push(reason)),
    });
    Fixture { cloud, problem, failures, token, metrics }
}

async fn list(cloud: &CloudDriver) -> std::result::Result<usize, ErrorKind> {
    let listed = Driver::instances(cloud).unwrap().list(&Filter::default()).await;
    listed.map(|all| all.len()).map_err(|error| error.kind)
}

/// The id of the account of a driver.
async fn account_of(fake: &'static Fake) -> String {
    let leases = Leases::with(None);
    list(&fixture(fake, &leases, true).cloud).await.unwrap();
    leases.annotation().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_account_is_kept_before_the_first_answer_and_no_other_one_answers() {
    let fake = fake();
    let account = account_of(fake).await;
    assert!(account.starts_with("acct-"), "{account}");
    for (kept, conflicts, is_leading, is_down, expected) in [
        (None, 0, true, false, Ok(0)),
        (Some(&*account), 0, true, false, Ok(0)),
        (Some(""), 0, true, false, Ok(0)),
        // The lease is renewed at the same time.
        (None, 2, true, false, Ok(0)),
        (None, 99, true, false, Err(ErrorKind::Unavailable)),
        // Without leadership nothing is written, and so nothing is answered.
        (None, 0, false, false, Err(ErrorKind::Unavailable)),
        (Some("acct-other"), 0, true, false, Err(ErrorKind::InvalidCredentials)),
        (Some(&*account), 0, true, true, Err(ErrorKind::Unavailable)),
    ] {
        let leases = Leases::with(kept);
        leases.lock(|state| (state.conflicts, state.is_down) = (conflicts, is_down));
        let fixture = fixture(fake, &leases, is_leading);
        let case = format!("{kept:?} {conflicts} {is_leading} {is_down}");
        assert_eq!(list(&fixture.cloud).await, expected, "{case}");
        assert_eq!(fixture.failures.lock().unwrap().len(), usize::from(expected.is_err()), "{case}");
        assert_eq!(fixture.problem.borrow().is_some(), expected.is_err(), "{case}");
        if expected.is_ok() {
            assert_eq!(leases.annotation().as_deref(), Some(&*account), "{case}");
        } else {
            assert_eq!(leases.annotation().as_deref(), kept, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_one_is_made() {
    let leases = Leases::default();
    assert_eq!(list(&fixture(fake(), &leases, true).cloud).await, Ok(0));
    assert!(leases.annotation().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_returned_without_a_request_until_its_pause_is_over_and_changed_files_end_it() {
    let leases = Leases::with(None);
    let fixture = fixture(fake(), &leases, true);
    *fixture.token.lock().unwrap() = "wrong".to_owned();
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    assert_eq!(fixture.failures.lock().unwrap().len(), 1, "within the pause");
    tokio::time::advance(PAUSE).await;
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    tokio::time::advance(PAUSE).await;
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    assert_eq!(fixture.failures.lock().unwrap().len(), 2, "the pause grows");

    *fixture.token.lock().unwrap() = "fake-token".to_owned();
    fixture.cloud.reopen().await;
    assert_eq!(list(&fixture.cloud).await, Ok(0));
    assert_eq!(*fixture.problem.borrow(), None);

    // Opened again, it does not ask for the account of the lease again.
    let reads = leases.lock(|state| state.reads);
    *fixture.token.lock().unwrap() = "wrong".to_owned();
    assert_eq!(list(&fixture.cloud).await, Ok(0), "what is open stays open");
    fixture.cloud.reopen().await;
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    assert_eq!(leases.lock(|state| state.reads), reads);

    let text = fixture.metrics.text();
    for line in [
        "cloudprovider_fake_api_request_errors{request=\"verify_credentials\"} 3\n",
        "cloudprovider_fake_api_request_errors{request=\"list_instances\"} 0\n",
        "cloudprovider_fake_api_request_duration_seconds_count{request=\"list_instances\"} 2\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_exist_is_no_failure_and_nothing_can_be_changed() {
    let fixture = fixture(fake(), &Leases::with(None), true);
    let instances = Driver::instances(&fixture.cloud).unwrap();
    assert!(instances.get_by_provider_id("fake:///i-none").await.unwrap_err().is_not_found());
    let text = fixture.metrics.text();
    let line = "cloudprovider_fake_api_request_errors{request=\"get_instance_by_provider_id\"} 0\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(instances.delete("i").await.unwrap_err().kind, ErrorKind::ReadOnly);
    assert_eq!(instances.create(&InstanceSpec::default()).await.unwrap_err().kind, ErrorKind::ReadOnly);
}

/// While the driver is open as well, another account is reported on the lease and in the log, with the way out.
#[tokio::test]
async fn another_account_is_reported_with_the_lease_and_what_to_do() {
    let error = |message: &str| Error::new(ErrorKind::InvalidCredentials, message);
    let fixture = fixture(fake(), &Leases::with(None), true);
    assert_eq!(list(&fixture.cloud).await, Ok(0));
    let unrelated = fixture.cloud.noted::<()>(Err(error("the certificate is wrong")));
    assert!(unrelated.is_err() && fixture.problem.borrow().is_none());
    let short = |than: &str| format!("{than}: the Event AccountChanged of the Lease kube-system/ccm says what to do");
    let text = "not the account of the first use: the credentials belong to the account \"B\", and it was \"A\"";
    let other = fixture.cloud.noted::<()>(Err(error(text))).unwrap_err();
    assert_eq!(other.message, short("not the account of the first use"), "errors about nodes are short");
    assert_eq!(
        fixture.problem.borrow().clone().unwrap(),
        format!(
            "InvalidCredentials: {text}. The Lease kube-system/ccm remembers it (annotation ccm-operator.dev/account). Restore its \
             credentials and endpoint or, if the other account is meant: kubectl --namespace kube-system annotate lease ccm \
             ccm-operator.dev/account-, and restart the pods"
        )
    );
    let other = fixture.cloud.noted::<()>(Err(error("the Engine has the id B, and accountID demands A"))).unwrap_err();
    assert_eq!(other.message, short("not that of accountID"));
    let said = fixture.problem.borrow().clone().unwrap();
    assert!(said.ends_with("or the setting accountID if the other account is meant"), "{said}");
    assert_eq!(*fixture.failures.lock().unwrap(), ["AccountChanged"; 2]);
    assert_eq!(list(&fixture.cloud).await, Ok(0));
    assert_eq!(*fixture.problem.borrow(), None, "the right account answers again");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_reported_with_what_to_do_and_another_account_once() {
    let leases = Leases::with(Some("acct-other"));
    let fixture = fixture(fake(), &leases, true);
    let error = Driver::instances(&fixture.cloud).unwrap().list(&Filter::default()).await.unwrap_err();
    assert!(!error.message.contains("acct-"), "{error}");
    let said = fixture.problem.borrow().clone().unwrap();
    assert_eq!(said.matches("acct-").count(), 2, "{said}");
    assert!(!said.contains(ccm_drivers::settings::ACCOUNT_ID) && said.contains("Restore its credentials"), "{said}");

    "wrong".clone_into(&mut fixture.token.lock().unwrap());
    fixture.cloud.reopen().await;
    assert_eq!(list(&fixture.cloud).await, Err(ErrorKind::InvalidCredentials));
    let said = fixture.problem.borrow().clone().unwrap();
    assert!(!said.contains("account") && said.ends_with(": correct the credentials"), "{said}");
    assert_eq!(*fixture.failures.lock().unwrap(), ["AccountChanged", "CredentialsRejected"]);
}
