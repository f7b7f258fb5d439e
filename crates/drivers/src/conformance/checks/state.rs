//! The states of instances, and what a driver advertises.

use super::{Client, Context, Operation, Stop, Verdict, count, name_of, owned_by, seen, shown};
use crate::contract::{ErrorKind, Instance, Inventory, ResourceKind, Result, State};

pub(super) async fn stopped_exists(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let own = context.make(&client, &context.spec(1)).await?;
    context.runs(&client, &own).await?;
    let id = &own.id;
    match client.stop(id).await {
        Err(error) if error.kind == ErrorKind::NotSupported => {
            return Err(Stop::NotRun(format!("stop: {}", shown(&error))));
        }
        Err(error) => return Err(Stop::Failed(format!("stop of {id:?}: expected success, seen {}", shown(&error)))),
        Ok(()) => {}
    }
    let stopped = context.settled(&client, id, State::Stopping).await;
    context.demand(matches!(&stopped, Ok(one) if one.state == State::Stopped), || {
        format!("get of {id:?}, which is stopped: expected the state stopped, seen {}", state(&stopped))
    });
    let listed = client.list(&owned_by(&context.spec(1))).await;
    context.demand(listed.as_ref().is_ok_and(|all| all.iter().any(|one| one.id == *id)), || {
        format!("the list of the owner of {id:?}, which is stopped: expected one that has it, seen {}", count(&listed))
    });
    let again = client.stop(id).await;
    context
        .demand(again.is_ok(), || format!("stop of {id:?}, which is stopped: expected success, seen {}", seen(&again)));
    for which in ["", ", which runs"] {
        let started = client.start(id).await;
        context
            .demand(started.is_ok(), || format!("start of {id:?}{which}: expected success, seen {}", seen(&started)));
    }
    let running = context.settled(&client, id, State::Pending).await;
    context.demand(matches!(&running, Ok(one) if one.state == State::Running), || {
        format!("get of {id:?}, which was started: expected the state running, seen {}", state(&running))
    });
    Ok(())
}

fn state(result: &Result<Instance>) -> String {
    result.as_ref().map_or_else(shown, |one| format!("the state {}", one.state.word()))
}

pub(super) async fn advertised_is_implemented(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let subject = context.subject(&client).await;
    let regions = client.regions().await;
    context.demand(regions.as_ref().is_ok_and(|all| !all.is_empty()), || {
        let seen = regions.as_ref().map_or_else(shown, |_| "none".to_owned());
        format!("the list of regions: expected at least one, seen {seen}")
    });
    let mut operations = vec![Operation::Verify, Operation::Zones];
    operations.extend(client.has_instances().then_some(Operation::List));
    let kinds = client.driver().inventory().map(Inventory::kinds).unwrap_or_default();
    operations.extend(kinds.iter().map(|kind| Operation::Inventory(*kind)));
    if subject.exists {
        operations.push(Operation::Get(subject.read.clone()));
    }
    if subject.own {
        operations.extend(client.driver().metrics().map(|_| Operation::Usage(subject.read.clone())));
    }
    for operation in operations {
        let result = client.perform(&operation).await;
        context.demand(result.is_ok(), || format!("{operation}: expected an answer, seen {}", seen(&result)));
    }
    for kind in kinds {
        inventory_of(context, &client, *kind).await;
    }
    if let Some(inventory) = client.driver().inventory() {
        for kind in ResourceKind::ALL.into_iter().filter(|kind| !inventory.kinds().contains(kind)) {
            let result = client.resources(kind, None).await;
            let refused = matches!(&result, Err(error) if error.kind == ErrorKind::NotSupported);
            context.demand(refused, || {
                let what = Operation::Inventory(kind);
                format!("{what}, which are not advertised: expected NotSupported, seen {}", seen(&result))
            });
        }
    }
    // Without an instance of the run these are asked for one that does not exist: no answer, but not NotSupported either.
    let usage = async { client.usage(&subject.delete).await.map(drop) };
    let command = async {
        match client.driver().run_command() {
            Some(run) => context.within("run", 1, run.run(&subject.delete, &["true".to_owned()])).await.map(drop),
            None => Ok(()),
        }
    };
    for (what, is_advertised, result) in [
        ("metrics of", client.driver().metrics().is_some(), usage.await),
        ("commands in", client.driver().run_command().is_some(), command.await),
    ] {
        let refused = matches!(&result, Err(error) if error.kind == ErrorKind::NotSupported);
        context.demand(!is_advertised || !refused, || {
            format!("{what} {:?}, which are advertised: expected an answer, seen {}", subject.delete, seen(&result))
        });
    }
    let closed = client.close().await;
    context.demand(closed.is_ok(), || format!("close: expected success, seen {}", seen(&closed)));
    Ok(())
}

/// Demands that each resource of a list can be read by its id.
async fn inventory_of(context: &Context<'_>, client: &Client<'_>, kind: ResourceKind) {
    let (Some(inventory), Ok(all)) = (client.driver().inventory(), client.resources(kind, None).await) else { return };
    if let Some(first) = all.first() {
        let got = context.within("get", 1, inventory.get(kind, &first.id)).await;
        context.demand(got.as_ref().is_ok_and(|got| got.id == first.id), || {
            format!(
                "get of the {} {:?}: expected this id, seen {}",
                kind.word(),
                first.id,
                name_of(&got, |one| &one.id)
            )
        });
    }
}
