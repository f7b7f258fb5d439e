//! Creates an instance: a container is created, gets its networks and its user data, and is started. A call that failed in
//! between is finished by the next one with the same key.

use ccm_drivers::contract::{Error, ErrorKind, Instance, InstanceSpec, Marks, Result, State};
use futures::future::try_join_all;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::{ATTEMPTS, Container, PAUSE, inspect, list, request::Request, seed};
use crate::{
    brief,
    client::{Body, Engine, Reason, Version, is_id, query, segment},
    driver::{Engines, check_network, no_image},
};

pub(super) async fn create(engines: &Engines, spec: &InstanceSpec) -> Result<Instance> {
    let request = Request::new(spec, engines.image.as_deref(), engines.network.as_deref())?;
    let given = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
    let (region, zone) = (given(&spec.region), given(&spec.zone));
    let chosen = engines.of(region.as_deref(), zone.as_deref())?;
    let Some(engine) = chosen.first() else {
        return Err(Error::invalid(
            "zone",
            format!("zone {:?} is not in region {:?}", brief(&spec.zone), brief(&spec.region)),
        ));
    };
    // A second call with the key would put user data into a container that runs already.
    let lock = engines.lock_of(&spec.key);
    let _guard = lock.lock().await;
    let (engine, id) = match only(related(engines, spec).await?, spec)? {
        Some(found) => found,
        None => make(engines, engine, spec, &request).await?,
    };
    finish(engine, &id, spec, &request).await.map_err(|error| {
        // To a caller NotFound means that there is nothing to delete.
        let error = if error.is_not_found() { Error { kind: ErrorKind::Unavailable, ..error } } else { error };
        let advice = match &error.kind {
            // The spec of this key is fixed by now.
            ErrorKind::InvalidArgument(field) if field != "id" => {
                format!("; delete it, then create it with another value of {field}")
            }
            _ => String::new(),
        };
        let message = format!("the container {} was created, and not started: {}{advice}", spec.name, error.message);
        Error { message, ..error }.after(id)
    })
}

type Found<'a> = Vec<(&'a Engine, Container)>;

/// The containers of all Engines that have the key or the name.
async fn related<'a>(engines: &'a Engines, spec: &InstanceSpec) -> Result<Found<'a>> {
    let found = try_join_all(engines.all.iter().map(|engine| related_on(engine, spec))).await?;
    Ok(found.into_iter().flatten().collect())
}

async fn related_on<'a>(engine: &'a Engine, spec: &InstanceSpec) -> Result<Found<'a>> {
    let mut found = list(engine, &[(Marks::OWNER, spec.key.as_str())], None).await?;
    let of_name = list(engine, &[], Some(&spec.name)).await?;
    let others = of_name.into_iter().filter(|one| one.marks().owner.as_ref() != Some(&spec.key));
    found.extend(others.collect::<Vec<_>>());
    Ok(found.into_iter().map(|container| (engine, container)).collect())
}

/// The container that an earlier call has made of the same, and its Engine. Anything else with the key or the name is
/// `AlreadyExists`.
fn only<'a>(found: Found<'a>, spec: &InstanceSpec) -> Result<Option<(&'a Engine, String)>> {
    let mut of_key = found.iter().filter(|(_, one)| one.marks().owner.as_ref() == Some(&spec.key));
    if let (Some((_, one)), Some((_, other))) = (of_key.next(), of_key.next()) {
        let problem =
            format!("there are several instances of this key: {} and {}; delete all but one", one.id, other.id);
        return Err(Error::new(ErrorKind::AlreadyExists, problem));
    }
    let mut made = None;
    for (engine, container) in found {
        made = Some((engine, check(engine, container, spec)?));
    }
    Ok(made)
}

fn check(engine: &Engine, container: Container, spec: &InstanceSpec) -> Result<String> {
    let region = &engine.host.region;
    let what = format!("region {region}: the container {} ({})", brief(&container.name), container.id);
    let exists = |problem: &str| Err(Error::new(ErrorKind::AlreadyExists, format!("{what} {problem}")));
    if container.marks().owner.as_ref() != Some(&spec.key) {
        return exists("has this name and another owner; choose another name");
    }
    if container.digest() != Some(spec.digest().as_str()) {
        return exists("has this key and was made of something else; delete it first");
    }
    if container.state() == State::Deleting {
        return Err(Error::new(ErrorKind::Unavailable, format!("{what} is being deleted; try again")));
    }
    Ok(container.id)
}

