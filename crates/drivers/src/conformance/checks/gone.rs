//! What is gone: for each operation, and from every read.

use super::{Client, Context, Operation, Verdict, count, owned_by, seen, shown};
use crate::contract::{Error, ErrorKind, Filter, Instance, Inventory};

/// A label of the first instance of a name, which the second has not.
const FIRST: &str = "ccm-cloud-verify-first";

pub(super) async fn delete_twice_succeeds(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let own = context.make(&client, &context.spec(1)).await?;
    let reopened = context.direct().await?;
    for (which, deleted) in [
        ("the first delete", client.delete(&own.id).await),
        ("the second delete", client.delete(&own.id).await),
        ("the third delete, with a newly opened driver,", reopened.delete(&own.id).await),
    ] {
        context
            .demand(deleted.is_ok(), || format!("{which} of {:?}: expected success, seen {}", own.id, seen(&deleted)));
    }
    let listed = client.list(&owned_by(&context.spec(1))).await;
    context.demand(listed.as_ref().is_ok_and(Vec::is_empty), || {
        format!("the list after delete of {:?}: expected that it is empty, seen {}", own.id, count(&listed))
    });
    Ok(())
}

pub(super) async fn is_not_found(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let own = context.make(&client, &context.spec(1)).await?;
    context.remove(&client, &own).await?;
    let id = own.id;
    let mut operations = vec![Operation::Get(id.clone()), Operation::Start(id.clone()), Operation::Stop(id.clone())];
    operations.extend(client.driver().metrics().map(|_| Operation::Usage(id)));
    for operation in operations {
        let result = client.perform(&operation).await;
        let not_found = matches!(&result, Err(error) if error.is_not_found());
        context
            .demand(not_found, || format!("{operation}, which was deleted: expected NotFound, seen {}", seen(&result)));
    }
    let nowhere = format!("ccm-verify-{}-nowhere", context.plan.run);
    for (what, result) in [
        ("get of a region", client.driver().topology().region(&nowhere).await.map(drop)),
        ("get of a zone", client.driver().topology().zone(&nowhere).await.map(drop)),
    ] {
        let not_found = matches!(&result, Err(error) if error.is_not_found());
        context.demand(not_found, || format!("{what} that does not exist: expected NotFound, seen {}", seen(&result)));
    }
    lists_know_their_places(context, &client, &nowhere).await;
    Ok(())
}

/// Demands that a list of a region or a zone that does not exist is refused: it is empty for a typo only, and a list that is empty
/// or `NotFound` may lead to deletions.
async fn lists_know_their_places(context: &Context<'_>, client: &Client<'_>, nowhere: &str) {
    let place = || Some(nowhere.to_owned());
    let (region, zone) =
        (Filter { region: place(), ..Filter::default() }, Filter { zone: place(), ..Filter::default() });
    let mut lists = vec![
        ("region", "zones", client.zones(Some(nowhere)).await.map(drop)),
        ("region", "instances", client.list(&region).await.map(drop)),
        ("zone", "instances", client.list(&zone).await.map(drop)),
    ];
    for kind in client.driver().inventory().map(Inventory::kinds).unwrap_or_default() {
        lists.push(("region", kind.plural(), client.resources(*kind, Some(nowhere)).await.map(drop)));
    }
    for (field, what, result) in lists {
        let refused = matches!(&result, Err(Error { kind: ErrorKind::InvalidArgument(found), .. }) if found == field);
        context.demand(refused, || {
            let seen = seen(&result);
            format!("the list of {what} of a {field} that does not exist: expected InvalidArgument of {field:?}, seen {seen}")
        });
    }
}

pub(super) async fn from_the_next_read(context: &Context<'_>) -> Verdict {
    let (reader, writer) = (context.direct().await?, context.direct().await?);
    let all = Filter::default();
    let mut first = context.spec(1);
    first.labels.insert(FIRST.to_owned(), "yes".to_owned());
    let old = context.make(&writer, &first).await?;
    // What a cache keeps is read here.
    for _ in 0..2 {
        let (listed, got) = (reader.list(&all).await, reader.get(&old.id).await);
        let is_there = listed.as_ref().is_ok_and(|all| has(all, &old.id)) && got.is_ok();
        context.demand(is_there, || {
            let (listed, got) = (listed.as_ref().map_or_else(shown, |all| in_list(all, &old.id)), seen(&got));
            format!("list and get of {:?}, made by another driver: expected both to have it, seen {listed}, and of get {got}", old.id)
        });
    }
    context.remove(&writer, &old).await?;
    let (listed, got) = (reader.list(&all).await, reader.get(&old.id).await);
    context.demand(listed.as_ref().is_ok_and(|all| !has(all, &old.id)), || {
        format!(
            "the list after another driver deleted {:?}: expected one without it, seen {}",
            old.id,
            listed.as_ref().map_or_else(shown, |all| in_list(all, &old.id))
        )
    });
    context.demand(got.is_err(), || {
        format!("get of {:?} after another driver deleted it: expected NotFound, seen {}", old.id, seen(&got))
    });

    let new = context.make(&writer, &context.spec(1)).await?;
    let listed = reader.list(&all).await.map(|all| all.into_iter().find(|one| one.id == new.id));
    let listed = listed.and_then(|one| one.ok_or_else(|| Error::not_found("it is not in the list")));
    for (what, read) in [("list", listed), ("get", reader.get(&new.id).await)] {
        let is_new = read.as_ref().is_ok_and(|one| !one.labels.contains_key(FIRST) && one.marks == new.marks);
        context.demand(is_new, || {
            let seen = read.as_ref().map_or_else(shown, |one| format!("{:?}", one.labels));
            format!(
                "{what} of an instance that has the name of a deleted one: expected that it has no label {FIRST}, seen {seen}"
            )
        });
    }
    Ok(())
}

fn has(all: &[Instance], id: &str) -> bool {
    all.iter().any(|one| one.id == id)
}

fn in_list(all: &[Instance], id: &str) -> String {
    format!("a list {} it", if has(all, id) { "with" } else { "without" })
}
