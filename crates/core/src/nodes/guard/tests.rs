//! Tests each rule with a case that only this rule denies.

use super::*;
use crate::nodes::node::{Ready, UNINITIALIZED};

const USER: &str = "system:serviceaccount:kube-system:aws-cloud-controller-manager";
const POLICY: &str = "aws-cloud-controller-manager-delete-nodes";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A worker of the cloud, unready since `since`, if given.
fn node(name: &str, since: Option<i64>) -> Node {
    let status = if since.is_some() { "Unknown" } else { "True" };
    Node {
        name: name.into(),
        uid: format!("uid-{name}"),
        provider_id: format!("aws:///eu-west-1a/i-{name}"),
        ready: Some(Ready {
            status: status.into(),
            since: at(since.unwrap_or(-99_999)).to_string(),
            ..Ready::default()
        }),
        ..Node::default()
    }
}

/// The Event about a node.
fn event(node: &str, last: i64) -> NodeEvent {
    NodeEvent {
        node: node.into(),
        uid: format!("uid-{node}"),
        reason: REFUSED.into(),
        component: COMPONENT.into(),
        message: format!("Failed deleting node {node}: nodes \"{node}\" is forbidden: User \"{USER}\" cannot delete"),
        last: Some(at(last)),
    }
}

/// Ten nodes: the machine of `gone` is gone, and everything else is healthy.
struct Case {
    nodes: Vec<Node>,
    events: Vec<NodeEvent>,
    settings: NodeDeletion,
    leads_since: Option<i64>,
    obstacle: Option<&'static str>,
    unsettled: Option<&'static str>,
    deleted: Vec<Deleted>,
    now: i64,
}

impl Case {
    fn new() -> Self {
        let workers = (0..8).map(|number| node(&format!("w{number}"), None));
        let mut server = node("server", None);
        server.is_control_plane = true;
        Self {
            nodes: [server, node("gone", Some(-700))].into_iter().chain(workers).collect(),
            events: vec![event("gone", -60)],
            settings: NodeDeletion::default(),
            leads_since: Some(-3600),
            obstacle: None,
            unsettled: None,
            deleted: Vec::new(),
            now: 0,
        }
    }

    fn gone(&mut self) -> &mut Node {
        &mut self.nodes[1]
    }

    /// Loses the machine of one more node.
    fn lose(&mut self, name: &str, since: i64) {
        let lost = self.nodes.iter_mut().find(|one| one.name == name).unwrap();
        *lost = node(name, Some(since));
        self.events.push(event(name, -60));
    }

    fn decide(&self) -> Decision {
        self.decide_by(Attempts::Refused { events: &self.events, user: USER, policy: POLICY })
    }

    fn decide_by(&self, attempts: Attempts<'_>) -> Decision {
        decide(&GuardInput {
            now: at(self.now),
            nodes: &self.nodes,
            attempts,
            provider_ids: &["aws:///".to_owned()],
            settings: &self.settings,
            leads_since: self.leads_since.map(at).ok_or("nobody leads"),
            obstacle: self.obstacle,
            unsettled: self.unsettled,
            deleted: &self.deleted,
        })
    }

    fn confirmed(&self) -> Vec<String> {
        self.decide().confirmed.into_iter().map(|entry| entry.name).collect()
    }

    /// Returns why the only candidate stays.
    fn why(&self) -> KeepReason {
        let Decision { confirmed, waiting, .. } = self.decide();
        assert!(confirmed.is_empty() && waiting.len() == 1, "{confirmed:?} {waiting:?}");
        waiting[0].why.clone()
    }
}

fn case(change: impl FnOnce(&mut Case)) -> Case {
    let mut case = Case::new();
    change(&mut case);
    case
}

