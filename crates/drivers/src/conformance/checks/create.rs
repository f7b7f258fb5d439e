//! Create: repeated, concurrently, and one call after the other.

use futures::future::join_all;

use super::{Context, Stop, Verdict, name_of, owned_by, seen, shown};
use crate::contract::{ErrorKind, Instance, Result};

/// A label that only one instance has.
const MARK: &str = "ccm-cloud-verify-mark";

pub(super) async fn twice_is_one(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    if !client.has_instances() {
        return Err(Stop::NotRun("the driver has no instances".to_owned()));
    }
    let spec = context.spec(1);
    let first = context.make_first(&client).await?;
    let reopened = context.direct().await?;
    for (who, again) in
        [("", client.create(&spec).await), (" with a newly opened driver", reopened.create(&spec).await)]
    {
        let same = again.as_ref().is_ok_and(|again| again.id == first.id);
        context.demand(same, || format!("create repeated{who}: expected {:?}, seen {}", first.id, id_of(&again)));
    }
    let mut labels = spec.clone();
    labels.labels.insert(MARK.to_owned(), "other".to_owned());
    let mut key = context.spec(2);
    key.name.clone_from(&spec.name);
    for (what, other) in [("the same key and another label", labels), ("the same name and another key", key)] {
        let result = client.create(&other).await;
        let refused = matches!(&result, Err(error) if error.kind == ErrorKind::AlreadyExists);
        context.demand(refused, || format!("create with {what}: expected AlreadyExists, seen {}", id_of(&result)));
    }
    only_one(context, &first).await
}

pub(super) async fn concurrently_is_one(context: &Context<'_>) -> Verdict {
    context.demand_first()?;
    let (one, other) = (context.direct().await?, context.direct().await?);
    let spec = context.spec(1);
    let results = join_all([&one, &one, &other, &other].map(|client| client.create(&spec))).await;
    let Some(first) = results.iter().find_map(|result| result.as_ref().ok()) else {
        return Err(Stop::NotRun(format!("create: {}", results.first().map(seen).unwrap_or_default())));
    };
    let first = context.is_own(first.clone(), &spec)?;
    for result in &results {
        let same = result.as_ref().is_ok_and(|instance| instance.id == first.id);
        context.demand(same, || {
            format!("four creates at once with one key: expected {:?}, seen {}", first.id, id_of(result))
        });
    }
    only_one(context, &first).await
}

/// Demands that no other instance has the key.
async fn only_one(context: &Context<'_>, instance: &Instance) -> Verdict {
    let listed = context.direct().await?.list(&owned_by(&context.spec(1))).await;
    let ids = listed.map(|all| all.into_iter().map(|one| one.id).collect::<Vec<_>>());
    let is_one = ids.as_ref().is_ok_and(|ids| *ids == [instance.id.clone()]);
    context.demand(is_one, || {
        let seen = ids.as_ref().map_or_else(shown, |ids| format!("{ids:?}"));
        format!("the list of instances with the key: expected only {:?}, seen {seen}", instance.id)
    });
    Ok(())
}

fn id_of(result: &Result<Instance>) -> String {
    name_of(result, |instance| &instance.id)
}

pub(super) async fn settings_do_not_stick(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let given = context.spec(1);
    // Without an image it is that of the settings, which is what a call may change.
    let mut plain = given.clone();
    plain.image.clear();
    let before = match context.make(&client, &plain).await {
        Err(Stop::NotRun(_)) if !given.image.is_empty() => {
            plain = given.clone();
            context.make(&client, &plain).await?
        }
        made => made?,
    };
    context.remove(&client, &before).await?;

    let mut special = context.spec(2);
    special.image = context.plan.other_image.clone().unwrap_or(given.image);
    special.labels.insert(MARK.to_owned(), "special".to_owned());
    let between = context.make(&client, &special).await?;
    if let Some(other) = &context.plan.other_image {
        context.demand(between.image != before.image || *other == before.image, || {
            format!("create with the image {other:?}: expected another image than {:?}, seen the same", before.image)
        });
    }
    let after = context.make(&client, &plain).await?;
    context.demand(after.image == before.image, || {
        format!(
            "an instance made after one with the image {:?}: expected the image {:?}, seen {:?}",
            special.image, before.image, after.image
        )
    });
    context.demand(after.labels == before.labels, || {
        format!(
            "an instance made after one with the label {MARK}: expected the labels {:?}, seen {:?}",
            before.labels, after.labels
        )
    });
    context.demand(after.instance_type == before.instance_type, || {
        format!(
            "an instance made after another one: expected the instance type {:?}, seen {:?}",
            before.instance_type, after.instance_type
        )
    });
    if special.image == before.image || context.plan.other_image.is_none() && between.image == before.image {
        let image = &before.image;
        let reason = format!(
            "all instances have the image {image:?}, so images cannot be compared: give another one with --other-image"
        );
        return Err(Stop::NotRun(reason));
    }
    Ok(())
}
