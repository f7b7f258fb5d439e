//! Faults that come and go.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::clock::Clock;
use crate::{
    lab::{LEASE, LIMIT, Lab, OWN_NAMESPACE, SERVICE_ACCOUNT, leases},
    leader::FAST,
    overruled::{self, OTHER_IMAGE},
    support::{
        eventually,
        faults::{Fault, Faults, Offer, Rule, Seen},
        latency::Latency,
        objects,
        operator::Operator,
    },
};

/// The length of a fault that affects no request.
const WHILE: Duration = Duration::from_secs(5);

/// Another holder of the lease than the operator.
const OTHER: &str = "another";

/// A temporary problem of the cluster.
#[derive(Clone, Copy)]
pub(super) enum Problem {
    /// Nothing: the API server itself is unusual.
    None,
    /// Requests meet a fault.
    Requests(Fault, fn(&Seen) -> bool),
    /// Connections are accepted, and no TLS handshake ends.
    Silence,
    /// An API of another server, which is registered and away.
    AggregatedApi,
    /// An admission policy changes Deployments.
    Policy,
    /// The process stands still until its lease has passed to another.
    Stopped,
    /// The wall clock is wrong by so many seconds.
    Clock(i64),
}

/// The operator and the fault that it has to endure.
pub(super) struct Endured {
    problem: Problem,
    proxy: Faults,
    wire: Latency,
    clock: Option<Clock>,
    kubeconfig: std::path::PathBuf,
    operator: Option<Operator>,
}

impl Endured {
    pub(super) async fn new(offer: Offer, problem: Problem, lab: &mut Lab) -> Result<Self> {
        let proxy = Faults::offering(offer, lab.kubeconfig(), lab.dir.path()).await?;
        let wire = Latency::start(lab.plane.port(), Duration::ZERO)?;
        let wired = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        let mut clock = None;
        if matches!(problem, Problem::Clock(_)) {
            let ready = Clock::new(lab.dir.path())?;
            lab.env.extend(ready.env());
            clock = Some(ready);
        }
        let kubeconfig = match problem {
            Problem::Requests(..) => proxy.kubeconfig().to_owned(),
            Problem::Silence => wired,
            _ => lab.kubeconfig().to_owned(),
        };
        Ok(Self { problem, proxy, wire, clock, kubeconfig, operator: None })
    }

    pub(super) fn start(&mut self, lab: &Lab) -> Result<()> {
        let arguments = if matches!(self.problem, Problem::Stopped | Problem::Clock(_)) { &FAST[..] } else { &[] };
        self.operator = Some(lab.start_with(&self.kubeconfig, crate::lab::POD_UID, arguments)?);
        Ok(())
    }

    pub(super) fn operator(&self) -> Result<&Operator> {
        self.operator.as_ref().context("the operator was not started")
    }

    pub(super) async fn begin(&mut self, lab: &Lab) -> Result<()> {
        match self.problem {
            Problem::None => {}
            Problem::Requests(fault, applies) => {
                self.proxy.forget();
                self.proxy.inject(vec![Rule { fault, applies, times: usize::MAX }]);
            }
            Problem::Silence => self.wire.silence(true),
            Problem::AggregatedApi => {
                let service = json!({"name": "nowhere", "namespace": "default", "port": 443});
                let spec = json!({"group": "away.example.com", "version": "v1", "service": service,
                    "insecureSkipTLSVerify": true, "groupPriorityMinimum": 1000, "versionPriority": 10});
                let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                    "metadata": {"name": "v1.away.example.com"}, "spec": spec});
                objects::apply(&lab.client, object).await?;
            }
            Problem::Policy => overruled::mutate_deployments(lab, OTHER_IMAGE).await?,
            Problem::Stopped => {
                if let Some(operator) = &self.operator {
                    operator.pause()?;
                }
            }
            Problem::Clock(seconds) => self.clock.as_ref().context("a clock")?.set(seconds)?,
        }
        Ok(())
    }

    /// Waits until the operator has met the fault.
    pub(super) async fn is_felt(&self, lab: &Lab) -> Result<()> {
        match self.problem {
            Problem::Requests(..) => {
                eventually("faulty requests", LIMIT, async || {
                    let seen = self.proxy.seen();
                    ensure!(seen.iter().filter(|seen| seen.is_faulty).count() > 1, "{seen:#?}");
                    Ok(Some(()))
                })
                .await
            }
            // Somebody else takes the lease when it has expired.
            Problem::Stopped => {
                tokio::time::sleep(WHILE).await;
                let Some(mut lease) = leases(&lab.client).get_opt(LEASE).await? else { return Ok(()) };
                lease.spec.as_mut().context("a lease")?.holder_identity = Some(OTHER.into());
                leases(&lab.client).replace(LEASE, &kube::api::PostParams::default(), &lease).await.map(drop)?;
                Ok(())
            }
            _ => {
                tokio::time::sleep(WHILE).await;
                Ok(())
            }
        }
    }

    pub(super) async fn end(&mut self, lab: &Lab) -> Result<()> {
        match self.problem {
            Problem::None => {}
            Problem::Requests(..) => self.proxy.inject(Vec::new()),
            Problem::Silence => self.wire.silence(false),
            Problem::AggregatedApi => {
                let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                    "metadata": {"name": "v1.away.example.com"}});
                objects::delete(&lab.client, &object).await?;
            }
            Problem::Policy => overruled::remove_policy(lab).await?,
            Problem::Stopped => self.operator()?.resume()?,
            Problem::Clock(_) => self.clock.as_ref().context("a clock")?.set(0)?,
        }
        // A process that has lost its lease ends, and its container is started again.
        if matches!(self.problem, Problem::Stopped | Problem::Clock(_)) {
            tokio::time::sleep(WHILE).await;
            if self.operator()?.wait(Duration::ZERO).await.is_ok() {
                self.start(lab)?;
            }
        }
        Ok(())
    }
}
