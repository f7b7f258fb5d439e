//! The checks before a first installation (IO). A failed check prevents the installation, and never affects an installed
//! cloud-controller-manager.
//!
//! The live Deployment or DaemonSet, or else the status, shows whether a cloud-controller-manager is installed, so a restart of the
//! operator changes nothing. An installed one is not checked. The checks of a refused one are repeated, less and less often.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::{DEFAULT_CCM_NAMESPACE, KubernetesFleet, Member, live_of};
use crate::{
    apply::inventory::Location,
    cluster::{read::Error, seen},
    controllers::{
        Pass,
        backoff::Backoff,
        observer::{Id, Observer},
        progress::PassResult,
        view::View,
    },
    error::chain,
    grace::TRANSIENT_ERROR_GRACE,
    nodes::{
        evidence::ReadResult,
        identity::{CcmIdentity, Need},
        node::Node,
    },
    object::Object,
    plan::kubernetes::conflict::as_it_runs,
    preflight::{
        self,
        check::{CheckResult, Row, line, refusal},
        check_input::{CheckInput, Other, Reader, Snapshot},
        inputs, permissions, read,
    },
    provider::catalog::Catalog,
    status::{ccm::was_installed, outcome::Outcome},
};

/// The first and the longest pause after a refusal. Each pause is twice the previous one, because the snapshot of a large cluster takes
/// many requests.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(600));

/// The input of the checks of one `CloudControllerManager`.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::controllers) struct PreflightRequest {
    namespace: String,
    /// The user name of its ServiceAccount.
    user: Option<String>,
    /// The permissions that the operator needs for it.
    needs: BTreeSet<Need>,
}

/// The state of the cluster, for the checks of all members.
pub(in crate::controllers) struct ClusterState {
    snapshot: Snapshot,
    /// The needed permissions that the operator lacks.
    missing: ReadResult<BTreeSet<Need>>,
    /// The bindings that already allow each ServiceAccount to delete nodes.
    deletion_permissions: BTreeMap<String, ReadResult<Option<Vec<String>>>>,
}

/// The requests, by the names of the `CloudControllerManager`s, and the state of the cluster.
pub(in crate::controllers) type SnapshotResult = (BTreeMap<String, PreflightRequest>, Result<ClusterState, Error>);

/// The checks before the first installation of a `CloudControllerManager`.
#[derive(Default)]
pub(super) struct FirstInstallation {
    /// Whether the `CloudControllerManager` is installed, or may be.
    pub(super) is_open: bool,
    /// The results of the checks, if this process has run them.
    pub(super) rows: Option<Vec<Row>>,
    backoff: Backoff,
    /// The pause after a refusal, and its end.
    refused: Option<(Duration, Instant)>,
}

impl FirstInstallation {
    /// Returns the result of a pass for a member whose gate is closed: the refusal, or the error that delays the checks.
    pub(super) fn reconciled(&self) -> PassResult {
        if let Some(rows) = self.rows.as_ref().filter(|rows| refusal(rows).is_some()) {
            return PassResult::Outcome(Outcome::PreflightRefused(line(rows, CheckResult::Refused)));
        }
        let error = self.backoff.error().unwrap_or("the checks before the first installation");
        PassResult::failed(error.to_owned(), self.backoff.has_lasted(Instant::now()))
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        self.backoff.ready(now).is_ok() && self.refused.is_none_or(|(_, until)| until <= now)
    }

    fn due(&self) -> Option<Instant> {
        self.backoff.due().max(self.refused.map(|(_, until)| until))
    }

    fn update(&mut self, rows: Vec<Row>) {
        self.is_open = refusal(&rows).is_none();
        self.backoff = Backoff::default();
        let pause = self.refused.map_or(PAUSE.0, |(pause, _)| (pause * 2).min(PAUSE.1));
        self.refused = (!self.is_open).then(|| (pause, Instant::now() + pause));
        self.rows = Some(rows);
    }

    fn failed(&mut self, error: &Error) {
        let text = format!("the checks before the first installation have failed: {}", chain(error));
        self.backoff.retrying(text, TRANSIENT_ERROR_GRACE, error.retry_after());
        self.rows = None;
    }
}

impl KubernetesFleet {
    /// Checks the members that are about to be installed for the first time.
    pub(super) fn check_first_installations(&mut self, view: &View, pass: &mut Pass) {
        if let Some(answer) = self.snapshots.answer.take() {
            self.take_snapshot(view, answer);
        }
        let mut due = BTreeMap::new();
        for member in self.members.values_mut() {
            if member.is_removed() {
                member.gate = FirstInstallation::default();
                continue;
            }
            if member.gate.is_open || !is_seen(&view.target.observer, member.planned()) {
                continue;
            }
            // This also applies to bad inputs and to a pause, because the objects are kept as planned.
            if is_installed(&view.target.observer, &member.name) {
                member.gate.is_open = true;
            } else if let Some(bad) = member.validation().filter(|validation| validation.objects.is_none()) {
                member.gate.rows = Some(inputs::rows(bad, Reader::Operator).into());
            } else if !member.objects_in_force().is_empty() && member.gate.is_due() {
                due.extend(member.preflight_request().map(|request| (member.name.clone(), request)));
            }
        }
        if !self.snapshots.is_running && !due.is_empty() {
            let (client, catalog) = (view.target.client.clone(), view.catalog.clone());
            self.snapshots.start(async move {
                let found = read_state(&client, &catalog, &due).await;
                (due, found)
            });
        }
        let closed = self.members.values().filter(|member| !member.gate.is_open);
        pass.due.extend(closed.filter_map(|member| member.gate.due()));
    }

