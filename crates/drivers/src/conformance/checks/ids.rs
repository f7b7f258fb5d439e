//! Ids: unique, stable, and of a form that can be parsed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Client, Context, Stop, Verdict, count, filter_words, owned_by, shown};
use crate::contract::{Error, Filter, Instance, InstanceSpec, Inventory, Region, Zone};

pub(super) async fn are_unique(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    topology(context, &client).await?;
    let kinds = client.driver().inventory().map(Inventory::kinds).unwrap_or_default();
    for kind in kinds {
        if let Ok(all) = client.resources(*kind, None).await {
            once(context, kind.plural(), all.into_iter().map(|one| one.id));
        }
    }
    if client.has_instances() {
        if !context.plan.read_only {
            of_instances(context, &client).await?;
        }
        let all = client.list(&Filter::default()).await.map_err(not_run("list"))?;
        once(context, "instances", all.iter().map(|one| one.id.clone()));
        // Instances that others have made become no nodes.
        let owned = all.into_iter().filter(|one| one.marks.owner.is_some());
        once(context, "owned instances (providerID)", owned.map(|one| one.provider_id));
    }
    Ok(())
}

fn not_run(what: &str) -> impl FnOnce(Error) -> Stop {
    move |error| Stop::NotRun(format!("{what}: {}", shown(&error)))
}

/// Demands that no id stands twice in a list.
fn once(context: &Context<'_>, what: &str, ids: impl IntoIterator<Item = String>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    ids.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
    for (id, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
        context.problem(format!("the ids of {what}: expected {id:?} once, seen {count} times"));
    }
}

async fn topology(context: &Context<'_>, client: &Client<'_>) -> Verdict {
    let regions = client.regions().await.map_err(not_run("the list of regions"))?;
    let zones = client.zones(None).await.map_err(not_run("the list of zones"))?;
    let ids = regions.iter().map(|region| region.id.clone()).chain(zones.iter().map(|zone| zone.id.clone()));
    once(context, "regions and zones", ids);
    let all: BTreeSet<_> = zones.iter().map(|zone| (zone.id.clone(), zone.region.clone())).collect();
    let mut by_region = BTreeSet::new();
    for region in &regions {
        let of_it = client.zones(Some(&region.id)).await.map_err(not_run("the list of the zones of a region"))?;
        for zone in of_it {
            context.demand(zone.region == region.id, || {
                format!(
                    "the zones of the region {:?}: expected its own, seen {:?} of {:?}",
                    region.id, zone.id, zone.region
                )
            });
            by_region.insert((zone.id, region.id.clone()));
        }
        let got = context.within("get of a region", 1, client.driver().topology().region(&region.id)).await;
        context.demand(got.as_ref().is_ok_and(|got| got == region), || {
            let words = |one: &Region| format!("{:?} with the name {:?}", one.id, one.name);
            let seen = got.as_ref().map_or_else(shown, words);
            format!("get of the region {:?}: expected {}, seen {seen}", region.id, words(region))
        });
    }
    context.demand(all == by_region, || format!("the zones of all regions: expected {all:?}, seen {by_region:?}"));
    for zone in &zones {
        let got = context.within("get of a zone", 1, client.driver().topology().zone(&zone.id)).await;
        context.demand(got.as_ref().is_ok_and(|got| got == zone), || {
            let words =
                |one: &Zone| format!("{:?} of the region {:?} with the name {:?}", one.id, one.region, one.name);
            let seen = got.as_ref().map_or_else(shown, words);
            format!("get of the zone {:?}: expected {}, seen {seen}", zone.id, words(zone))
        });
    }
    Ok(())
}

