//! Every fault that a cluster may have, while the operator converges, while objects drift, and while the platform changes.
//! After the fault the planned state is there within the wait limit, and no report that all is well was wrong when it was
//! made. `make test-faults` runs all of them; those that need minutes are left out of `make test`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, grace::TRANSIENT_ERROR_GRACE, object::Object};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinHandle};

use crate::{
    contract::{images, plans},
    lab::{LIMIT, Lab, VERSION, cluster_operators, conditions},
    prune::{exactly, plan_of},
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        faults::{Fault, Faults, Offer, Rule},
        lab::repository,
        openshift::{self, Cluster},
        operator::Operator,
    },
};

mod clock;
mod fault;

use fault::{Endured, Problem};

/// Longer than any test runs.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Compares each new report that all is well with the state of the cluster.
struct Witness {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

struct State {
    plan: Vec<Object>,
    /// Whether the last report was that all is well.
    is_claimed: bool,
    wrong: Vec<String>,
}

impl Witness {
    fn new(client: Client, plan: &[Object]) -> Self {
        let state = State { plan: plan.to_vec(), is_claimed: false, wrong: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                // While the API server is away, nothing can be reported.
                let _ = shared.lock().await.look(&client).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { state, task }
    }

    /// Changes the world, from a state of which the witness knows that it is reported to be well.
    async fn change<T>(&self, plan: &[Object], change: impl Future<Output = Result<T>>) -> Result<T> {
        eventually("the report", LIMIT, async || Ok(self.state.lock().await.is_claimed.then_some(()))).await?;
        let mut state = self.state.lock().await;
        state.plan = plan.to_vec();
        change.await
    }

    async fn end(self) -> Result<()> {
        self.task.abort();
        let state = self.state.lock().await;
        ensure!(state.wrong.is_empty(), "reported to be well, and was not: {:#?}", state.wrong);
        Ok(())
    }
}

impl State {
    /// The state cannot get worse between the report and the objects: only the test makes it worse, and not now.
    async fn look(&mut self, client: &Client) -> Result<()> {
        let live = cluster_operators(client).get("cloud-controller-manager").await?;
        let live = serde_json::to_value(live)?;
        let found = conditions(&live);
        let well = ["Available=True", "Progressing=False", "Degraded=False"];
        let is_claimed = well.iter().all(|condition| found.iter().any(|one| one == condition))
            && live["status"]["versions"].to_string().contains(VERSION);
        if is_claimed && !self.is_claimed {
            for object in &self.plan {
                let api = request::api(client, object.kind(), object.namespace());
                let now = api.get_opt(object.name()).await?.map(serde_json::to_value).transpose()?;
                if !now.is_some_and(|now| is_as_planned(object.value(), &now)) {
                    self.wrong.push(format!("{}: {}", object.key(), live["status"]));
                }
            }
        }
        self.is_claimed = is_claimed;
        Ok(())
    }
}

/// Whether an object has the planned values of the fields that the tests change.
fn is_as_planned(planned: &Value, now: &Value) -> bool {
    let image = "/spec/template/spec/containers/0/image";
    planned["spec"]["replicas"] == now["spec"]["replicas"] && planned.pointer(image) == now.pointer(image)
}

/// Runs the operator with a fault that comes and goes: at the start, while objects are changed, while the platform changes. The faults of
/// requests come with both protocols.
async fn endures(problem: Problem, options: Options) -> Result<()> {
    let over = async |offer| {
        let endured = Box::pin(endures_over(offer, problem, options)).await;
        endured.with_context(|| format!("{offer:?}"))
    };
    match problem {
        Problem::Requests(..) => tokio::try_join!(over(Offer::Http2), over(Offer::Http1)).map(drop),
        _ => over(Offer::Http2).await,
    }
}

async fn endures_over(offer: Offer, problem: Problem, options: Options) -> Result<()> {
    let plans = plans()?;
    let (aws, gcp) = (plan_of(&plans, "AWS"), plan_of(&plans, "GCP"));
    let servers = ControlPlane::start(options).await?;
    let mut lab = Lab::on(servers.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.finish_workloads();
    lab.write_images(&images())?;
    let mut endured = Endured::new(offer, problem, &mut lab).await?;

    endured.begin(&lab).await?;
    endured.start(&lab)?;
    let witness = Witness::new(lab.client.clone(), aws);
    endured.is_felt(&lab).await?;
    endured.end(&lab).await?;
    exactly(&lab, endured.operator()?, aws, "at the start").await?;
    lab.conditions(endured.operator()?, &["Available=True", "Degraded=False"]).await?;

    endured.begin(&lab).await?;
    witness
        .change(aws, async {
            lab.delete("Service").await?;
            lab.update("Deployment", &json!({"spec": {"replicas": 7}})).await
        })
        .await?;
    endured.is_felt(&lab).await?;
    endured.end(&lab).await?;
    lab.exists("Service", endured.operator()?).await?;
    lab.has_two_replicas(endured.operator()?).await?;
    lab.conditions(endured.operator()?, &["Available=True", "Degraded=False"]).await?;

    endured.begin(&lab).await?;
    let other = Cluster::on(json!({"type": "GCP"}));
    witness.change(gcp, openshift::seed(&lab.client, &other)).await?;
    endured.is_felt(&lab).await?;
    endured.end(&lab).await?;
    exactly(&lab, endured.operator()?, gcp, "after the change of the platform").await?;
    lab.conditions(endured.operator()?, &["Available=True", "Degraded=False"]).await?;
    witness.end().await.with_context(|| endured.operator().map(Operator::log).unwrap_or_default())
}

#[tokio::test]
async fn handshakes_that_never_end() -> Result<()> {
    endures(Problem::Silence, Options::default()).await
}

#[tokio::test]
async fn a_permission_that_is_missing() -> Result<()> {
    endures(Problem::Requests(Fault::Answer(403, None), |seen| seen.path.contains("/services")), Options::default())
        .await
}

#[tokio::test]
async fn an_aggregated_api_that_is_down() -> Result<()> {
    endures(Problem::AggregatedApi, Options::default()).await
}

#[tokio::test]
async fn an_api_server_without_a_watch_cache() -> Result<()> {
    endures(Problem::None, Options { without_watch_cache: true, ..Options::default() }).await
}

#[tokio::test]
#[ignore = "two minutes; make test-faults"]
async fn answers_that_are_never_sent() -> Result<()> {
    endures(Problem::Requests(Fault::Slow(FOR_EVER), |_| true), Options::default()).await
}

#[tokio::test]
#[ignore = "two minutes; make test-faults"]
async fn halves_of_answers() -> Result<()> {
    endures(Problem::Requests(Fault::HalfAnswer, |_| true), Options::default()).await
}

#[tokio::test]
#[ignore = "three minutes; make test-faults"]
async fn a_load_balancer_that_gives_up_after_35_seconds() -> Result<()> {
    let late = Fault::LateAnswer(Duration::from_secs(35), 504);
    endures(Problem::Requests(late, |_| true), Options::default()).await
}

#[tokio::test]
#[ignore = "two minutes; make test-faults"]
async fn a_policy_that_changes_our_objects() -> Result<()> {
    endures(Problem::Policy, Options::default()).await
}

#[tokio::test]
#[ignore = "a minute; make test-faults"]
async fn a_process_that_is_stopped_for_longer_than_its_lease() -> Result<()> {
    endures(Problem::Stopped, Options::default()).await
}

#[tokio::test]
#[ignore = "a minute; make test-faults"]
async fn a_wall_clock_that_jumps_forwards() -> Result<()> {
    endures(Problem::Clock(3600), Options::default()).await
}

#[tokio::test]
#[ignore = "a minute; make test-faults"]
async fn a_wall_clock_that_jumps_back() -> Result<()> {
    endures(Problem::Clock(-3600), Options::default()).await
}

/// The state goes back, also to before the operator has ever run.
#[tokio::test]
#[ignore = "a minute; make test-faults"]
async fn an_etcd_that_goes_back_to_another_platform() -> Result<()> {
    let plans = plans()?;
    let servers = ControlPlane::start(Options::default()).await?;
    let mut lab = Lab::on(servers.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.write_images(&images())?;
    lab.plane.back_up().await?;
    lab.finish_workloads();
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "at the start").await?;
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "GCP"}))).await?;
    exactly(&lab, &operator, plan_of(&plans, "GCP"), "after the change of the platform").await?;
    lab.plane.restore().await?;
    lab.finish_workloads();
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "after the disaster").await?;
    lab.converged(&operator).await.map(drop)
}

/// Such as of a single node: the process that waits for the API server has never led.
#[tokio::test]
#[ignore = "three minutes; make test-faults"]
async fn an_outage_that_is_over_is_not_reported() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start()?;
    lab.converged(&first).await?;
    first.terminate()?;
    first.wait(LIMIT).await?;
    let faults = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    faults.inject(vec![Rule { fault: Fault::Cut, applies: |_| true, times: usize::MAX }]);
    let mark = lab.mark().await?;
    let operator = lab.start_through(faults.kubeconfig())?;
    // Longer than any problem is borne without a report.
    tokio::time::sleep(TRANSIENT_ERROR_GRACE + Duration::from_secs(10)).await;
    faults.forget();
    eventually("the operator leads", LIMIT, async || {
        let leads = lab.requests(mark).await?.iter().any(|request| request.is_lease() && request.is_write());
        Ok(leads.then_some(()))
    })
    .await?;
    assert_eq!(lab.settled_writes(&operator, mark).await?, Vec::<String>::new(), "{}", operator.log());
    Ok(())
}
