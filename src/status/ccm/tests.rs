use serde_json::json;

use super::*;
use crate::{
    apply::settled::Settled,
    nodes::reason::Reason,
    object::Key,
    plan::kubernetes::sources::InputProblem,
    provider::versions::{Choice, NO_TAG_FOR_MINOR},
};

fn validation() -> Validation {
    let choice = Choice { tag: "v1.35.2".into(), reason: "the tag".into(), ..Choice::default() };
    Validation {
        origin: None,
        configuration: Some(Ok(Vec::new())),
        credentials: Some(Ok(Some(Vec::new()))),
        version: Some((choice, "registry.example/ccm:v1.35.2".into())),
        objects: Some(Vec::new()),
        removed: Vec::new(),
    }
}

fn applied() -> Outcome {
    Outcome::Applied(Settled::after_pass())
}

fn rolling_out(nodes: &str) -> Outcome {
    let key = Key { group: "apps".into(), kind: "Deployment".into(), namespace: "n".into(), name: "a".into() };
    Outcome::RollingOut { settled: Settled::after_pass(), rollouts: vec![key], nodes: nodes.into() }
}

fn pods(desired: u32, ready: u32) -> Workload {
    Workload { kind: "Deployment".into(), desired, ready }
}

/// Returns the input of a status without the guard, the checks and the nodes.
fn input<'a>(
    validation: &'a Validation,
    outcome: &'a Outcome,
    workload: Workload,
    gone_nodes: &'a BTreeSet<String>,
    now: &'a str,
) -> Input<'a> {
    Input {
        generation: 3,
        validation: Some(validation),
        cluster: None,
        outcome,
        preflight: None,
        workload: Some(workload),
        nodes: None,
        gone_nodes,
        guard: None,
        remarks: "; a remark",
        now,
    }
}

fn status(previous: &Status, validation: &Validation, outcome: &Outcome, workload: Workload, now: &str) -> Status {
    next(previous, &input(validation, outcome, workload, &BTreeSet::new(), now))
}

/// Returns the type, status and reason of each condition.
fn conditions(outcome: &Outcome, workload: Workload) -> Vec<String> {
    let status = status(&Status::default(), &validation(), outcome, workload, "1");
    status.conditions.iter().map(|one| format!("{}={} {}", one.type_, one.status, one.reason)).collect()
}

#[test]
fn each_outcome_is_what_kstatus_reads() {
    let failed = |is_terminal| Outcome::Failed { error: "why".into(), is_terminal };
    for (outcome, workload, expected) in [
        (applied(), pods(2, 1), ["Ready=True Running", "Reconciling=False AsExpected", "Stalled=False AsExpected"]),
        (applied(), pods(2, 0), ["Ready=False NoPodReady", "Reconciling=True NoPodReady", "Stalled=False AsExpected"]),
        (applied(), pods(0, 0), ["Ready=False NoPods", "Reconciling=False AsExpected", "Stalled=True NoPods"]),
        (
            rolling_out(""),
            pods(2, 2),
            ["Ready=False RollingOut", "Reconciling=True RollingOut", "Stalled=False AsExpected"],
        ),
        (
            Outcome::Stuck(Settled::after_pass(), "why".into()),
            pods(2, 0),
            ["Ready=False RolloutStuck", "Reconciling=False AsExpected", "Stalled=True RolloutStuck"],
        ),
        (
            failed(false),
            pods(2, 2),
            ["Ready=False ApplyFailed", "Reconciling=True ApplyFailed", "Stalled=False AsExpected"],
        ),
        (
            failed(true),
            pods(2, 2),
            ["Ready=False ApplyFailed", "Reconciling=False AsExpected", "Stalled=True ApplyFailed"],
        ),
        (
            Outcome::BadInput,
            pods(2, 2),
            ["Ready=False BadInput", "Reconciling=False AsExpected", "Stalled=True BadInput"],
        ),
        (
            Outcome::Paused,
            pods(2, 2),
            ["Ready=Unknown Paused", "Reconciling=False AsExpected", "Stalled=False AsExpected"],
        ),
        (
            Outcome::Removing(vec!["Service a".into()]),
            pods(0, 0),
            ["Ready=False Removing", "Reconciling=True Removing", "Stalled=False AsExpected"],
        ),
        (
            Outcome::Removed,
            pods(0, 0),
            ["Ready=False Removed", "Reconciling=False AsExpected", "Stalled=False AsExpected"],
        ),
    ] {
        assert_eq!(conditions(&outcome, workload)[..3], expected, "{outcome:?}");
    }
}

