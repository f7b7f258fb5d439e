//! Regions and zones.

use ccm_drivers::{
    contract::{Driver, Region, Zone},
    middleware::Session,
};
use clap::{Args, builder::NonEmptyStringValueParser};

use crate::output::{Output, fields, table};

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The id.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,

    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct ZonesArgs {
    /// The id of a region, for its zones only.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,

    #[command(flatten)]
    output: Output,
}

pub(super) async fn regions(session: &Session, output: Output) -> anyhow::Result<()> {
    let regions = session.topology().regions().await?;
    output
        .print(&regions, || table(["ID", "NAME"], regions.iter().map(|Region { id, name }| [id.clone(), name.clone()])))
}

pub(super) async fn region(session: &Session, args: &ShowArgs) -> anyhow::Result<()> {
    let region = session.topology().region(&args.id).await?;
    args.output.print(&region, || fields([("id", region.id.clone()), ("name", region.name.clone())]))
}

pub(super) async fn zones(session: &Session, args: &ZonesArgs) -> anyhow::Result<()> {
    let zones = session.topology().zones(args.region.as_deref()).await?;
    args.output.print(&zones, || {
        let row = |Zone { id, name, region }: &Zone| [id.clone(), region.clone(), name.clone()];
        table(["ID", "REGION", "NAME"], zones.iter().map(row))
    })
}

pub(super) async fn zone(session: &Session, args: &ShowArgs) -> anyhow::Result<()> {
    let zone = session.topology().zone(&args.id).await?;
    args.output.print(&zone, || {
        let Zone { id, name, region } = zone.clone();
        fields([("id", id), ("region", region), ("name", name)])
    })
}
