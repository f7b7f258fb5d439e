//! Ids are whole: the beginning of an id, and a name, is not an id.

use super::{Client, Context, Stop, Verdict, name_of, seen, shown};
use crate::contract::{ErrorKind, Filter, Instance, State};

/// The characters of a name that is the beginning of an id.
const LENGTH_OF_A_NAME: usize = 12;

pub(super) async fn beginnings_hit_nobody(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let own = context.make(&client, &context.spec(1)).await?;
    context.runs(&client, &own).await?;
    let all = client.list(&Filter::default()).await;
    let all = all.map_err(|error| Stop::NotRun(format!("list: {}", shown(&error))))?;
    // A driver that takes a beginning for the whole must not hit an instance of somebody else.
    let hits_others = |text: &str| {
        all.iter()
            .any(|one| one.id != own.id && [&one.id, &one.name, &one.provider_id].iter().any(|all| all.contains(text)))
    };
    let parts: Vec<_> = parts_of(&own).into_iter().filter(|part| !hits_others(part)).collect();
    for part in &parts {
        hits_nobody(context, &client, part, &own).await?;
    }
    for name in [&own.name[..own.name.len() - 1], own.name.split('-').next().unwrap_or_default()] {
        let listed = client.list(&Filter { name: Some(name.to_owned()), ..Filter::default() }).await;
        let is_there = listed.as_ref().is_ok_and(|all| all.iter().any(|one| one.id == own.id));
        context.demand(!is_there, || {
            format!("the list with the name {name:?}: expected one without {:?}, which has another name, seen a list with it", own.name)
        });
    }

    let mut spec = context.spec(2);
    spec.name = last_of(&own.id).chars().take(LENGTH_OF_A_NAME).collect();
    if spec.name == own.name || spec.name == own.id || hits_others(&spec.name) {
        return Ok(());
    }
    let named = match client.create(&spec).await {
        // The cloud takes no such name, so nobody can give it.
        Err(error) if matches!(error.kind, ErrorKind::InvalidArgument(_)) => return Ok(()),
        Err(error) => return Err(Stop::NotRun(format!("create of {:?}: {}", spec.name, shown(&error)))),
        Ok(named) => context.is_own(named, &spec)?,
    };
    is_untouched(&client, &own, "an instance was made whose name is the beginning of its id").await?;
    let got = client.get(&named.id).await;
    context.demand(got.as_ref().is_ok_and(|got| got.id == named.id), || {
        format!(
            "get of {:?}, which has the name {:?}: expected this id, seen {}",
            named.id,
            spec.name,
            name_of(&got, |one| &one.id)
        )
    });
    if spec.name != named.id {
        hits_nobody(context, &client, &spec.name, &own).await?;
        is_untouched(&client, &named, "its name was taken for an id").await?;
    }
    let deleted = client.delete(&named.id).await;
    context.demand(deleted.is_ok(), || format!("delete of {:?}: expected success, seen {}", named.id, seen(&deleted)));
    is_untouched(&client, &own, "an instance was deleted whose name is the beginning of its id").await
}

/// The text behind the last separator of an id.
fn last_of(id: &str) -> &str {
    id.rsplit(['/', ':']).next().unwrap_or(id)
}

/// Texts that are not the id of the instance, but parts of it, or its name.
fn parts_of(own: &Instance) -> Vec<String> {
    let (id, last) = (&own.id, last_of(&own.id));
    let (head, count) = (&id[..id.len() - last.len()], last.chars().count());
    let beginning = |count: usize| last.chars().take(count).collect::<String>();
    let mut parts = vec![own.name.clone(), last.to_owned(), format!("{head}{}", own.name), format!("{id}0")];
    let most = count.saturating_sub(1);
    // Shorter ones are more likely to be an id of somebody else.
    for length in
        [LENGTH_OF_A_NAME, count / 2, most].into_iter().filter(|one| (LENGTH_OF_A_NAME.min(most)..=most).contains(one))
    {
        parts.extend([beginning(length), format!("{head}{}", beginning(length))]);
    }
    parts.retain(|part| part != id && part != head && !part.is_empty());
    parts.sort();
    parts.dedup();
    parts
}

/// Demands that operations on a text that is nobody's id leave an instance alone.
async fn hits_nobody(context: &Context<'_>, client: &Client<'_>, text: &str, own: &Instance) -> Verdict {
    let got = client.get(text).await;
    context.demand(got.is_err(), || {
        let seen = name_of(&got, |one| &one.id);
        format!("get of {text:?}, which is no id: expected NotFound, seen {seen}")
    });
    // What they answer is not asked for here.
    drop(client.stop(text).await);
    is_untouched(client, own, &format!("stop of {text:?}")).await?;
    drop(client.delete(text).await);
    is_untouched(client, own, &format!("delete of {text:?}")).await
}

/// Demands that an instance runs. One that was hit is of no more use.
async fn is_untouched(client: &Client<'_>, own: &Instance, after: &str) -> Verdict {
    let got = client.get(&own.id).await;
    if matches!(&got, Ok(one) if matches!(one.state, State::Running | State::Pending)) {
        return Ok(());
    }
    let seen = got.as_ref().map_or_else(shown, |one| format!("the state {}", one.state.word()));
    Err(Stop::Failed(format!("get of {:?} after {after}: expected that it runs, seen {seen}", own.id)))
}
