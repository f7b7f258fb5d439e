//! `verify`: the checks of conformance against the real cloud.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    panic,
    pin::pin,
    process,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use ccm_drivers::{
    conformance::{self, CHECKS, CleanedUp, Plan, clean_up, instance_names},
    contract::{Driver, Instance, InstanceSpec},
    middleware::Session,
    settings::{READ_ONLY, TIMEOUT},
};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{
    Call,
    instances::shown,
    template::{Template, pair, unique},
};
use crate::{
    activity::Ends,
    failure::{DONE, NEGATIVE, report},
    output::Format,
    terminal::{print, say},
    text::suggest::did_you_mean,
};

mod results;

use results::{HOW_TO_DELETE, ReportFormat, is_good};

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The ids of checks, such as I1,I2, to run only these.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    only: Vec<String>,

    /// A second image, for the check that the image of one call is not left for the next.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    other_image: Option<String>,

    /// A setting with credentials of the right form that the cloud refuses, by its name in a file, such as certPath=other-certs;
    /// may be repeated [default: every secret that is set is changed].
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    wrong: Vec<(String, String)>,

    /// Run no check, and delete the instances of all runs, also of those that are active now. Touches no other instance.
    #[arg(long, conflicts_with_all = ["only", "other_image", "wrong", "Template"])]
    clean_up: bool,

    #[command(flatten)]
    template: Template,

    /// The format of the output; with --clean-up, not junit.
    #[arg(id = "output", short, long, value_name = "FORMAT", value_enum, default_value_t)]
    format: ReportFormat,
}

/// The cluster that the instances of a run belong to, so that a driver which loses it is found. It is no UID, so no sweep takes them.
const CLUSTER: &str = "ccm-cloud-verify";

/// The pause before what a canceled request may still have made is looked for again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(call: &Call, args: &VerifyArgs) -> anyhow::Result<u8> {
    let given = call.given()?;
    let values = call.checked(&given)?;
    let limit = values.duration(TIMEOUT).unwrap_or_default();
    if args.clean_up {
        let format =
            args.format.of_values().context("--clean-up runs no check, so it has no results for --output junit")?;
        return call.with_session(&values, async |session| clean_up_all(session, limit, format).await).await;
    }
    if let Some(id) = args.only.iter().find(|id| !CHECKS.iter().any(|check| check.id == **id)) {
        bail!("--only: there is no check {id:?}{}", did_you_mean(id, CHECKS.iter().map(|check| check.id)));
    }
    let wrong = unique("--wrong", &args.wrong)?;
    let wrong_credentials = if wrong.is_empty() {
        None
    } else {
        let mut given = given;
        given.flags.extend(wrong);
        Some(call.checked(&given)?)
    };
    let plan = Plan {
        driver: call.driver,
        values: &values,
        template: InstanceSpec { cluster: CLUSTER.to_owned(), ..args.template.spec(call.driver)? },
        other_image: args.other_image.clone(),
        wrong_credentials,
        read_only: values.is(READ_ONLY),
        run: run_id(),
        limit,
        only: args.only.clone(),
    };
    // Before any check, so that wrong settings are an error with its class. Afterwards it deletes what an interrupted run has left.
    call.with_session(&values, async |session| {
        if call.general.cloud_config_verify {
            session.account().verify_settings().await?;
        }
        checked(call, session, &plan, args.format).await
    })
    .await
}

/// Runs the checks until their end or a signal.
async fn checked(call: &Call, session: &Session, plan: &Plan<'_>, format: ReportFormat) -> anyhow::Result<u8> {
    let mut ends = Ends::take()?;
    if !plan.read_only {
        say(&format!("run {}: its instances are {}", plan.run, instance_names(&plan.run).join(", ")));
    }
    let progress = |check: &conformance::Check| call.activity.step(&format!("check {} {}", check.id, check.name));
    let code = {
        // Dropped at a signal, before the instances are deleted.
        // A panic of the driver is a result, without the secrets that its words may have.
        panic::set_hook(Box::new(|_| {}));
        let mut checks = pin!(conformance::run(plan, &progress));
        tokio::select! {
            report = &mut checks => {
                print(&format.write(&report)?)?;
                return Ok(if is_good(&report) { DONE } else { NEGATIVE });
            }
            code = ends.next() => code,
        }
    };
    if plan.read_only {
        return Ok(code);
    }
    say("stopped; deleting the instances of this run. A second signal leaves them");
    call.activity.step("delete the instances of the run");
    tokio::select! {
        deleted = clean_up_run(session, plan) => {
            if let Err(error) = deleted {
                report(&error);
                say("delete them with verify --clean-up");
            }
        }
        _ = ends.next() => say("left; delete them with verify --clean-up"),
    }
    Ok(code)
}

/// Deletes the instances of a run. A canceled request may make one a moment later, so it looks twice.
async fn clean_up_run(session: &Session, Plan { run, limit, .. }: &Plan<'_>) -> anyhow::Result<()> {
    let first = clean_up(session, Some(run), *limit).await;
    tokio::time::sleep(PAUSE).await;
    let CleanedUp { deleted, left } = clean_up(session, Some(run), *limit).await?;
    let before = first.into_iter().flat_map(|first| first.deleted);
    for instance in before.chain(deleted).filter(|one| left.iter().all(|left| left.id != one.id)) {
        say(&format!("{} deleted", shown(&instance)));
    }
    say_what_is_left(&left);
    Ok(())
}

/// Names the instances that are still in the list after their deletion was answered with success.
fn say_what_is_left(left: &[Instance]) {
    for instance in left {
        say(&format!("NOT DELETED: {}", shown(instance)));
    }
    if !left.is_empty() {
        say(HOW_TO_DELETE);
    }
}

async fn clean_up_all(session: &Session, limit: Duration, format: Format) -> anyhow::Result<u8> {
    let CleanedUp { deleted, left } = clean_up(session, None, limit).await?;
    let line = |instance: &Instance| format!("{} deleted\n", shown(instance));
    let lines = || deleted.iter().map(line).collect::<Vec<_>>().concat();
    print(&format.write(&deleted, lines)?)?;
    say(&match deleted.len() {
        1 => "deleted 1 instance".to_owned(),
        count => format!("deleted {count} instances"),
    });
    say_what_is_left(&left);
    Ok(if left.is_empty() { DONE } else { NEGATIVE })
}

/// An id that no other run has: the random keys of a hash over the time and the number of this process.
fn run_id() -> String {
    format!("{:08x}", RandomState::new().hash_one((SystemTime::now(), process::id())) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_different_short_ids() {
        let ids = [run_id(), run_id()];
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }
}
