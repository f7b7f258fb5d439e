//! `instance-create`.

use anyhow::Context;
use ccm_drivers::{
    contract::{Driver, InstanceSpec, State},
    middleware::Session,
};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{
    Call,
    cluster::ClusterArgs,
    instances::{print_one, shown},
    template::Template,
};
use crate::{output::Output, sweep::read::cluster_id, terminal::say};

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The name of the instance.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: String,

    /// The UID of the owner. There is one instance with a key: the same command repeated returns it.
    #[arg(long, value_name = "UID", value_parser = NonEmptyStringValueParser::new())]
    key: String,

    /// The id of the cluster that the instance belongs to, the UID of its namespace kube-system; --kubeconfig takes it from the
    /// cluster. Without both, instance-sweep never deletes the instance.
    #[arg(long, value_name = "UID", value_parser = NonEmptyStringValueParser::new(),
        conflicts_with_all = ["kubeconfig", "context"])]
    cluster_id: Option<String>,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    template: Template,

    #[command(flatten)]
    output: Output,
}

pub(super) async fn run(call: &Call, session: &Session, args: &CreateArgs) -> anyhow::Result<()> {
    let CreateArgs { name, key, cluster_id: id, cluster, template, output } = args;
    let template = template.spec(call.driver)?;
    let instances = call.instances(session)?;
    let cluster = match id {
        Some(id) => id.clone(),
        None if cluster.is_given() => cluster_id(&cluster.client().await?).await?,
        None => String::new(),
    };
    if call.general.cloud_config_verify {
        session.account().verify_settings().await?;
    }
    let spec = InstanceSpec { name: name.clone(), key: key.clone(), cluster, ..template };
    let made = instances.create(&spec).await?;
    if matches!(made.state, State::Stopping | State::Stopped | State::Deleting) {
        // The same key again returns it, and the command of a container may have ended at once.
        say(&format!("ccm-cloud: note: {} is {}", shown(&made), made.state.word()));
    }
    print_one(&made, *output).with_context(|| format!("the instance {} was made", shown(&made)))
}