#[test]
fn a_node_whose_machine_is_gone_is_confirmed_in_its_state() {
    let decision = Case::new().decide();
    let since = at(-700).to_string();
    assert_eq!(
        decision.confirmed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("gone/uid-gone/{since}")]
    );
    assert_eq!((decision.waiting, decision.asked_for), (vec![], vec!["gone".to_owned()]));
    assert_eq!(decision.due, Some(at(-60 + 330)), "then the Event does not count any more");
}

#[test]
fn a_cloud_controller_manager_that_knows_its_attempts_needs_no_events() {
    let case = case(|one| one.events.clear());
    let by = |attempts: &[(&str, i64)]| {
        let attempts = attempts.iter().map(|(uid, last)| ((*uid).to_owned(), at(*last))).collect();
        let Decision { confirmed, waiting, .. } = case.decide_by(Attempts::Own(&attempts));
        (confirmed.len(), waiting.into_iter().map(|one| one.why).collect::<Vec<_>>())
    };
    assert_eq!(by(&[("uid-gone", -1)]), (1, vec![]));
    assert_eq!(by(&[]), (0, vec![]));
    assert_eq!(by(&[("uid-gone", -330)]), (0, vec![]), "the attempt is too old");
    assert_eq!(by(&[("uid-gone", -101)]), (0, vec![KeepReason::NotAskedFor]), "before the node was unready for long");
    assert_eq!(
        by(&[("uid-other", -1), ("uid-w0", -1)]),
        (0, vec![]),
        "of a node that does not exist, and of a ready one"
    );
}

#[test]
fn a_message_names_few_prefixes() {
    let prefixes = |count: usize| (0..count).map(|n| format!("cloud{n}://{}", "x".repeat(180))).collect::<Vec<_>>();
    assert_eq!(named(&prefixes(MOST_NAMED)), prefixes(MOST_NAMED));
    let mut few = prefixes(MOST_NAMED);
    few.push("and 28 more".to_owned());
    let why = KeepReason::OtherCloudProviderID(named(&prefixes(32)));
    assert_eq!(why, KeepReason::OtherCloudProviderID(few));
    assert!(why.to_string().len() < 1_000, "{why}");
    assert_eq!(named(&[]), Vec::<String>::new());
}

#[test]
fn each_fixed_rule_denies() {
    let prefixes = vec!["aws:///".to_owned()];
    assert_eq!(
        case(|one| one.gone().provider_id = "gce:///x".into()).why(),
        KeepReason::OtherCloudProviderID(prefixes.clone())
    );
    assert_eq!(case(|one| one.gone().provider_id.clear()).why(), KeepReason::OtherCloudProviderID(prefixes));
    let select = |one: &mut Case| one.settings.selector.match_labels = [("pool".to_owned(), "a".to_owned())].into();
    let with = |one: &mut Case, pool: &str| one.gone().labels = [("pool".to_owned(), pool.to_owned())].into();
    assert_eq!(case(select).why(), KeepReason::NotSelected);
    assert_eq!(case(|one| (select(one), with(one, "b")).0).why(), KeepReason::NotSelected);
    // The other nodes are not selected, so they do not prove that the credentials are right.
    assert_eq!(case(|one| (select(one), with(one, "a")).0).why(), KeepReason::NoReadyNode);
    assert_eq!(case(|one| one.gone().is_kept = true).why(), KeepReason::Kept);
    assert_eq!(case(|one| one.gone().taints = vec![UNINITIALIZED.into()]).why(), KeepReason::Uninitialized);
    assert_eq!(case(|one| one.gone().ready = None).why(), KeepReason::NeverReported);
    assert_eq!(case(|one| one.gone().is_control_plane = true).why(), KeepReason::ControlPlane);
    assert_eq!(case(|one| one.gone().is_etcd = true).why(), KeepReason::ControlPlane);
    let allowed =
        |one: &mut Case| (one.gone().is_control_plane, one.gone().allows_control_plane_deletion) = (true, true);
    assert_eq!(case(allowed).confirmed(), ["gone"]);
    let last = case(|one| {
        allowed(one);
        one.nodes[0] = node("server", Some(-10));
        one.nodes[0].is_control_plane = true;
    });
    assert_eq!(last.why(), KeepReason::LastControlPlane);
}