    /// Checks the members that a snapshot was taken for, unless their inputs have changed since.
    fn take_snapshot(&mut self, view: &View, (requests, found): SnapshotResult) {
        let is_current = |name: &str, request: &PreflightRequest| {
            let member = self.members.get(name).filter(|member| !member.gate.is_open && !member.is_removed());
            member.and_then(Member::preflight_request).is_some_and(|now| now == *request)
        };
        let current: Vec<_> = requests.into_iter().filter(|(name, request)| is_current(name, request)).collect();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                for (name, _) in current {
                    self.members.entry(name).and_modify(|member| member.gate.failed(&error));
                }
                return;
            }
        };
        let nodes: Vec<_> = view.target.observer.nodes().collect();
        for (name, request) in current {
            let permission = request.user.as_ref().and_then(|user| found.deletion_permissions.get(user)).cloned();
            let permission = permission.unwrap_or(Ok(None));
            let Some(rows) = self.rows(view, &name, &nodes, (&request, &found, permission.clone())) else { continue };
            self.members.entry(name).and_modify(|member| {
                member.gate.update(rows);
                member.guard.set_deletion_permission(permission);
            });
        }
    }

    fn rows(
        &self,
        view: &View,
        name: &str,
        nodes: &[Node],
        (request, found, deletion_permission): (&PreflightRequest, &ClusterState, ReadResult<Option<Vec<String>>>),
    ) -> Option<Vec<Row>> {
        let member = self.members.get(name)?;
        let wanted = member.ccm()?;
        let others = self.members.values().filter(|other| other.name != name).filter_map(|other| {
            let running = other.running.as_ref();
            Some(Other {
                ccm: other.ccm()?,
                goes_first: other.order(running) < member.order(None),
                runs: running.and_then(|running| Some(as_it_runs(other.ccm()?, running))),
            })
        });
        let missing = found.missing.as_ref().map_err(Clone::clone);
        Some(preflight::rows(&CheckInput {
            now: Timestamp::now(),
            by: Reader::Operator,
            catalog: &view.catalog,
            ccm: wanted,
            provider: view.catalog.kubernetes_of(&wanted.spec.provider).ok()?,
            validation: member.validation()?,
            is_installed: Ok(false),
            others: Ok(others.collect()),
            nodes: Ok(nodes),
            snapshot: &found.snapshot,
            missing_permissions: missing.map(|missing| missing.intersection(&request.needs).map(Need::words).collect()),
            deletion_permission,
        }))
    }
}

async fn read_state(
    client: &Client,
    catalog: &Catalog,
    requests: &BTreeMap<String, PreflightRequest>,
) -> Result<ClusterState, Error> {
    let namespaces: BTreeSet<_> = requests.values().map(|request| request.namespace.as_str()).collect();
    // Other cloud-controller-managers are in kube-system or in these namespaces, which the operator may read.
    let locations = namespaces.iter().copied().chain([DEFAULT_CCM_NAMESPACE]).collect();
    let snapshot = read::snapshot(client, catalog, &locations, &namespaces).await?;
    let needs = requests.values().flat_map(|request| &request.needs).cloned().collect();
    let missing = read::own_missing(client, &needs).await?;
    let mut deletion_permissions = BTreeMap::new();
    for user in requests.values().filter_map(|request| request.user.as_ref()) {
        deletion_permissions.insert(user.clone(), read::deletion_permission(client, user).await?);
    }
    Ok(ClusterState { snapshot, missing, deletion_permissions })
}

/// Whether objects of a kind have long-running pods.
pub(super) fn is_workload(kind: &str) -> bool {
    matches!(kind, "Deployment" | "DaemonSet")
}

/// Whether all locations with a planned or possibly remaining workload have been seen.
fn is_seen(observer: &Observer, planned: &[Object]) -> bool {
    let mut locations = planned.iter().filter(|object| is_workload(object.kind().kind)).map(Location::of);
    let is_synced = |location| observer.watches.seen(&Id::Ours(location)).is_some_and(seen::Seen::is_synced);
    locations.all(is_synced) && !observer.is_awaiting_leftovers()
}

/// Whether a `CloudControllerManager` has a workload, or had one when its status was last written.
fn is_installed(observer: &Observer, name: &str) -> bool {
    live_of(observer, name).any(|(location, _)| is_workload(location.kind.kind))
        || observer.watches.get(&Id::Ccms, name).is_some_and(was_installed)
}

impl Member {
    fn preflight_request(&self) -> Option<PreflightRequest> {
        let namespace = self.ccm()?.spec.namespace.clone();
        let user = self.identity().map(CcmIdentity::user);
        Some(PreflightRequest { namespace, user, needs: permissions::needs(self.objects_in_force()) })
    }
}