/// Creates the container.
async fn make<'a>(
    engines: &'a Engines,
    engine: &'a Engine,
    spec: &InstanceSpec,
    request: &Request,
) -> Result<(&'a Engine, String)> {
    if request.has_cgroup_namespace && engine.version().await? < Version::CGROUP_NAMESPACES {
        let needed = Version::CGROUP_NAMESPACES;
        return Err(Error::not_supported(format!(
            "cgroupNamespace: the Engine needs API {needed} for it; leave it empty"
        )));
    }
    for network in &request.networks {
        check_network(engine, network).await?;
    }
    let mut attempts = 0;
    loop {
        let NotMade { error, is_certain } = match post(engine, &spec.name, request).await {
            Ok(id) => return alone(engines, engine, id, spec).await,
            Err(not_made) => not_made,
        };
        let is_name_taken = error.kind == ErrorKind::AlreadyExists;
        if is_certain && !is_name_taken {
            return Err(error);
        }
        // Another process was faster, or the Engine has done it and its answer was lost.
        match related_on(engine, spec).await.and_then(|found| only(found, spec)) {
            Ok(Some(found)) => return Ok(found),
            Err(other) if is_name_taken => return Err(other),
            _ if !is_name_taken => return Err(error),
            _ => {}
        }
        // An Engine gives a name away before it lists the container, and takes it back after it has removed it.
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err(Error { kind: ErrorKind::Unavailable, ..error }
                .context("the container of this name is not listed; try again"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Checks that no other process has made a container of the key or the name meanwhile, under another name or on another Engine.
/// If so, the new one is deleted: the other process does the same, or was first.
async fn alone<'a>(
    engines: &Engines,
    engine: &'a Engine,
    id: String,
    spec: &InstanceSpec,
) -> Result<(&'a Engine, String)> {
    let found = match related(engines, spec).await {
        Ok(found) => found,
        Err(error) => return Err(error.after(id)),
    };
    let Some((place, other)) = found.into_iter().find(|(_, one)| one.id != id) else { return Ok((engine, id)) };
    let (region, name, other) = (&place.host.region, brief(&other.name), other.id);
    let problem =
        format!("region {region}: the container {name} ({other}) with this key or name was made at the same time");
    let error = Error::new(ErrorKind::AlreadyExists, problem);
    // Not by force: one that another process has started is not only this one's.
    let path = query(&format!("/containers/{id}"), &[("v", "1")]);
    match engine.send(Method::DELETE, &path, Body::None).await {
        Ok(answer) if answer.is_success() || answer.reason() == Some(Reason::NoContainer) => Err(error),
        _ => Err(error.context(format!("the container {id} is left, and has to be deleted")).after(id)),
    }
}

/// A request to create a container that has returned no id.
struct NotMade {
    error: Error,
    /// Whether the Engine has refused it. Otherwise it may have been done.
    is_certain: bool,
}

async fn post(engine: &Engine, name: &str, request: &Request) -> std::result::Result<String, NotMade> {
    #[derive(Deserialize)]
    struct Created {
        #[serde(rename = "Id")]
        id: String,
    }
    let uncertain = |error| NotMade { error, is_certain: false };
    let path = query("/containers/create", &[("name", name)]);
    let answer = engine.send(Method::POST, &path, Body::Json(request.body.clone())).await.map_err(uncertain)?;
    if answer.reason() == Some(Reason::NoImage) {
        return Err(NotMade { error: no_image(engine, &request.image), is_certain: true });
    }
    if (400..500).contains(&answer.status) && answer.status != 408 {
        return Err(NotMade { error: answer.error(), is_certain: true });
    }
    let Created { id } = answer.ok().and_then(|answer| answer.json()).map_err(uncertain)?;
    if is_id(&id) {
        return Ok(id);
    }
    let problem = format!("{:?} is no id of a container", brief(&id));
    Err(uncertain(Error::new(ErrorKind::Internal, problem)))
}

/// Does what is missing until the container runs.
async fn finish(engine: &Engine, id: &str, spec: &InstanceSpec, request: &Request) -> Result<Instance> {
    let error = match try_finish(engine, id, spec, request).await {
        Ok(instance) => return Ok(instance),
        Err(error) => error,
    };
    // Another process may have finished it, and what it has done is refused here.
    match inspect(engine, id).await {
        Ok(Some(found)) if !found.is_unfinished() && found.digest() == Some(&spec.digest()) => {
            Ok(found.instance(&engine.host))
        }
        Ok(None) => Err(gone(id)),
        _ => Err(error),
    }
}

fn gone(id: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the container {id} was deleted at the same time; try again"))
}

async fn try_finish(engine: &Engine, id: &str, spec: &InstanceSpec, request: &Request) -> Result<Instance> {
    let inspected = async || inspect(engine, id).await?.ok_or_else(|| gone(id));
    let mut container = inspected().await?;
    let further = request.networks.iter().skip(1);
    for network in further.filter(|network| container.is_unfinished() && !container.is_in(network)) {
        let path = format!("/networks/{}/connect", segment(network));
        engine.send(Method::POST, &path, Body::Json(json!({"Container": id}))).await?.ok()?;
    }
    if request.networks.len() > 1 {
        container = inspected().await?;
    }
    if !container.is_unfinished() {
        return Ok(container.instance(&engine.host));
    }
    let user_data = spec.user_data.bytes();
    if !user_data.is_empty() {
        seed::put(engine, id, &spec.name, user_data).await?;
    }
    engine.send(Method::POST, &format!("/containers/{id}/start"), Body::None).await?.ok()?;
    Ok(inspected().await?.instance(&engine.host))
}