#[test]
fn nothing_that_is_not_as_kubernetes_writes_it_comes_near_the_policy() {
    for name in ["a'b", "a/b", "A", "", "a b", "ä", "a\\b"] {
        let unreadable = case(|one| one.gone().name = name.into());
        assert_eq!(unreadable.why(), KeepReason::Unreadable, "{name}");
    }
    assert_eq!(case(|one| one.gone().name = "a".repeat(254)).why(), KeepReason::Unreadable);
    assert_eq!(
        case(|one| {
            one.gone().uid = "u']".into();
            one.events[0].uid = "u']".into();
        })
        .why(),
        KeepReason::Unreadable
    );
    for since in ["", "2026-01-01", "2026-01-01T00:00:00+00:00", "2026-01-01t00:00:00z", "yesterday-evening-xx"] {
        let unreadable = case(|one| one.gone().ready.as_mut().unwrap().since = since.into());
        assert_eq!(unreadable.why(), KeepReason::Unreadable, "{since}");
    }
}

#[test]
fn a_node_must_not_have_been_ready_for_long_by_two_clocks() {
    // Too young only by the local clock: the clock of the cloud-controller-manager is ahead.
    let young = case(|one| {
        *one.gone() = node("gone", Some(-590));
        one.events[0].last = Some(at(15));
    });
    assert_eq!(young.why(), KeepReason::Young(600, at(10)));
    assert_eq!(young.decide().due, Some(at(10)));
    assert_eq!(case(|one| one.settings.min_not_ready_seconds = 701).why(), KeepReason::Young(701, at(1)));
    // Too young only by the clock of the cloud-controller-manager: the local clock is ahead, or there was no attempt since.
    assert_eq!(case(|one| one.events[0].last = Some(at(-101))).why(), KeepReason::NotAskedFor);
    assert_eq!(case(|one| one.events[0].last = Some(at(-100))).confirmed(), ["gone"]);
    assert_eq!(case(|one| one.events[0].last = Some(at(31))).why(), KeepReason::ClocksDiffer);
    // A forged Event in the future does not hide the genuine one.
    let forged = |one: &mut Case| one.events.insert(0, event("gone", 9999));
    assert_eq!(case(forged).confirmed(), ["gone"]);
    // A node that was ready meanwhile starts over.
    assert_eq!(case(|one| *one.gone() = node("gone", Some(-100))).why(), KeepReason::Young(600, at(500)));
}

#[test]
fn only_fresh_events_of_this_cloud_controller_manager_about_this_node_count() {
    type Change = fn(&mut NodeEvent);
    let changes: [(&str, Change); 6] = [
        ("old", |event| event.last = Some(at(-330))),
        ("without a time", |event| event.last = None),
        ("of an earlier node of this name", |event| event.uid = "uid-earlier".into()),
        ("another reason", |event| event.reason = "DeletingNode".into()),
        ("another component", |event| event.component = "kubelet".into()),
        ("another user", |event| event.message = event.message.replace("aws-cloud", "aws-cloud-2")),
    ];
    for (what, change) in changes {
        let decision = case(|one| change(&mut one.events[0])).decide();
        assert_eq!(decision, Decision { due: decision.due, ..Decision::default() }, "{what}");
    }
    let by_policy = case(|one| {
        one.events[0].message = format!(
            "Failed deleting node gone: nodes \"gone\" is forbidden: ValidatingAdmissionPolicy '{POLICY}' denied"
        );
    });
    assert_eq!(by_policy.confirmed(), ["gone"]);
    assert_eq!(
        case(|one| *one.gone() = node("gone", None)).decide().waiting,
        [],
        "it is ready, the Event is left over"
    );
    assert_eq!(case(|one| one.gone().is_terminating = true).decide().waiting, [], "it goes already");
}

