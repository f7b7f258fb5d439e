//! The conformance of drivers: checks that each driver has to pass, against its real cloud.
//!
//! The checks run on the driver itself, without the middleware, whose retries would hide faults. Faults of the network come
//! through a proxy at the driver's endpoint. A run makes at most five instances at a time. Their names are known before it
//! begins, but for one: a check needs an instance whose name is the beginning of the id of another one. Each instance has the
//! label of the run and a key of the run. Nothing else is ever changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures::FutureExt;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    contract::{Driver, DriverType, Filter, Instance, InstanceSpec, Result},
    settings::Values,
};

mod catalog;
mod checks;
mod context;
mod proxy;

pub use catalog::CHECKS;

use context::{Context, Stop, words_of};

/// The label of every instance of a run. Its value is the id of the run.
pub const RUN_LABEL: &str = "ccm-cloud-verify-run";

/// The most instances that exist at one time.
const MOST_INSTANCES: usize = 5;

/// The most problems that a check reports.
const MOST_PROBLEMS: usize = 10;

/// A check of the conformance of drivers.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Its id, such as `I1`.
    pub id: &'static str,
    /// Its name, such as `create-twice-is-one`.
    pub name: &'static str,
    /// What it protects from, in one sentence.
    pub protects: &'static str,
    /// Whether it makes instances. The others read, and use an instance of the run if they may make one.
    pub needs_instances: bool,
}

/// What a run checks, and with what.
pub struct Plan<'a> {
    /// The driver.
    pub driver: &'a dyn DriverType,
    /// The values of its settings.
    pub values: &'a Values,
    /// What the instances are made of: image, instance type, region, zone, networks, options, labels, cluster and user data. Key
    /// and name are those of the run.
    pub template: InstanceSpec,
    /// A second image, for the check that the image of one call is not left for the next.
    pub other_image: Option<String>,
    /// Values with wrong credentials. Without them every secret setting that has a value gets a wrong one.
    pub wrong_credentials: Option<Values>,
    /// Whether nothing may be made or deleted.
    pub read_only: bool,
    /// The id of the run: the value of [`RUN_LABEL`]. No other run has it.
    pub run: String,
    /// The limit of one operation. Creating an instance may take ten times as long. 0 means no limit.
    pub limit: Duration,
    /// The ids of the checks to run; empty for all.
    pub only: Vec<String>,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver does what the check asks for.
    Passed,
    /// What was expected and what was seen.
    Failed(Vec<String>),
    /// Why the check could not be run.
    NotRun(String),
}

