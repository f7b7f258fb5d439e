//! Labels and marks, from create to the list, and the filters of the list by them and by names.

use super::{Context, Verdict, count, filter_words, mark_words, owned_by, shown};
use crate::contract::{Filter, Marks};

pub(super) async fn round_trip(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let mut spec = context.spec(1);
    spec.labels.insert("ccm-cloud-verify-empty".to_owned(), String::new());
    spec.labels.insert("example.com/ccm-cloud-verify".to_owned(), "Mixed_case-and.dots".to_owned());
    let made = context.make(&client, &spec).await?;
    let listed = client.list(&owned_by(&spec)).await;
    let listed = listed.map(|all| all.into_iter().find(|one| one.id == made.id));
    let got = client.get(&made.id).await.map(Some);
    for (what, one) in [("create", Ok(Some(made.clone()))), ("the list", listed), ("get", got)] {
        let Ok(Some(one)) = &one else {
            let seen = one.as_ref().map_or_else(shown, |_| "no such instance".to_owned());
            context.problem(format!("{what}: expected the instance {:?}, seen {seen}", made.id));
            continue;
        };
        for (name, value) in &spec.labels {
            let found = one.labels.get(name);
            context.demand(found == Some(value), || {
                format!(
                    "{what}: expected the label {name} with {value:?}, seen {}",
                    found.map_or("none".to_owned(), |found| format!("{found:?}"))
                )
            });
        }
        if let Some(name) = one.labels.keys().find(|name| name.starts_with(Marks::PREFIX)) {
            context.problem(format!("{what}: expected no label that begins with {}, seen {name}", Marks::PREFIX));
        }
        context.demand(one.marks == spec.marks(), || {
            format!("{what}: expected {}, seen {}", mark_words(&spec.marks()), mark_words(&one.marks))
        });
    }

    let of = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let labels: Vec<_> = spec.labels.iter().map(|(name, value)| of(name, value)).collect();
    let mut fits: Vec<_> = labels.into_iter().map(|labels| Filter { labels, ..Filter::default() }).collect();
    fits.push(Filter { labels: spec.labels.clone(), ..owned_by(&spec) });
    fits.push(Filter { name: Some(spec.name.clone()), ..Filter::default() });
    for filter in fits {
        let listed = client.list(&filter).await;
        context.demand(listed.as_ref().is_ok_and(|all| all.iter().any(|one| one.id == made.id)), || {
            format!(
                "the list with {}: expected one that has {:?}, seen {}",
                filter_words(&filter),
                made.id,
                count(&listed)
            )
        });
        let others = listed.iter().flatten().filter(|one| !filter.fits(one)).count();
        context.demand(others == 0, || {
            format!(
                "the list with {}: expected only instances that fit, seen {others} that do not",
                filter_words(&filter)
            )
        });
    }
    let others = [
        Filter { labels: of(crate::conformance::RUN_LABEL, "another-run"), ..owned_by(&spec) },
        Filter { owner: Some(format!("{}-of-another", spec.key)), ..Filter::default() },
    ];
    for filter in others {
        let listed = client.list(&filter).await;
        let is_there = listed.as_ref().is_ok_and(|all| all.iter().any(|one| one.id == made.id));
        context.demand(!is_there, || {
            format!("the list with {}: expected one without {:?}, seen one with it", filter_words(&filter), made.id)
        });
    }
    Ok(())
}
