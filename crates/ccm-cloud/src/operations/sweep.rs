//! `instance-sweep`: reads, waits, decides by [`crate::sweep`], and deletes.

use std::{pin::pin, time::Duration};

use anyhow::bail;
use ccm_drivers::{
    contract::{Filter, Instance, Instances},
    middleware::Session,
};
use clap::{Args, builder::NonEmptyStringValueParser};
use serde::Serialize;

use super::{
    Call,
    cluster::ClusterArgs,
    instances::{handle, shown},
};
use crate::{
    activity::Ends,
    failure::{DONE, NEGATIVE, report},
    output::{Output, table},
    sweep::{
        Owners, Verdict, is_same, leaves_none,
        read::{owners, resource},
        verdict,
    },
    terminal::say,
    text::go,
};

#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// A kind that owners are of, as RESOURCE or RESOURCE.GROUP, such as machines.cluster.x-k8s.io; may be repeated. Name every kind
    /// that owns instances: owners of a kind that is not named count as gone, and --yes deletes their instances.
    #[arg(long, required = true, value_name = "RESOURCE", value_parser = NonEmptyStringValueParser::new())]
    owners: Vec<String>,

    /// The time between both reads of the owners.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = grace)]
    grace: Duration,

    /// Delete the instances. Without it they are only shown.
    #[arg(long)]
    pub(super) yes: bool,

    /// Delete them even if not one instance of the cluster is left then.
    #[arg(long, requires = "yes")]
    all: bool,

    #[command(flatten)]
    output: Output,
}

fn grace(text: &str) -> Result<Duration, &'static str> {
    let nanoseconds = go::duration(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    let given = nanoseconds.filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos);
    given.ok_or("must be a positive duration such as 30s or 1m30s")
}

/// What was done with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Action {
    Keep,
    /// It would be deleted with --yes.
    WouldDelete,
    /// It would be deleted with --all.
    Refused,
    Deleted,
    /// It was gone, or belonged to somebody else, when it was read again.
    Changed,
    Failed,
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::WouldDelete => "would delete",
            Self::Refused => "refused",
            Self::Deleted => "deleted",
            Self::Changed => "keep, changed",
            Self::Failed => "failed",
        }
    }
}

/// An instance, and what was done with it and why.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    action: Action,
    reason: Verdict,
    #[serde(flatten)]
    instance: Instance,
}

pub(super) async fn run(call: &Call, session: &Session, args: &SweepArgs) -> anyhow::Result<u8> {
    let instances = call.instances(session)?;
    let client = args.cluster.client().await?;
    let mut kinds = Vec::new();
    for name in &args.owners {
        kinds.push(resource(&client, name).await?);
    }
    // Instances first: the owner of each of them existed before the lists of owners are read.
    let listed = instances.list(&Filter::default()).await?;
    call.activity.step("read the owners");
    let first = owners(&client, &kinds).await?;
    let judge = |reads: &[Owners; 2]| -> Vec<Verdict> {
        listed.iter().map(|instance| verdict(&instance.marks, reads)).collect()
    };
    let mut verdicts = judge(&[first.clone(), first.clone()]);
    if verdicts.contains(&Verdict::OwnerGone) {
        call.activity.step("wait for the grace period");
        tokio::time::sleep(args.grace).await;
        call.activity.step("read the owners again");
        verdicts = judge(&[first, owners(&client, &kinds).await?]);
    }
    let is_refused = !args.all && leaves_none(&verdicts);
    call.activity.step("delete");
    // Until now a signal ends the program, and nothing was deleted.
    let mut ends = if args.yes { Some(Ends::take()?) } else { None };
    let (mut rows, mut code, mut stopped) = (Vec::new(), DONE, None);
    for (instance, reason) in listed.into_iter().zip(verdicts) {
        let action = match (reason, &mut ends) {
            (Verdict::OwnerGone, _) if is_refused => Action::Refused,
            (Verdict::OwnerGone, None) => Action::WouldDelete,
            (Verdict::OwnerGone, Some(ends)) => {
                if stopped.is_none() {
                    stopped = ends.come().await;
                }
                if stopped.is_some() {
                    break;
                }
                finished(delete(instances, &instance), ends, &mut stopped).await.unwrap_or_else(|error| {
                    let failed = report(&error.context(format!("failed to delete {:?}", instance.id)));
                    code = if code == DONE { failed } else { code };
                    Action::Failed
                })
            }
            _ => Action::Keep,
        };
        rows.push(Row { action, reason, instance });
    }
    args.output.print(&rows, || {
        let row = |Row { action, reason, instance }: &Row| {
            let owner = instance.marks.owner.clone().unwrap_or_default();
            [action.word().to_owned(), handle(instance), owner, reason.words().to_owned()]
        };
        table(["ACTION", "NAME", "OWNER", "REASON"], rows.iter().map(row))
    })?;
    if let Some(code) = stopped {
        say("stopped; instances that are not in the list were not looked at");
        return Ok(code);
    }
    if is_refused {
        say(
            "ccm-cloud: refused, because no instance of this cluster would be left: check --kubeconfig and --owners, and give \
             --yes --all if it is right",
        );
        return Ok(NEGATIVE);
    }
    if !args.yes && rows.iter().any(|row| row.action == Action::WouldDelete) {
        say("nothing was deleted; --yes deletes the instances");
    }
    Ok(code)
}

/// Waits for the end of a deletion, also after a signal, but not after a second one. Keeps the exit code of the signal.
async fn finished(
    deletion: impl Future<Output = anyhow::Result<Action>>,
    ends: &mut Ends,
    stopped: &mut Option<u8>,
) -> anyhow::Result<Action> {
    let mut deletion = pin!(deletion);
    loop {
        tokio::select! {
            done = &mut deletion => return done,
            code = ends.next() => {
                if stopped.replace(code).is_some() {
                    bail!("stopped before the answer; it may have happened all the same");
                }
                say("stopping after this deletion; a second signal does not wait for it");
            }
        }
    }
}

/// Reads an instance again, and deletes it if it still is the one that was judged.
async fn delete(instances: &dyn Instances, judged: &Instance) -> anyhow::Result<Action> {
    match instances.get(&judged.id).await {
        Ok(now) if is_same(judged, &now) => {
            say(&format!("deleting {}", shown(judged)));
            instances.delete(&judged.id).await?;
            Ok(Action::Deleted)
        }
        Ok(_) => Ok(Action::Changed),
        Err(error) if error.is_not_found() => Ok(Action::Changed),
        Err(error) => Err(error.into()),
    }
}