#[test]
fn the_rules_about_all_nodes_deny() {
    assert_eq!(case(|one| one.obstacle = Some("bad")).why(), KeepReason::Obstacle("bad".into()));
    assert_eq!(
        case(|one| one.unsettled = Some("it is rolled out")).why(),
        KeepReason::Obstacle("it is rolled out".into())
    );
    assert_eq!(case(|one| one.leads_since = None).why(), KeepReason::NoLeader("nobody leads".into()));
    assert_eq!(case(|one| one.leads_since = Some(-599)).why(), KeepReason::Unsettled(at(1)));
    assert_eq!(case(|one| one.leads_since = Some(-600)).confirmed(), ["gone"]);
    // The other nodes belong to another cloud, wait for their initialization, or are not ready for another reason.
    let others: [fn(&mut Node); 3] = [
        |node| node.provider_id = "gce:///x".into(),
        |node| node.taints = vec![UNINITIALIZED.into()],
        |node| node.ready.as_mut().unwrap().status = "False".into(),
    ];
    for change in others {
        let alone = case(|one| one.nodes.iter_mut().filter(|node| node.name != "gone").for_each(change));
        assert_eq!(alone.why(), KeepReason::NoReadyNode);
        // This reason is reported at once, whatever else is missing.
        let early = Case { leads_since: None, unsettled: Some("it is rolled out"), ..alone };
        assert_eq!(early.why(), KeepReason::NoReadyNode);
    }
}

#[test]
fn many_at_once_are_the_sign_of_another_cause() {
    let mut case = case(|one| one.lose("w0", -800));
    assert_eq!(case.confirmed(), ["w0", "gone"], "2 of 10, the one that has not been ready for longer first");
    // A node that has just become unready counts, too.
    case.lose("w1", -5);
    let decision = case.decide();
    assert_eq!(decision.confirmed, []);
    let whys: Vec<_> = decision.waiting.iter().map(|waiting| waiting.why.clone()).collect();
    let many = KeepReason::TooMany { would: 3, of: 10, may: 2, kept: 0 };
    assert_eq!(whys, [many.clone(), many.clone(), many.clone()], "before anything is old enough");
    assert!(many.is_alarm());
    // Nodes that can never be deleted do not block the others, but are reported.
    let mut kept = Case { nodes: case.nodes.clone(), events: case.events.clone(), ..Case::new() };
    kept.nodes.iter_mut().find(|one| one.name == "w1").unwrap().is_kept = true;
    assert_eq!(kept.confirmed(), ["w0", "gone"]);
    kept.settings.max_percent = 10;
    let why = kept.decide().waiting[0].why.clone();
    assert_eq!(why, KeepReason::TooMany { would: 2, of: 10, may: 1, kept: 1 });
    assert!(why.to_string().contains("1 more that it takes for gone are kept"), "{why}");
    case.settings.max_percent = 30;
    assert_eq!(case.confirmed(), ["w0", "gone"]);
    // Nodes of other clouds do not count, and one node may always be deleted.
    let mut few = Case::new();
    few.nodes.truncate(3);
    few.settings.max_percent = 1;
    assert_eq!(few.confirmed(), ["gone"]);
}

#[test]
fn what_was_deleted_within_the_hour_counts() {
    let deleted = |at_: i64| Deleted { node: "x".into(), uid: format!("uid{at_}"), at: at(at_).to_string() };
    let limited = case(|one| {
        one.settings.max_per_hour = 2;
        one.deleted = vec![deleted(-3599), deleted(-10)];
    });
    assert_eq!(limited.why(), KeepReason::PerHour(2));
    assert_eq!(limited.decide().due, Some(at(1)));
    let mut two = case(|one| {
        one.settings.max_per_hour = 2;
        one.deleted = vec![deleted(-10)];
        one.lose("w0", -800);
    });
    assert_eq!(two.confirmed(), ["w0"], "the other one has its turn later");
    two.deleted.pop();
    assert_eq!(two.confirmed(), ["w0", "gone"]);
}

