//! Instances: list, show, start, stop, delete, metrics.

use ccm_drivers::{
    contract::{Driver, Filter, Instance, Instances, Usage},
    middleware::Session,
};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{
    Call,
    target::{self, instance},
    template::{pair, unique},
};
use crate::{
    failure::{DONE, report},
    output::{Output, fields, on_one_line, pairs, table},
    terminal::print,
};

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// The id of a region, for its instances only.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,

    /// The id of a zone, for its instances only.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    zone: Option<String>,

    /// A label that the instances have; may be repeated or have commas, and all have to fit.
    #[arg(short = 'l', long, visible_alias = "label", value_name = "NAME=VALUE", value_parser = pair, value_delimiter = ',')]
    selector: Vec<(String, String)>,

    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    /// The id of the instance, or its whole name.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct ChangeArgs {
    /// The id of the instance, or its whole name.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The ids of instances, or their whole names.
    #[arg(required = true, value_name = "INSTANCE", value_parser = NonEmptyStringValueParser::new())]
    instances: Vec<String>,
}

pub(super) async fn list(instances: &dyn Instances, args: &ListArgs) -> anyhow::Result<()> {
    let ListArgs { region, zone, selector, output } = args;
    let labels = unique("--selector", selector)?;
    let filter = Filter { region: region.clone(), zone: zone.clone(), labels, ..Filter::default() };
    let found = instances.list(&filter).await?;
    output.print(&found, || {
        let row = |one: &Instance| {
            let owner = one.marks.owner.clone().unwrap_or_default();
            [handle(one), one.state.word().to_owned(), one.zone.clone(), addresses(one), owner]
        };
        table(["NAME", "STATE", "ZONE", "ADDRESSES", "OWNER"], found.iter().map(row))
    })
}

/// What tables call an instance: its name, because ids are long, or its id if it has none.
pub(super) fn handle(Instance { id, name, .. }: &Instance) -> String {
    if name.is_empty() { id.clone() } else { name.clone() }
}

/// The addresses but for the name, which is in a column of its own.
fn addresses(instance: &Instance) -> String {
    let addresses = instance.addresses.iter().map(|address| address.address.as_str());
    addresses.filter(|address| *address != instance.name).collect::<Vec<_>>().join(",")
}

pub(super) async fn show(instances: &dyn Instances, args: &OneArgs) -> anyhow::Result<()> {
    print_one(&instance(instances, &args.instance).await?, args.output)
}

/// Prints an instance.
pub(super) fn print_one(instance: &Instance, output: Output) -> anyhow::Result<()> {
    output.print(instance, || {
        let Instance { id, provider_id, name, region, zone, image, instance_type, labels, marks, created, .. } =
            instance.clone();
        let addresses = instance.addresses.iter().map(|one| (format!("{:?}", one.kind), &one.address));
        fields([
            ("id", id),
            ("providerID", provider_id),
            ("name", name),
            ("state", instance.state.word().to_owned()),
            ("region", region),
            ("zone", zone),
            ("image", image),
            ("instance type", instance_type),
            ("addresses", pairs(addresses)),
            ("labels", pairs(labels)),
            ("owner", marks.owner.unwrap_or_default()),
            ("cluster", marks.cluster.unwrap_or_default()),
            ("created", created),
        ])
    })
}

pub(super) async fn start(instances: &dyn Instances, args: &ChangeArgs) -> anyhow::Result<()> {
    let found = instance(instances, &args.instance).await?;
    instances.start(&found.id).await?;
    print(&format!("{} started\n", shown(&found)))
}

pub(super) async fn stop(instances: &dyn Instances, args: &ChangeArgs) -> anyhow::Result<()> {
    let found = instance(instances, &args.instance).await?;
    instances.stop(&found.id).await?;
    print(&format!("{} stopped\n", shown(&found)))
}

/// Deletes each instance, also if others fail, and returns the exit code of the first failure.
pub(super) async fn delete(instances: &dyn Instances, args: &DeleteArgs) -> anyhow::Result<u8> {
    let mut code = DONE;
    for word in &args.instances {
        let deleted = async {
            let Some(found) = target::find(instances, word).await? else {
                return Ok(format!("{} does not exist\n", on_one_line(word)));
            };
            instances.delete(&found.id).await?;
            anyhow::Ok(format!("{} deleted\n", shown(&found)))
        };
        let deleted = deleted.await.map_err(|error| error.context(format!("failed to delete {word:?}")));
        // Also output that cannot be written keeps no other instance.
        if let Err(error) = deleted.and_then(|line| print(&line)) {
            let failed = report(&error);
            code = if code == DONE { failed } else { code };
        }
    }
    Ok(code)
}

/// The name and the id of an instance.
pub(super) fn shown(instance: &Instance) -> String {
    on_one_line(&format!("{} {}", instance.name, instance.id))
}

pub(super) async fn metrics(call: &Call, session: &Session, args: &OneArgs) -> anyhow::Result<()> {
    let metrics = session.metrics().ok_or_else(|| call.lacks("metrics"))?;
    let found = instance(call.instances(session)?, &args.instance).await?;
    let usage = metrics.usage(&found.id).await?;
    args.output.print(&usage, || {
        let Usage {
            processor_seconds,
            memory_bytes,
            memory_limit_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        } = usage;
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        fields([
            ("processor, seconds", processor_seconds.map(|seconds| format!("{seconds:.3}")).unwrap_or_default()),
            ("memory, bytes", number(memory_bytes)),
            ("memory limit, bytes", number(memory_limit_bytes)),
            ("network received, bytes", number(network_received_bytes)),
            ("network sent, bytes", number(network_sent_bytes)),
            ("disk read, bytes", number(disk_read_bytes)),
            ("disk written, bytes", number(disk_written_bytes)),
        ])
    })
}
