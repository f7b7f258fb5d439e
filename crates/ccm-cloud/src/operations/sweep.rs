//! `instance-sweep`: reads, waits, decides by [`crate::sweep`], and deletes.

use std::time::Duration;

use anyhow::Context;
use ccm_drivers::{
    contract::{Filter, Instance, Instances},
    middleware::Session,
};
use clap::Args;
use serde::Serialize;

use super::{Call, cluster::ClusterArgs};
use crate::{
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

    /// A kind that owners are of, as RESOURCE or RESOURCE.GROUP, such as machines.cluster.x-k8s.io; may be repeated, and has to
    /// name all kinds.
    #[arg(long, required = true, value_name = "RESOURCE")]
    owners: Vec<String>,

    /// The time between both reads of the owners.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = grace)]
    grace: Duration,

    /// Delete the instances. Without it they are only shown.
    #[arg(long)]
    yes: bool,

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
    let (mut rows, mut code) = (Vec::new(), DONE);
    for (instance, reason) in listed.into_iter().zip(verdicts) {
        let action = match reason {
            Verdict::OwnerGone if is_refused => Action::Refused,
            Verdict::OwnerGone if !args.yes => Action::WouldDelete,
            Verdict::OwnerGone => delete(instances, &instance).await.unwrap_or_else(|error| {
                let failed = report(&error);
                code = if code == DONE { failed } else { code };
                Action::Failed
            }),
            _ => Action::Keep,
        };
        rows.push(Row { action, reason, instance });
    }
    args.output.print(&rows, || {
        let row = |Row { action, reason, instance }: &Row| {
            let owner = instance.marks.owner.clone().unwrap_or_default();
            [action.word().to_owned(), instance.name.clone(), owner, instance.id.clone(), reason.words().to_owned()]
        };
        table(["ACTION", "NAME", "OWNER", "ID", "REASON"], rows.iter().map(row))
    })?;
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

/// Reads an instance again, and deletes it if it still is the one that was judged.
async fn delete(instances: &dyn Instances, judged: &Instance) -> anyhow::Result<Action> {
    let context = || format!("failed to delete {:?}", judged.id);
    match instances.get(&judged.id).await {
        Ok(now) if is_same(judged, &now) => {
            instances.delete(&judged.id).await.with_context(context)?;
            Ok(Action::Deleted)
        }
        Ok(_) => Ok(Action::Changed),
        Err(error) if error.is_not_found() => Ok(Action::Changed),
        Err(error) => Err(error).with_context(context),
    }
}