impl Outcome {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::NotRun(_) => "not run",
        }
    }

    /// What was expected and seen, or why the check could not be run.
    pub fn reasons(&self) -> &[String] {
        match self {
            Self::Passed => &[],
            Self::Failed(problems) => problems,
            Self::NotRun(reason) => std::slice::from_ref(reason),
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The name of the driver.
    pub driver: String,
    /// The id of the run.
    pub run: String,
    /// The result of each check of the plan, in the order of [`CHECKS`].
    #[serde(serialize_with = "rows")]
    pub results: Vec<(&'static Check, Outcome)>,
    /// The ids of instances of the run that could not be deleted.
    pub left: Vec<String>,
}

fn rows<S: Serializer>(results: &[(&'static Check, Outcome)], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(results.iter().map(|(check, outcome)| Row { check, outcome }))
}

struct Row<'a> {
    check: &'a Check,
    outcome: &'a Outcome,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 5)?;
        row.serialize_field("id", self.check.id)?;
        row.serialize_field("name", self.check.name)?;
        row.serialize_field("protects", self.check.protects)?;
        let outcome = if matches!(self.outcome, Outcome::NotRun(_)) { "notRun" } else { self.outcome.word() };
        row.serialize_field("outcome", outcome)?;
        row.serialize_field("reasons", self.outcome.reasons())?;
        row.end()
    }
}

/// The names of the instances of a run.
pub fn instance_names(run: &str) -> [String; MOST_INSTANCES] {
    std::array::from_fn(|index| format!("ccm-verify-{run}-{}", index + 1))
}

/// The keys of the instances of a run, in the order of their names.
fn instance_keys(run: &str) -> [String; MOST_INSTANCES] {
    std::array::from_fn(|index| format!("verify-{run}-{}", index + 1))
}

/// Runs the checks of a plan one after the other. `progress` is called before each.
///
/// The instances of the run are deleted after each check. Where the future is dropped before its end, [`clean_up`] deletes them.
pub async fn run(plan: &Plan<'_>, progress: &(dyn Fn(&Check) + Sync)) -> Report {
    let context = Context::new(plan);
    let unusable = context.unusable().await;
    let mut results = BTreeMap::new();
    for index in order() {
        let check = &CHECKS[index];
        if plan.only.is_empty() || plan.only.iter().any(|id| id == check.id) {
            progress(check);
            let outcome = match &unusable {
                Some(reason) => Outcome::NotRun(reason.clone()),
                None => outcome(&context, check).await,
            };
            results.insert(index, (check, outcome));
        }
    }
    let left: BTreeSet<_> = if plan.read_only || unusable.is_some() { BTreeSet::new() } else { context.sweep().await };
    Report {
        driver: plan.driver.name().to_owned(),
        run: plan.run.clone(),
        results: results.into_values().collect(),
        left: left.into_iter().collect(),
    }
}

/// Runs a check, and deletes what it leaves.
async fn outcome(context: &Context<'_>, check: &Check) -> Outcome {
    if check.needs_instances && context.plan.read_only {
        return Outcome::NotRun("it needs instances, and the run only reads".to_owned());
    }
    let verdict = match AssertUnwindSafe(checks::perform(check.id, context)).catch_unwind().await {
        Ok(verdict) => verdict,
        Err(panic) => Err(Stop::Failed(format!("the driver panicked: {}", words_of(&*panic)))),
    };
    let mut problems = context.take_problems();
    if !context.plan.read_only {
        context.sweep().await;
    }
    match verdict {
        Err(Stop::NotRun(reason)) if problems.is_empty() => return Outcome::NotRun(reason),
        Err(Stop::NotRun(reason)) => problems.push(format!("the rest of the check was not run: {reason}")),
        Err(Stop::Failed(problem)) => problems.push(problem),
        Ok(()) if problems.is_empty() => return Outcome::Passed,
        Ok(()) => {}
    }
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    problems.truncate(MOST_PROBLEMS);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Outcome::Failed(problems)
}

/// The order in which checks run: the one that provokes panics is the last, because a release ends with the first panic.
fn order() -> impl Iterator<Item = usize> {
    let is_last = |index: &usize| CHECKS[*index].id == "I12";
    (0..CHECKS.len()).filter(move |index| !is_last(index)).chain((0..CHECKS.len()).filter(is_last))
}

/// Deletes the instances of one run, or of every run, and returns them. An instance is of a run if it has [`RUN_LABEL`] and a key
/// of the run that the label names.
pub async fn clean_up(driver: &dyn Driver, run: Option<&str>) -> Result<Vec<Instance>> {
    let Some(instances) = driver.instances() else { return Ok(Vec::new()) };
    let labels = run.map(|run| (RUN_LABEL.to_owned(), run.to_owned())).into_iter().collect();
    let (mut deleted, mut failed) = (Vec::new(), None);
    for instance in instances.list(&Filter { labels, ..Filter::default() }).await? {
        let of = instance.labels.get(RUN_LABEL);
        if !of.is_some_and(|of| run.is_none_or(|run| run == of) && has_key_of(&instance, of)) {
            continue;
        }
        match instances.delete(&instance.id).await {
            Ok(()) => deleted.push(instance),
            Err(error) => failed = Some(error.context(format!("delete of the instance {:?}", instance.id))),
        }
    }
    failed.map_or(Ok(deleted), Err)
}

fn has_key_of(instance: &Instance, run: &str) -> bool {
    instance.marks.owner.as_ref().is_some_and(|owner| instance_keys(run).contains(owner))
}

#[cfg(test)]
mod tests;
