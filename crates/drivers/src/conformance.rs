//! The conformance of drivers: checks that each driver has to pass, against its real cloud.
//!
//! The checks run on the driver itself, without the middleware, whose retries would hide faults. Faults of the network come
//! through a proxy at the driver's endpoint. A run makes at most five instances at a time. Their names are known before it
//! begins, but for one: a check needs an instance whose name is the beginning of the id of another one. Each instance has the
//! label of the run and a key of the run. Nothing else is ever changed. No result has the value of a secret setting.

use std::{collections::BTreeSet, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    contract::{DriverType, Instance, InstanceSpec},
    error::brief,
    settings::Values,
};

mod catalog;
mod checks;
mod clean_up;
mod context;
mod deletions;
mod proxy;

pub use catalog::CHECKS;
pub use clean_up::{CleanedUp, clean_up};

use context::{Context, Stop, caught};

/// The label of every instance of a run. Its value is the id of the run.
pub const RUN_LABEL: &str = "ccm-cloud-verify-run";

/// The maximum number of instances that exist at one time.
const MAX_INSTANCES: usize = 5;

/// The maximum number of problems that a check reports.
const MAX_PROBLEMS: usize = 10;

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
    /// The id of the run: the value of [`RUN_LABEL`], eight hexadecimal digits in lowercase. No other run has it.
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
    /// The ids of instances of the run that could not be deleted, or were not seen to go.
    pub left: Vec<String>,
    /// Why the list of instances could not be read at the end. If so, instances of the run may be left that nobody knows. `None` if
    /// it was read, or if no instance was asked for since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_error: Option<String>,
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

/// How long an instance may take to change if operations have no limit.
const MAX_CHANGE: Duration = Duration::from_secs(300);

/// The pause between two looks at an instance that changes.
const PAUSE: Duration = Duration::from_millis(250);

/// How long an instance may take to change its state, by the limit of an operation.
fn limit_of_change(limit: Duration) -> Duration {
    if limit.is_zero() { MAX_CHANGE } else { limit }
}

/// The beginning of the names of instances.
const NAME: &str = "ccm-verify-";

/// The names of the instances of a run.
pub fn instance_names(run: &str) -> [String; MAX_INSTANCES] {
    std::array::from_fn(|index| format!("{NAME}{run}-{}", index + 1))
}

/// The keys of the instances of a run, in the order of their names.
fn instance_keys(run: &str) -> [String; MAX_INSTANCES] {
    std::array::from_fn(|index| format!("verify-{run}-{}", index + 1))
}

/// Runs the checks of a plan one after the other. `progress` is called before each.
///
/// The instances of the run are deleted after each check. Where the future is dropped before its end, [`clean_up()`] deletes them.
pub async fn run(plan: &Plan<'_>, progress: &(dyn Fn(&Check) + Sync)) -> Report {
    let context = Context::new(plan);
    let unusable = context.unusable().await;
    let mut results = Vec::new();
    for check in &CHECKS {
        if plan.only.is_empty() || plan.only.iter().any(|id| id == check.id) {
            progress(check);
            let outcome = match &unusable {
                Some(reason) => Outcome::NotRun(reason.clone()),
                None => outcome(&context, check).await,
            };
            results.push((check, context.masked(outcome)));
        }
    }
    let left: BTreeSet<_> = if plan.read_only || unusable.is_some() { BTreeSet::new() } else { context.sweep().await };
    Report {
        driver: plan.driver.name().to_owned(),
        run: plan.run.clone(),
        results,
        left: left.into_iter().collect(),
        list_error: context.list_error(),
    }
}

/// Runs a check, and deletes what it leaves.
async fn outcome(context: &Context<'_>, check: &Check) -> Outcome {
    if check.needs_instances && context.plan.read_only {
        return Outcome::NotRun("it needs instances, and the run only reads".to_owned());
    }
    let verdict = caught(checks::perform(check.id, context)).await.unwrap_or_else(|panic| Err(Stop::Failed(panic)));
    let mut problems = context.take_problems();
    let is_left = !context.plan.read_only && !context.sweep().await.is_empty();
    if is_left && check.id == "I2" && (!problems.is_empty() || matches!(verdict, Err(Stop::Failed(_)))) {
        context.deletes_nothing();
    }
    match verdict {
        Err(Stop::NotRun(reason)) if problems.is_empty() => return Outcome::NotRun(reason),
        Err(Stop::NotRun(reason)) => problems.push(format!("the rest of the check was not run: {reason}")),
        Err(Stop::Failed(problem)) => problems.push(problem),
        Ok(()) if problems.is_empty() => return Outcome::Passed,
        Ok(()) => {}
    }
    let mut problems = each_once(&problems);
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Outcome::Failed(problems)
}

/// Leaves out problems that are a part of another one: what takes too long is noted, and is what a check has seen.
fn each_once(problems: &[String]) -> Vec<String> {
    let is_part = |one: &String| problems.iter().any(|other| other != one && other.contains(&*brief(one)));
    problems.iter().filter(|one| !is_part(one)).cloned().collect()
}

/// Returns the instances of one run, or of every run, of a list that no filter has shortened. An instance is of a run if it has a
/// key of the run and, besides, the label of the run or one of its names. A driver that loses labels leaves the latter.
fn of_run(all: Vec<Instance>, run: Option<&str>) -> impl Iterator<Item = Instance> {
    all.into_iter().filter(move |one| {
        if let Some(run) = run {
            return is_of(one, run);
        }
        let of_label = one.labels.get(RUN_LABEL).map(String::as_str);
        let of_name = one.name.strip_prefix(NAME).and_then(|rest| Some(rest.rsplit_once('-')?.0));
        of_label.into_iter().chain(of_name).any(|run| is_run_id(run) && is_of(one, run))
    })
}

fn is_run_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn is_of(instance: &Instance, run: &str) -> bool {
    has_key(instance, run) && has_label_or_name(instance, run)
}

/// Whether an instance is one that a run has made, also with a driver that loses the owner, or the label and the name.
fn may_be_of(instance: &Instance, run: &str) -> bool {
    has_key(instance, run) || has_label_or_name(instance, run)
}

fn has_key(instance: &Instance, run: &str) -> bool {
    instance.marks.owner.as_ref().is_some_and(|owner| instance_keys(run).contains(owner))
}

fn has_label_or_name(instance: &Instance, run: &str) -> bool {
    let has_label = instance.labels.get(RUN_LABEL).is_some_and(|label| label == run);
    has_label || instance_names(run).contains(&instance.name)
}

#[cfg(test)]
mod tests;
