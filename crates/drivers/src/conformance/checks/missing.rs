//! Creates that name what does not exist.

use super::{Context, Verdict, seen};
use crate::contract::{ErrorKind, InstanceSpec, Inventory, ResourceKind};

/// A name that nothing has.
const NOTHING: &str = "ccm-verify-wrong";

/// A field of a create that names something.
struct Field {
    name: &'static str,
    /// What it names, unless every driver has that.
    kind: Option<ResourceKind>,
    set: fn(&mut InstanceSpec),
}

static FIELDS: [Field; 5] = [
    Field {
        name: "region",
        kind: None,
        // A zone would be in another one.
        set: |spec| (spec.region, spec.zone) = (NOTHING.to_owned(), String::new()),
    },
    Field { name: "zone", kind: None, set: |spec| NOTHING.clone_into(&mut spec.zone) },
    Field { name: "image", kind: Some(ResourceKind::Image), set: |spec| NOTHING.clone_into(&mut spec.image) },
    Field {
        name: "instanceType",
        kind: Some(ResourceKind::InstanceType),
        set: |spec| NOTHING.clone_into(&mut spec.instance_type),
    },
    Field { name: "networks", kind: Some(ResourceKind::Network), set: |spec| spec.networks = vec![NOTHING.to_owned()] },
];

pub(super) async fn is_refused(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    // Without the wrong field it is not refused.
    context.make(&client, &context.spec(1)).await?;
    let listed = client.driver().inventory().map(Inventory::kinds).unwrap_or_default();
    for Field { name, kind, set } in &FIELDS {
        let mut spec = context.spec(2);
        set(&mut spec);
        let made = client.create(&spec).await;
        let may_lack = kind.is_some_and(|kind| !listed.contains(&kind));
        let refused = matches!(&made, Err(error) if matches!(error.kind, ErrorKind::InvalidArgument(_))
            || may_lack && error.kind == ErrorKind::NotSupported);
        let what = || format!("create with {name} {NOTHING:?}, which does not exist");
        let or = if may_lack { " or NotSupported" } else { "" };
        context.demand(refused, || format!("{}: expected InvalidArgument{or}, seen {}", what(), seen(&made)));
        for left in context.own(&client, &spec).await? {
            context.demand(made.is_ok(), || format!("{}: expected no instance, seen {:?}", what(), left.id));
            context.remove(&client, &left).await?;
        }
    }
    Ok(())
}
