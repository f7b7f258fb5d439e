//! The controllers (IO): cloud-node initializes nodes and keeps their addresses up to date, cloud-node-lifecycle taints and deletes them.
//!
//! - One watch of all nodes serves both. Nothing else is read from the API server, except a node whose change met a conflict.
//! - A node is changed with the resource version and the uid of the state that was decided on, and only while this process leads.
//! - Nothing but the typed `NotFound` of the driver, twice, and a list of the account that has others leads to a deletion.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use anyhow::bail;
use ccm_drivers::contract::Driver;
use ccm_kit::{
    cluster::events::Recorder,
    process::leadership::{Authority, Leadership},
};
use futures::future::{Either, pending};
use kube::Client;
use tokio::{
    sync::{RwLock, mpsc},
    time::MissedTickBehavior,
};

use crate::{
    account::{AccountId, Place},
    instances::Cloud,
    metrics::Metrics,
    node_events::{CloudName, NodeEvents},
};
pub(crate) use crate::{flags::Controller, guard::GuardOptions};
use lines::Lines;
use nodes::Nodes;

mod lines;
mod monitor;
mod nodes;
mod queue;
mod sync;
mod update;
mod write;

#[cfg(test)]
mod tests;

/// How the controllers run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The name of the cloud's driver, for messages.
    pub(crate) cloud: String,
    /// The id of the account, for messages.
    pub(crate) account: AccountId,
    /// Where this id is kept, for messages.
    pub(crate) account_place: Place,
    /// The controllers that run.
    pub(crate) controllers: BTreeSet<Controller>,
    /// The time between two passes over the nodes that are not ready.
    pub(crate) node_monitor_period: Duration,
    /// The time between two updates of all addresses.
    pub(crate) node_status_update_frequency: Duration,
    /// The maximum number of nodes that are initialized or updated at once, at least one.
    pub(crate) concurrent_node_syncs: usize,
    /// The limits of deletions; `None` if others decide over them, as ccm-operator does by its policy and role.
    pub(crate) guard: Option<GuardOptions>,
}

impl Options {
    fn name(&self) -> CloudName {
        CloudName { cloud: self.cloud.clone(), account: self.account.clone(), place: self.account_place.clone() }
    }
}

/// What every controller needs.
struct Context {
    client: Client,
    cloud: Cloud,
    nodes: Nodes,
    events: NodeEvents,
    authority: Authority,
    /// Held for reading by each write of a node.
    writing: RwLock<()>,
    metrics: Metrics,
    lines: Lines,
    options: Options,
}

/// Runs the controllers for as long as this process leads. Returns when it has to stop and all writes have ended.
///
/// Fails if this process no longer leads: it has to end, because another one may lead now.
pub(crate) async fn run(
    client: Client,
    driver: Arc<dyn Driver>,
    options: &Options,
    authority: Authority,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let context = Context {
        cloud: Cloud::new(driver),
        nodes: Nodes::default(),
        events: NodeEvents::new(Recorder::start(client.clone()), options.name()),
        client,
        authority,
        writing: RwLock::default(),
        metrics,
        lines: Lines::default(),
        options: options.clone(),
    };
    let (names, changed) = mpsc::unbounded_channel();
    let is_on = |controller| options.controllers.contains(&controller);
    // Without the controller nothing waits in the queue.
    let names = is_on(Controller::CloudNode).then_some(names);
    let cloud_node = when(is_on(Controller::CloudNode), async {
        tokio::select! { never = sync::run(&context, changed) => never, never = update::run(&context) => never }
    });
    let lifecycle = when(is_on(Controller::CloudNodeLifecycle), monitor::run(&context));
    tokio::select! {
        ended = ended(&context) => ended,
        never = context.nodes.run(&context.client, names) => match never {},
        never = cloud_node => match never {},
        never = lifecycle => match never {},
    }
}

/// Runs a future only under a condition.
fn when<F: Future<Output = Infallible>>(is_on: bool, run: F) -> impl Future<Output = Infallible> {
    if is_on { Either::Left(run) } else { Either::Right(pending()) }
}

/// Waits until this process may no longer write.
async fn ended(context: &Context) -> anyhow::Result<()> {
    let Authority { mut leadership, mut shutdown } = context.authority.clone();
    let stops = async {
        // Without a sender nobody can ask this process to stop.
        if shutdown.wait_for(|stops| *stops).await.is_err() {
            pending::<()>().await;
        }
        // No write begins any more, and those that have begun end.
        drop(context.writing.write().await);
    };
    tokio::select! {
        () = stops => Ok(()),
        lost = leadership.wait_for(|leadership| !leadership.is_leading()) => match lost.as_deref() {
            Ok(Leadership::Waiting(Some(problem))) => bail!("this process no longer leads: {problem}"),
            _ => bail!("this process no longer leads"),
        },
    }
}

/// A clock for passes: the first one at once, and each further one a period after the previous one has begun, or when it has ended.
fn passes(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