#[test]
fn a_bad_input_does_not_hide_the_version_that_runs() {
    let running = status(&Status::default(), &validation(), &applied(), pods(2, 2), "1");
    let bad = Validation::refused("Invalid", "spec: wrong".into());
    let after = status(&running, &bad, &Outcome::BadInput, pods(2, 2), "2");
    assert_eq!(after.provider, running.provider);
    assert_eq!(after.provider.version, "v1.35.2");
    let removed = status(&running, &bad, &Outcome::Removed, pods(0, 0), "3");
    assert_eq!(removed.provider, Provider::default());
}

/// Without a rollout, nothing else reports pods that crash.
#[test]
fn pods_that_do_not_become_ready_are_late_after_a_while() {
    let at = |minute: u32| format!("2026-11-25T04:{minute:02}:00Z");
    let next = |previous: &Status, ready: u32, minute: u32| {
        status(previous, &validation(), &applied(), pods(2, ready), &at(minute))
    };
    let reasons = |status: &Status| status.conditions[..3].iter().map(|one| one.reason.clone()).collect::<Vec<_>>();
    let left = |status: &Status, minute: u32| starting::late_in(status, &at(minute)).map(|left| left.as_secs());
    let running = next(&Status::default(), 2, 0);
    assert_eq!(left(&running, 0), None);
    let first = next(&running, 0, 10);
    assert_eq!(reasons(&first), ["NoPodReady", "NoPodReady", "AsExpected"]);
    assert_eq!((left(&first, 10), left(&first, 14), left(&first, 20)), (Some(300), Some(60), Some(0)));
    assert_eq!(next(&first, 0, 14), first);
    assert_eq!(problems::new(&running, &first).len(), 0, "they may still start");
    let late = next(&first, 0, 15);
    assert_eq!(reasons(&late), ["NoPodReady", "AsExpected", "NoPodReady"]);
    assert_eq!((left(&late, 15), next(&late, 0, 16)), (None, late.clone()));
    assert_eq!(problems::new(&first, &late).len(), 1);
    assert_eq!(reasons(&next(&late, 1, 17)), ["Running", "AsExpected", "AsExpected"]);
    // What was missing before does not count.
    let failed = Outcome::Failed { error: "why".into(), is_terminal: false };
    let failing = status(&running, &validation(), &failed, pods(2, 2), &at(0));
    let starting = next(&failing, 0, 10);
    assert_eq!((&starting.conditions[1].reason, left(&starting, 10)), (&"NoPodReady".to_owned(), Some(300)));
    assert_eq!(reasons(&next(&starting, 0, 11)), ["NoPodReady", "NoPodReady", "AsExpected"]);
}

#[test]
fn nodes_whose_machines_are_gone_are_named() {
    let gone_nodes = &(0..120).map(|number| format!("node-{number:03}")).collect();
    let validation = validation();
    let applied = applied();
    let input = Input { remarks: "", ..input(&validation, &applied, pods(2, 2), gone_nodes, "1") };
    let status = next(&Status::default(), &input);
    assert_eq!((status.nodes.gone.len(), status.nodes.gone[99].as_str()), (100, "node-099"));
    let message = "2 of 2 pods are ready; the machines of 120 nodes are gone, see status.nodes.gone";
    assert_eq!(status.conditions[0].message, message);
}

