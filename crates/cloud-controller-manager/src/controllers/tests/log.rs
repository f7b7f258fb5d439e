//! What the log has about nodes at the default verbosity: a line for each change, and none for a pass that finds the same again.

use std::{cell::RefCell, fmt, sync::Once};

use ccm_drivers::contract::{Error, ErrorKind, State};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{
    super::monitor::{Memory, pass},
    *,
};
use crate::guard::{Clocks, Guard};

thread_local! {
    /// The lines of this crate that a test, which is a thread, has logged.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects the lines of this thread from now on. Every world calls it before anything logs: tracing remembers for the whole process
/// whether anybody wants a line, and with a subscriber of one thread a test without one could decide that nobody does.
pub(super) fn collect() {
    static SET: Once = Once::new();
    SET.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
    lines();
}

/// Returns the lines since the last time.
fn lines() -> Vec<String> {
    LINES.take()
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            LINES.with_borrow_mut(|lines| lines.push(format!("{value:?}")));
        }
    }
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("ccm_cloud_controller_manager")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Runs passes until just before a minute is over, and returns their lines.
async fn passes(context: &Context, memory: &mut Memory) -> Vec<String> {
    for _ in 0..11 {
        pass(context, memory).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    lines()
}

#[tokio::test(start_paused = true)]
async fn the_log_has_one_line_for_each_change_of_a_node() {
    let figures = GuardOptions { min_not_ready: Duration::from_secs(600), max_per_hour: 1, max_percent: 50 };
    let world = World::new(&["b", "c"]);
    for (name, ready) in [("a", "Unknown"), ("b", "Unknown"), ("c", "True")] {
        world.api.state().put(known_node(name, ready));
    }
    let context = world.context(options(Some(figures.clone()))).await;
    let mut memory = Memory::default();
    memory.guard = Some(Guard::new(&figures, Clocks::read()));
    let kept = passes(&context, &mut memory).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(
        kept[0].starts_with("node a: ") && kept[0].contains("the Node is kept: this process must have led"),
        "{kept:?}"
    );
    assert_eq!(passes(&context, &mut memory).await, [""; 0], "also not each minute");

    world.cloud.with(|script| script.instances[0].state = State::Stopped);
    assert_eq!(passes(&context, &mut memory).await, ["node b: added the shutdown taint: its instance is stopped"]);
    world.api.state().change("b", |node| node["status"]["conditions"][0]["status"] = "True".into());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(passes(&context, &mut memory).await, ["node b: removed the shutdown taint: it is ready"]);

    let wrong = "the certificate is wrong";
    world.cloud.with(|script| script.get = Some(Error::new(ErrorKind::InvalidCredentials, wrong)));
    let unknown = [format!("error checking if node a exists: InvalidCredentials: {wrong}")];
    assert_eq!(passes(&context, &mut memory).await, unknown);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(passes(&context, &mut memory).await, unknown, "the operator reads a line of the last two minutes");
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_is_logged_once_a_minute_with_its_announcement() {
    let world = World::new(&["b"]);
    world.api.state().put(known_node("a", "Unknown"));
    let (context, mut memory) = (world.context(options(None)).await, Memory::default());
    world.api.state().refusals.insert("DELETE", (403, "no".to_owned()));
    let both = passes(&context, &mut memory).await;
    assert_eq!(both.len(), 2, "{both:?}");
    assert_eq!(both[0], "deleting node since it is no longer present in cloud provider: a");
    assert!(both[1].starts_with("unable to delete node \"a\": ") && both[1].contains("no"), "{both:?}");
    // The text changes, and the announcement comes again before a minute is over for the new one.
    world.api.state().refusals.insert("DELETE", (403, "never".to_owned()));
    let all = passes(&context, &mut memory).await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].contains("never") && all[1] == both[0] && all[2].contains("never"), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_logged_when_it_is_done() {
    let world = World::new(&["b"]);
    world.api.state().put(known_node("a", "Unknown"));
    let (context, mut memory) = (world.context(options(None)).await, Memory::default());
    assert_eq!(
        passes(&context, &mut memory).await,
        ["deleting node since it is no longer present in cloud provider: a", "node a: deleted"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_instance_is_logged_once_a_minute_with_what_to_do() {
    let world = World::new(&["b"]);
    world.api.state().put(new_node("a"));
    let options = Options { controllers: BTreeSet::from([Controller::CloudNode]), ..options(None) };
    options.account.set("acct-1");
    world.run(options);
    tokio::time::sleep(Duration::from_secs(50)).await;
    let all = lines();
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0], "Initializing node a with cloud provider");
    let start = "error syncing 'a': failed to get instance metadata for node a: NotFound: no instance has the name \"a\", requeuing in 5ms";
    assert!(all[1].starts_with(start), "{all:?}");
    assert!(all[1].contains(" The account is \"acct-1\". If it exists, "), "{all:?}");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(lines().len(), 1, "a minute is over");
    world.cloud.with(|script| script.instances.push(instance("a")));
    world.api.state().change("a", |node| node["metadata"]["annotations"] = json!({"retry": "now"}));
    world.until("it is initialized", |api| api.reasons("a").contains(&"Synced".to_owned())).await;
    let last = lines();
    assert_eq!(last.last().unwrap(), "Successfully initialized node a with cloud provider", "{last:?}");
}

/// Whose node it is, is not known while the account is empty.
#[tokio::test(start_paused = true)]
async fn a_healthy_node_has_no_event_while_the_account_is_empty() {
    let world = World::new(&[]);
    let mut other = node("a", "True");
    other["spec"]["providerID"] = "docker:////a".into();
    world.api.state().put(other);
    world.run(options(None));
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!((world.api.writes(), world.api.reasons("a")), (vec![], vec![]));
    let all = lines();
    assert_eq!(all.len(), 2, "one with each update: {all:?}");
    assert!(all[0].starts_with("the account \"not known yet\" of the cloud fake has no instance"), "{all:?}");
}