#[test]
fn what_people_allow_passes_the_limits_and_no_fixed_rule() {
    let allowed = |change: fn(&mut Case)| {
        case(|one| {
            let since = [-700, -1].map(|since| format!("gone/uid-gone/{}", at(since)));
            one.settings.allow = since.into();
            (one.events, one.leads_since, one.settings.max_per_hour) = (Vec::new(), None, 0);
            change(one);
        })
    };
    let young = allowed(|one| *one.gone() = node("gone", Some(-1)));
    assert_eq!(young.confirmed(), ["gone"]);
    assert_eq!(young.decide().asked_for, Vec::<String>::new());
    assert_eq!(allowed(|one| one.unsettled = Some("it is rolled out")).confirmed(), ["gone"]);
    let ready = allowed(|one| *one.gone() = node("gone", None)).decide();
    assert_eq!(ready, Decision::default(), "nobody asks for a node that is ready: an entry may be left over");
    assert_eq!(allowed(|one| one.gone().is_kept = true).why(), KeepReason::Kept);
    assert_eq!(allowed(|one| one.obstacle = Some("bad")).why(), KeepReason::Obstacle("bad".into()));
    assert_eq!(allowed(|one| one.gone().uid = "another".into()).decide(), Decision::default());
    // The node became ready, and failed again.
    assert_eq!(allowed(|one| *one.gone() = node("gone", Some(-60))).decide(), Decision::default());
}

#[test]
fn a_confirmed_node_that_is_gone_was_deleted_and_is_remembered_for_an_hour() {
    let nodes = [node("stays", Some(-700))];
    let known = Deleted { node: "old".into(), uid: "uid-old".into(), at: at(-3599).to_string() };
    let before = Deletion {
        confirmed: vec!["gone/uid-gone".into(), "stays/uid-stays".into()],
        deleted: vec![known.clone()],
        ..Deletion::default()
    };
    let deleted =
        |before: &Deletion, now: i64| deleted(before, &nodes, at(now), |one| !counts_for(one, at(now)).is_zero());
    let now = deleted(&before, 0);
    let gone = Deleted { node: "gone".into(), uid: "uid-gone".into(), at: at(0).to_string() };
    assert_eq!(now, [known, gone.clone()]);
    // The deletion is not counted twice before the next status, and is forgotten later.
    let before = Deletion { deleted: now, ..before };
    assert_eq!(deleted(&before, 1), std::slice::from_ref(&gone));
    let before = Deletion { confirmed: Vec::new(), ..before };
    assert_eq!(deleted(&before, 3600), []);
    // A clock that is set back does not make the deletion count for longer than an hour.
    assert_eq!(counts_for(&gone, at(-500)), Duration::from_secs(3600));
}

#[test]
fn the_list_does_not_become_too_long_for_the_api_server() {
    let mut case = case(|one| one.nodes.truncate(1));
    for number in 0..400 {
        let mut lost = node(&format!("{number:03}-{}", "n".repeat(240)), Some(-700));
        lost.uid = format!("{number:036}");
        case.settings.allow.push(Entry::of(&lost).unwrap().to_string());
        case.nodes.push(lost);
    }
    let Decision { confirmed, waiting, .. } = case.decide();
    let length: usize = confirmed.iter().map(|entry| entry.to_string().len() + 4).sum();
    assert!((LONGEST_LIST - 400..=LONGEST_LIST).contains(&length), "{length}");
    assert!(waiting.iter().all(|one| one.why == KeepReason::ListFull) && confirmed.len() + waiting.len() == 400);
    // The hourly limit reports the effective number.
    case.settings.max_per_hour = 1000;
    assert!(KeepReason::PerHour(MOST).to_string().contains("allows 256 in an hour"));
}