/// Makes instances in two zones, in two regions if there are, and one of them again.
async fn of_instances(context: &Context<'_>, client: &Client<'_>) -> Verdict {
    let zones = client.zones(None).await.map_err(not_run("the list of zones"))?;
    let here = made_in_its_place(context, client, &context.spec(1), &zones).await?;
    let mut ids = vec![here.id.clone()];
    let in_another_region = zones.iter().find(|zone| zone.region != here.region);
    let in_another_zone = zones.iter().find(|zone| zone.region == here.region && zone.id != here.zone);
    for zone in in_another_region.into_iter().chain(in_another_zone) {
        let mut spec = context.spec(2);
        (spec.region, spec.zone) = (zone.region.clone(), zone.id.clone());
        match made_in_its_place(context, client, &spec, &zones).await {
            Ok(there) => {
                ids.push(there.id);
                break;
            }
            // The image or the network may be in one place only.
            Err(Stop::NotRun(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    context.remove(client, &here).await?;
    ids.push(context.make(client, &context.spec(1)).await?.id);
    once(context, "instances of this run, deleted ones included", ids);
    Ok(())
}

/// Makes an instance, and demands that it is in the zone that was asked for, and in the lists of no other place.
async fn made_in_its_place(
    context: &Context<'_>,
    client: &Client<'_>,
    spec: &InstanceSpec,
    zones: &[Zone],
) -> std::result::Result<Instance, Stop> {
    let made = context.make(client, spec).await?;
    let is = |asked: &str, found: &str| asked.is_empty() || asked == found;
    let is_known = zones.iter().any(|zone| zone.id == made.zone && zone.region == made.region);
    if !is_known || !is(&spec.region, &made.region) || !is(&spec.zone, &made.zone) {
        let place = |region: &str, zone: &str| match (region, zone) {
            ("", "") => "a zone of the list".to_owned(),
            ("", zone) => format!("the zone {zone:?}"),
            (region, "") => format!("a zone of the region {region:?}"),
            (region, zone) => format!("the zone {zone:?} of the region {region:?}"),
        };
        let (asked, seen) = (place(&spec.region, &spec.zone), place(&made.region, &made.zone));
        context.problem(format!("create in {asked}: expected an instance there, seen one in {seen}"));
        return Ok(made);
    }
    let region = |region: &str| Filter { region: Some(region.to_owned()), ..owned_by(spec) };
    let zone = |zone: &str| Filter { zone: Some(zone.to_owned()), ..owned_by(spec) };
    let mut filters = vec![(region(&made.region), true), (zone(&made.zone), true)];
    let other_region = zones.iter().find(|other| other.region != made.region);
    filters.extend(other_region.map(|other| (region(&other.region), false)));
    let other_zone = zones.iter().find(|other| other.id != made.zone);
    filters.extend(other_zone.map(|other| (zone(&other.id), false)));
    for (filter, fits) in filters {
        let listed = client.list(&filter).await;
        let has = |all: &Vec<Instance>| all.iter().any(|one| one.id == made.id);
        context.demand(listed.as_ref().is_ok_and(|all| has(all) == fits), || {
            format!(
                "the list with {}: expected one {} {:?}, which is in the zone {:?} of the region {:?}, seen {}",
                filter_words(&filter),
                if fits { "with" } else { "without" },
                made.id,
                made.zone,
                made.region,
                count(&listed)
            )
        });
    }
    Ok(made)
}

pub(super) async fn are_stable(context: &Context<'_>) -> Verdict {
    let client = context.direct().await?;
    let own = context.make(&client, &context.spec(1)).await?;
    let is_plain = |text: &str| !text.is_empty() && !text.contains(|one: char| one.is_whitespace() || one.is_control());
    context.demand(is_plain(&own.id), || format!("the id: expected a text without spaces, seen {:?}", own.id));
    let has_scheme =
        own.provider_id.split_once("://").is_some_and(|(scheme, rest)| is_scheme(scheme) && is_plain(rest));
    context.demand(has_scheme, || format!("the providerID: expected <scheme>://<id>, seen {:?}", own.provider_id));
    is_same(context, &client, &own, "").await?;
    let cycled = async {
        client.stop(&own.id).await?;
        client.start(&own.id).await
    };
    // A driver that cannot stop instances has nothing to compare.
    if cycled.await.is_ok() {
        is_same(context, &client, &own, " after stop and start").await?;
    }
    Ok(())
}

/// Demands that each way to read an instance gives the same ids.
async fn is_same(context: &Context<'_>, client: &Client<'_>, own: &Instance, when: &str) -> Verdict {
    let reopened = context.direct().await?;
    let listed = context.own(client, &context.spec(1)).await?;
    let listed = listed.into_iter().next().ok_or_else(|| Error::not_found("it is not in the list"));
    for (what, read) in [
        ("get", client.get(&own.id).await),
        ("get with a newly opened driver", reopened.get(&own.id).await),
        ("get by the providerID", client.get_by_provider_id(&own.provider_id).await),
        ("the list", listed),
    ] {
        let ids = |one: &Instance| format!("{:?} with the providerID {:?}", one.id, one.provider_id);
        let found = read.as_ref().map_or_else(shown, ids);
        context.demand(found == ids(own), || format!("{what}{when}: expected {}, seen {found}", ids(own)));
    }
    Ok(())
}

/// Whether a text is the scheme of a URI.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || "+-.".contains(one))
}