#[test]
fn nodes_that_wait_are_counted_by_their_reasons() {
    let (validation, outcome, none) = (validation(), applied(), BTreeSet::new());
    let after = |previous: &Status, nodes: Option<&Initialization>| {
        next(previous, &Input { nodes, ..input(&validation, &outcome, pods(2, 2), &none, "1") })
    };
    let shown = |status: &Status| {
        let one = &status.conditions[7];
        format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message)
    };
    let unknown = after(&Status::default(), None);
    assert_eq!(shown(&unknown), "NodesInitialized=Unknown NotChecked: the nodes are not checked yet");
    let waiting = |number: usize, reason| Waiting {
        node: format!("node-{number}"),
        uid: String::new(),
        since: number.to_string(),
        reason,
        cause: "why".into(),
    };
    let mut all: Vec<_> = (0..40).map(|number| waiting(number, Reason::CredentialsRefused)).collect();
    all.push(waiting(40, Reason::NodeIPNotFound));
    let nodes = Initialization { total: 50, uninitialized: 41, is_diagnosed: true, waiting: Ok(all) };
    let stuck = after(&unknown, Some(&nodes));
    let expected = "NodesInitialized=False CredentialsRefused: 41 of 50 nodes wait for their initialization: \
                    N07 CredentialsRefused (40), N10 NodeIPNotFound (1)";
    assert_eq!(shown(&stuck), expected);
    assert_eq!(
        (stuck.nodes.waiting.len(), stuck.nodes.waiting[0].reason.as_str(), stuck.nodes.uninitialized),
        (32, "N07", 41)
    );
    assert_eq!(after(&stuck, None), stuck, "not seen again yet");
    let done = after(
        &stuck,
        Some(&Initialization { total: 50, uninitialized: 0, is_diagnosed: true, waiting: Ok(Vec::new()) }),
    );
    assert_eq!((shown(&done).as_str(), done.nodes.waiting.len()), ("NodesInitialized=True Initialized: ", 0));
    // After a start, before the first diagnosis.
    let unknown = Initialization { total: 51, uninitialized: 41, is_diagnosed: false, waiting: Ok(Vec::new()) };
    let started = after(&stuck, Some(&unknown));
    assert_eq!(
        (&started.conditions, &started.nodes.waiting, started.nodes.total),
        (&stuck.conditions, &stuck.nodes.waiting, 51)
    );
    for (why, expected) in [
        (NotInitializing::ControllerOff, "ControllerOff: spec.controllers.cloudNode is Disabled"),
        (NotInitializing::Removed, "Removed: the cloud-controller-manager is removed, or is being removed"),
        (NotInitializing::BadInput, "BadInput: the cloud-controller-manager cannot be identified, see Configur"),
    ] {
        let none = Initialization { total: 50, uninitialized: 0, is_diagnosed: true, waiting: Err(why) };
        let found = after(&done, Some(&none));
        assert!(shown(&found).starts_with(&format!("NodesInitialized=Unknown {expected}")), "{}", shown(&found));
        assert_eq!(shown(&after(&found, None)), shown(&found), "nothing is known of the spec");
        // A reason in the spec that is gone does not stay until the nodes are diagnosed.
        let changed = Initialization { is_diagnosed: false, waiting: Ok(Vec::new()), ..none };
        assert!(shown(&after(&found, Some(&changed))).starts_with("NodesInitialized=Unknown NotChecked"), "{why:?}");
    }
}

#[test]
fn what_is_not_known_stays_and_a_condition_says_of_which_generation_it_is() {
    let (validation, none) = (validation(), BTreeSet::new());
    let cluster = cluster::Cluster {
        minor: crate::facts::version::Minor(35),
        distribution: crate::api::placement::Distribution::K3s,
        control_plane_nodes: 3,
    };
    let applied = applied();
    let known = Input { cluster: Some(&cluster), ..input(&validation, &applied, pods(2, 2), &none, "1") };
    let mut before = next(&Status::default(), &known);
    before.conditions[6].status = "True".into();
    let failed = Outcome::Failed { error: "nodes cannot be read".into(), is_terminal: false };
    let blind = Input { generation: 4, validation: None, workload: None, ..known.clone() };
    let after = next(&before, &Input { outcome: &failed, cluster: None, ..blind.clone() });
    assert_eq!(
        (&after.provider, &after.cluster, &after.workload),
        (&before.provider, &before.cluster, &before.workload)
    );
    assert_eq!(after.provider.version, "v1.35.2");
    let generations: Vec<_> = after.conditions.iter().map(|one| one.observed_generation).collect();
    // The inputs of this generation have not been read; a first installation is checked once.
    assert_eq!(generations, [4, 4, 4, 3, 3, 3, 4, 4, 4]);
    assert_eq!((&after.conditions[0].reason, &after.conditions[3]), (&"ApplyFailed".into(), &before.conditions[3]));
    let first = next(&Status::default(), &Input { outcome: &failed, cluster: None, ..blind });
    assert_eq!((first.conditions[3].status.as_str(), first.conditions[3].reason.as_str()), ("Unknown", "NotChecked"));
}

