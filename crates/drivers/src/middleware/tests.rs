//! The layer around a scripted driver, in virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use tokio::time::sleep;

use super::*;
use crate::{
    contract::{
        CommandOutput, Error, ErrorKind, Filter, Instance, InstanceSpec, Marks, Region, Resource, ResourceKind, State,
        Zone, capabilities,
    },
    settings::{COMMON, Given, Kind, RATE, Setting, TIMEOUT},
};

mod answers;
mod create;
mod owner;
mod scripted;
mod trace;

use scripted::{
    Script, Scripted,
    Step::{self, Answer, Fail, Hang},
    instance,
};

fn values(given: &[(&str, &str)]) -> Values {
    let secret = Setting::new("token", Kind::Text, "The token.").secret();
    let flags = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Values::resolve("scripted", COMMON.iter().chain([&secret]), &Given { flags, ..Given::default() }).unwrap()
}

/// Opens a session, as [`Session::open_listed`] does.
async fn open(script: &Arc<Script>, given: &[(&str, &str)], seen: Option<&str>, trace: bool) -> Result<Session> {
    let driver = Scripted(script.clone());
    Session::open_listed(&driver, &values(given), seen, trace, InFlightHandle::default()).await
}

/// Opens a session; the script goes on with these steps afterwards.
async fn session(script: &Arc<Script>, given: &[(&str, &str)], steps: impl IntoIterator<Item = Step>) -> Session {
    let session = open(script, given, None, false).await.unwrap();
    script.steps.lock().unwrap().extend(steps);
    session
}

fn fail(kind: ErrorKind) -> Step {
    Fail(Error::new(kind, "the reason"))
}

