//! What instances are made of and run on.

use ccm_drivers::{
    contract::{Driver, Resource, ResourceKind},
    middleware::Session,
};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::Call;
use crate::output::{Output, pairs, table};

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// The id of a region, for what belongs to it only.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,

    #[command(flatten)]
    output: Output,
}

pub(super) async fn list(call: &Call, session: &Session, kind: ResourceKind, args: &ListArgs) -> anyhow::Result<()> {
    let inventory = session.inventory().ok_or_else(|| call.lacks(kind.plural()))?;
    let resources = inventory.list(kind, args.region.as_deref()).await?;
    args.output.print(&resources, || {
        let row = |Resource { id, name, region, details }: &Resource| {
            [name.clone(), region.clone(), id.clone(), pairs(details)]
        };
        table(["NAME", "REGION", "ID", "DETAILS"], resources.iter().map(row))
    })
}
