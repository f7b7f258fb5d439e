//! The controllers with a stand-in for the API server and a driver that answers what a test says, in virtual time.

use ccm_core::nodes::node::UNINITIALIZED;
use ccm_kit::process::leadership::{Deadline, Now};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use api_server::ApiServer;
use cloud::{Scripted, instance};

mod api_server;
mod cloud;
mod fake;
mod initialization;
mod lifecycle;
mod log;

/// A cluster and its cloud.
struct World {
    api: ApiServer,
    cloud: Scripted,
    leading: watch::Sender<Leadership>,
    stop: watch::Sender<bool>,
}

fn leading() -> Leadership {
    Leadership::Leading(Deadline::after(Now::read(), Duration::from_secs(100_000)))
}

fn options(guard: Option<GuardOptions>) -> Options {
    Options {
        cloud: "fake".to_owned(),
        account: AccountId::default(),
        account_place: Place::of(("kube-system", "ccm")),
        controllers: BTreeSet::from([Controller::CloudNode, Controller::CloudNodeLifecycle]),
        node_monitor_period: Duration::from_secs(5),
        node_status_update_frequency: Duration::from_secs(300),
        concurrent_node_syncs: 1,
        guard,
    }
}

impl World {
    /// A world with instances of these names.
    fn new(instances: &[&str]) -> Self {
        log::collect();
        let world = Self {
            api: ApiServer::default(),
            cloud: Scripted::default(),
            leading: watch::Sender::new(leading()),
            stop: watch::Sender::new(false),
        };
        world.cloud.with(|script| script.instances = instances.iter().map(|name| instance(name)).collect());
        world
    }

    fn authority(&self) -> Authority {
        Authority { leadership: self.leading.subscribe(), shutdown: self.stop.subscribe() }
    }

    /// Runs the controllers beside the test.
    fn run(&self, options: Options) -> tokio::task::JoinHandle<anyhow::Result<()>> {
        self.run_with(Arc::new(self.cloud.clone()), options)
    }

    fn run_with(&self, driver: Arc<dyn Driver>, options: Options) -> tokio::task::JoinHandle<anyhow::Result<()>> {
        let (client, authority) = (self.api.client(), self.authority());
        tokio::spawn(async move { super::run(client, driver, &options, authority, Metrics::new("fake")).await })
    }

    /// A context for single passes, whose nodes are watched.
    async fn context(&self, options: Options) -> Arc<Context> {
        let client = self.api.client();
        let context = Arc::new(Context {
            cloud: Cloud::new(Arc::new(self.cloud.clone())),
            nodes: Nodes::default(),
            events: NodeEvents::new(Recorder::start(client.clone()), options.name()),
            client,
            authority: self.authority(),
            writing: RwLock::default(),
            metrics: Metrics::new("fake"),
            lines: Lines::default(),
            options,
        });
        let watching = Arc::clone(&context);
        tokio::spawn(async move { match watching.nodes.run(&watching.client, None).await {} });
        context.nodes.synced().await;
        context
    }

    /// Waits until something holds. The time is virtual, so a failure takes no time.
    async fn until(&self, what: &str, holds: impl Fn(&ApiServer) -> bool) {
        for _ in 0..4_000 {
            if holds(&self.api) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let state = self.api.state();
        panic!("{what}: {:?} {:?} {:?}", state.writes, state.events, self.cloud.calls());
    }
}

/// A node without an instance's data, whose kubelet reports this status.
fn node(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"own": "1"}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": [{"names": ["x"]}],
        },
    })
}

/// A node that waits for its initialization.
fn new_node(name: &str) -> Value {
    let mut node = node(name, "False");
    node["spec"]["taints"] = json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
    node
}

/// A node that is initialized.
fn known_node(name: &str, ready: &str) -> Value {
    let mut node = node(name, ready);
    node["spec"]["providerID"] = format!("fake:///{name}").into();
    node
}