#[test]
fn a_time_changes_only_with_its_status() {
    let validation = validation();
    let first = status(&Status::default(), &validation, &applied(), pods(2, 0), "1");
    let second = status(&first, &validation, &applied(), pods(2, 0), "2");
    assert_eq!(first, second);
    let third = status(&second, &validation, &applied(), pods(2, 2), "3");
    let times: Vec<_> = third.conditions.iter().map(|one| one.last_transition_time.as_str()).collect();
    assert_eq!(times, ["3", "3", "1", "1", "1", "1", "1", "1", "1"]);
    assert_eq!(third.conditions[0].message, "2 of 2 pods are ready; a remark");
}

#[test]
fn inputs_have_conditions_of_their_own() {
    let input_problem = |reason| InputProblem { reason, message: "what to do".into() };
    let one = |validation: &Validation, outcome: &Outcome| {
        let status = status(&Status::default(), validation, outcome, pods(0, 0), "1");
        status.conditions[3..6]
            .iter()
            .map(|one| format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        one(&validation(), &applied()),
        [
            "ConfigurationValid=True Valid: ",
            "CredentialsFound=True Found: ",
            "VersionSupported=True Supported: the tag"
        ]
    );
    let problem = Some((NO_TAG_FOR_MINOR, "there is none".to_owned()));
    let choice = Choice { tag: "v1".into(), reason: "the nearest".into(), problem, ..Choice::default() };
    let bad = Validation {
        origin: None,
        configuration: Some(Ok(vec!["a".into(), "b".into()])),
        credentials: Some(Err(input_problem("KeyNotFound"))),
        version: Some((choice, "i".into())),
        objects: None,
        removed: Vec::new(),
    };
    assert_eq!(
        one(&bad, &Outcome::BadInput),
        [
            "ConfigurationValid=True Valid: a; b",
            "CredentialsFound=False KeyNotFound: what to do",
            "VersionSupported=False NoTagForMinor: there is none",
        ]
    );
    assert_eq!(bad.problem(), Some(&input_problem("KeyNotFound")));
    assert_eq!(
        one(&Validation::refused("Invalid", "spec: wrong".into()), &Outcome::BadInput),
        [
            "ConfigurationValid=False Invalid: spec: wrong",
            "CredentialsFound=Unknown NotChecked: another problem comes first",
            "VersionSupported=Unknown NotChecked: another problem comes first",
        ]
    );
}

#[test]
fn the_pods_are_those_of_the_live_workload() {
    let live = json!({
        "spec": {"replicas": 2},
        "status": {"readyReplicas": 1, "desiredNumberScheduled": 5, "numberReady": 4},
    });
    assert_eq!(workload("Deployment", &live), pods(2, 1));
    assert_eq!(workload("DaemonSet", &live), Workload { kind: "DaemonSet".into(), desired: 5, ready: 4 });
    assert_eq!(workload("Deployment", &Value::Null), pods(0, 0));
}

#[test]
fn conditions_of_others_are_not_the_operators() {
    let status = status(&Status::default(), &validation(), &applied(), pods(2, 2), "1");
    let mut live = json!({"status": status});
    assert_eq!(of(&live), status);
    let foreign = json!({"type": "Mine", "status": "True", "lastTransitionTime": "1", "reason": "R", "message": ""});
    live["status"]["conditions"].as_array_mut().unwrap().push(foreign);
    assert_eq!(of(&live), status);
    assert!(has(&live, "Ready", "True") && !has(&live, "Ready", "False"));
    assert_eq!(of(&json!({})), Status::default());
}