fn spec() -> InstanceSpec {
    InstanceSpec { key: "o".to_owned(), name: "n".to_owned(), ..InstanceSpec::default() }
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried_with_growing_pauses() {
    let script = Script::new([]);
    let steps = [fail(ErrorKind::Unavailable), fail(ErrorKind::Timeout)];
    let session = session(&script, &[], steps).await;
    assert_eq!(session.instances().unwrap().get("i-1").await.unwrap().id, "i-1");
    assert_eq!((script.names(), script.times()), (vec!["get i-1".to_owned(); 3], vec![0.0, 1.0, 3.0]));

    script.steps.lock().unwrap().extend([Answer].into_iter().chain((0..4).map(|_| fail(ErrorKind::Unavailable))));
    let error = session.instances().unwrap().delete("i-1").await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unavailable, "the reason (3 attempts)"));
    assert_eq!(script.steps.lock().unwrap().len(), 1, "no fourth attempt");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_as_long_as_the_cloud_asks() {
    let script = Script::new([]);
    let limited = |after| fail(ErrorKind::RateLimited(after));
    let steps = [limited(Some(Duration::from_secs(7))), limited(None)];
    let session = session(&script, &[], steps).await;
    session.topology().regions().await.unwrap();
    assert_eq!(script.times(), [0.0, 7.0, 9.0]);

    let long = Some(Duration::from_secs(3600));
    script.steps.lock().unwrap().push_back(limited(long));
    let error = session.topology().regions().await.unwrap_err();
    assert_eq!((error.kind, script.times().len()), (ErrorKind::RateLimited(long), 4));
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_not_retried() {
    for kind in [
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::InvalidCredentials,
        ErrorKind::Forbidden,
        ErrorKind::InvalidArgument("image".to_owned()),
        ErrorKind::NotSupported,
        ErrorKind::ReadOnly,
        ErrorKind::Internal,
    ] {
        let script = Script::new([]);
        let session = session(&script, &[], [Answer, fail(kind.clone())]).await;
        let error = session.instances().unwrap().start("i-1").await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, "the reason"));
        assert_eq!(script.names(), ["get i-1", "start i-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_verification_of_credentials_is_retried_and_limited_as_well() {
    let script = Script::new([fail(ErrorKind::Unavailable), Hang]);
    let opened = session(&script, &[(TIMEOUT, "5s")], []).await;
    assert_eq!((opened.account_info().id.as_str(), script.times()), ("A", vec![1.0, 8.0]));
    let script = Script::new([fail(ErrorKind::InvalidCredentials)]);
    let refused = open(&script, &[], None, false).await;
    assert_eq!(refused.err().unwrap().kind, ErrorKind::InvalidCredentials);
    assert_eq!(script.names(), ["close"]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_limited_in_time_and_create_to_ten_times_as_much() {
    let script = Script::new([]);
    let opened = session(&script, &[], [Hang, Hang, Hang]).await;
    let error = opened.instances().unwrap().get("i-1").await.unwrap_err();
    let message = "get instance \"i-1\": no answer within 30s; it may have happened all the same. A higher timeout waits longer (3 \
                   attempts)";
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Timeout, message));
    assert_eq!(script.times(), [0.0, 31.0, 63.0]);

    let script = Script::new([]);
    let opened = session(&script, &[(TIMEOUT, "2s")], [Hang, Hang, Hang]).await;
    assert_eq!(opened.instances().unwrap().create(&spec()).await.unwrap_err().kind, ErrorKind::Timeout);
    assert_eq!(script.times(), [0.0, 21.0, 43.0, 63.0], "three attempts, and the list of what they made");

    let opened = session(&Script::new([]), &[(TIMEOUT, "0")], [Hang]).await;
    let day = sleep(Duration::from_secs(86_400));
    tokio::select! {
        answer = opened.instances().unwrap().get("i-1") => panic!("{answer:?}"),
        () = day => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_may_have_run_is_not_repeated() {
    let command = ["a".to_owned(), "b".to_owned()];
    for (step, kind) in [
        (Hang, Some(ErrorKind::Timeout)),
        (fail(ErrorKind::Unavailable), Some(ErrorKind::Unavailable)),
        (fail(ErrorKind::RateLimited(None)), None),
    ] {
        let script = Script::new([]);
        let session = session(&script, &[], [Answer, step]).await;
        let error = session.run_command().unwrap().run("i-1", &command).await.err();
        assert_eq!(script.names().len(), if kind.is_none() { 3 } else { 2 });
        assert_eq!(error.map(|error| error.kind), kind);
    }
    let session = session(&Script::new([]), &[(TIMEOUT, "2s")], [Answer, Hang]).await;
    let error = session.run_command().unwrap().run("i-1", &command).await.unwrap_err();
    assert!(error.message.contains("no answer within 20s; "), "it has the limit of create: {error}");
}

#[tokio::test(start_paused = true)]
async fn close_has_a_limit_of_its_own() {
    let opened = session(&Script::new([]), &[(TIMEOUT, "0")], [Hang]).await;
    let error = opened.close().await.unwrap_err();
    assert_eq!(error.message, "close: no answer within 10s; it may have happened all the same");
    assert_eq!(error.kind, ErrorKind::Timeout);
    let script = Script::new([fail(ErrorKind::InvalidCredentials), Hang]);
    let error = open(&script, &[], None, false).await.err().unwrap();
    assert_eq!((error.kind, script.names()), (ErrorKind::InvalidCredentials, vec!["close".to_owned()]));
}

/// Tries all operations that change something, and returns their results.
async fn changes(session: &Session) -> Vec<Result<()>> {
    let instances = session.instances().unwrap();
    let run = session.run_command().unwrap().run("i-1", &[]).await;
    vec![
        instances.create(&spec()).await.map(|_| ()),
        instances.delete("i-1").await,
        instances.start("i-1").await,
        instances.stop("i-1").await,
        run.map(|_| ()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_allowed_never_reaches_the_driver() {
    let script = Script::new([]);
    let opened = session(&script, &[(READ_ONLY, "true")], []).await;
    for result in changes(&opened).await {
        let error = result.unwrap_err();
        assert!(error.message.ends_with(": the setting readOnly is true"), "{error}");
        assert_eq!(error.kind, ErrorKind::ReadOnly);
    }
    assert!(script.names().is_empty());
    assert!(opened.mode(Capability::Instances).read_only);
    opened.instances().unwrap().get("i-1").await.unwrap();

    for (capability, refused) in [(Capability::Instances, 4), (Capability::RunCommand, 1)] {
        let script = Script::with_read_only([], Some(capability));
        let opened = session(&script, &[], []).await;
        let errors: Vec<_> = changes(&opened).await.into_iter().filter_map(Result::err).collect();
        let words = format!("the driver has the capability {} read-only", capability.name());
        assert!(errors.iter().all(|error| error.kind == ErrorKind::ReadOnly && error.message.ends_with(&words)));
        let changes = script.names().into_iter().filter(|name| !name.starts_with("get ")).count();
        assert_eq!((errors.len(), changes), (refused, 5 - refused));
    }
    assert_eq!(changes(&session(&Script::new([]), &[], []).await).await.iter().filter(|one| one.is_ok()).count(), 5);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_spaced_by_the_rate() {
    let script = Script::new([]);
    let session = session(&script, &[(RATE, "4")], [fail(ErrorKind::Unavailable)]).await;
    let instances = session.instances().unwrap();
    join_all((0..4).map(|_| instances.get("i-1"))).await;
    // The first one is the verification, at 0. The attempt at 0.25 fails, and is repeated a second later.
    assert_eq!(script.times(), [0.25, 0.5, 0.75, 1.0, 1.25]);
    sleep(Duration::from_secs(60)).await;
    let before = script.times().len();
    join_all((0..2).map(|_| instances.get("i-1"))).await;
    let times = script.times();
    assert!((times[before + 1] - times[before] - 0.25).abs() < 1e-6, "idle time allows no burst: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn another_account_is_refused() {
    for (set, seen, words) in [
        (
            &[(ACCOUNT_ID, "B")][..],
            None,
            "the credentials belong to the account \"A\", but the setting accountID is \"B\": give the credentials of \"B\", or change \
             accountID if \"A\" is meant",
        ),
        (
            &[],
            Some("B"),
            "not the account of the first use: the credentials belong to the account \"A\", and it was \"B\"",
        ),
        (&[(ACCOUNT_ID, "A")], Some("B"), "not the account of the first use: "),
    ] {
        let script = Script::new([]);
        let error = open(&script, set, seen, false).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidCredentials);
        assert!(error.message.contains(words), "{error}");
        let pinned = set.first().map(|(_, text)| *text).or(seen);
        assert_eq!(script.opened_for.lock().unwrap().as_deref(), pinned, "the driver looks at it by itself, too");
    }
    let script = Script::new([]);
    let session = open(&script, &[(ACCOUNT_ID, "A")], Some("A"), false).await.unwrap();
    assert_eq!(session.account_info().id, "A");
    "C".clone_into(&mut script.account.lock().unwrap());
    assert_eq!(session.account().verify().await.unwrap_err().kind, ErrorKind::InvalidCredentials);
    script.account.lock().unwrap().clear();
    assert_eq!(session.account().verify().await.unwrap_err().kind, ErrorKind::Internal);

    let script = Script::new([]);
    let session = open(&script, &[], None, false).await.unwrap();
    session.account().verify().await.unwrap();
    "C".clone_into(&mut script.account.lock().unwrap());
    let error = session.account().verify().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "a session is of one account");

    let script = Script::new([fail(ErrorKind::InvalidCredentials)]);
    let error = open(&script, &[], Some("B"), false).await.err().unwrap();
    assert_eq!(error.message, "the reason", "the account is the right one, as far as is known");
}

/// A driver knows the id that was seen first as the setting, and users who have not set it must not be told to change it.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_driver_says_where_the_id_comes_from() {
    const DOCKER: &str = "the Engine has the id A, and accountID demands B: correct host or accountID";
    for (message, set, seen) in [
        (DOCKER, DOCKER, "not the account of the first use: the Engine has the id A, and the first use demands B"),
        (
            "show: it answered for \"A\", and the account is \"B\": give those of \"B\", or change accountID if \"A\" is meant",
            "show: it answered for \"A\", and the account is \"B\": give those of \"B\", or change accountID if \"A\" is meant",
            "not the account of the first use: show: it answered for \"A\", and the account is \"B\"",
        ),
        ("the token is wrong: get one", "the token is wrong: get one", "the token is wrong: get one"),
    ] {
        let refusal = || [Fail(Error::new(ErrorKind::InvalidCredentials, message))];
        let error = open(&Script::new(refusal()), &[(ACCOUNT_ID, "B")], Some("B"), false).await.err().unwrap();
        assert_eq!(error.message, set);
        let error = open(&Script::new(refusal()), &[], Some("B"), false).await.err().unwrap();
        assert_eq!(error.message, seen);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_another_object_is_an_error_of_the_driver() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    let instances = session.instances().unwrap();
    for (other, words) in [
        (instance("i-10", "n", "o"), "asked for the instance \"i-1\" and answered with \"i-10\""),
        (instance("i-1", "m", "o"), "asked for the name \"n\" and answered with \"m\""),
        (instance("i-1", "n", "p"), "asked for the owner \"o\" and answered with \"p\""),
    ] {
        *script.other.lock().unwrap() = Some(other.clone());
        let error = if other.id == "i-1" { instances.create(&spec()).await } else { instances.get("i-1").await };
        let error = error.unwrap_err();
        assert!(error.kind == ErrorKind::Internal && error.message.contains(words), "{error}");
        assert_eq!(error.instance.is_some(), other.id == "i-1", "the instance of a failed create is known");
    }
    for error in [
        session.topology().region("q").await.err(),
        session.topology().zone("q").await.err(),
        session.inventory().unwrap().get(ResourceKind::Image, "q").await.err(),
    ] {
        assert_eq!(error.unwrap().kind, ErrorKind::Internal);
    }
}

#[tokio::test(start_paused = true)]
async fn each_operation_reaches_its_own() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    let (topology, inventory) = (session.topology(), session.inventory().unwrap());
    changes(&session).await;
    session.account().verify_settings().await.unwrap();
    let filter = Filter { name: Some("n".to_owned()), ..Filter::default() };
    assert_eq!(session.instances().unwrap().list(&filter).await.unwrap().len(), 1);
    assert_eq!(topology.id_prefix(), "scripted/");
    assert_eq!(topology.zones(Some("r")).await.unwrap()[0].id, topology.zone("z").await.unwrap().id);
    assert_eq!(topology.region("r").await.unwrap().id, "r");
    assert_eq!(inventory.list(ResourceKind::Image, Some("r")).await.unwrap().len(), 1);
    assert_eq!(inventory.get(ResourceKind::Image, "a").await.unwrap().id, "a");
    session.close().await.unwrap();
    let names = "get i-1,run i-1,create n,get i-1,delete i-1,get i-1,start i-1,get i-1,stop i-1,verify_settings,list n,zones r,zone z,region r,list_inventory image \
                 r,get_inventory image a,close";
    assert_eq!(script.names().join(","), names);
    assert_eq!(capabilities(&session), capabilities(&Scripted(script)));
    assert!(session.metrics().is_none() && session.mode(Capability::Topology).emulated);
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_listed_also_while_the_session_is_in_use() {
    let script = Script::new([Hang]);
    let handle = InFlightHandle::default();
    let driver = Scripted(script.clone());
    let values = values(&[]);
    let open = Session::open_listed(&driver, &values, None, false, handle.clone());
    let shown = async |after: u64| {
        sleep(Duration::from_secs(after)).await;
        handle.list().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (opened, shown_meanwhile) = futures::join!(open, shown(2));
    assert_eq!(shown_meanwhile, ["verify credentials, attempt 1, for 2.0s"]);
    let session = opened.unwrap();
    script.steps.lock().unwrap().extend([Hang, Hang]);
    tokio::select! {
        answer = session.instances().unwrap().get("i-1") => panic!("{answer:?}"),
        shown = shown(40) => assert_eq!(shown, ["get instance \"i-1\", attempt 2, for 40.0s"]),
    }
    assert!(handle.list().is_empty(), "it was given up");
}
