//! Creates an instance: a container is created, gets its networks and its user data, and is started. A call that failed in
//! between is finished by the next one with the same key.

use ccm_drivers::contract::{Error, ErrorKind, Instance, InstanceSpec, Marks, Result, State};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Container, LOOKS, PAUSE, inspect, is_id, list, request::Request, seed};
use crate::{
    brief,
    client::{Body, Engine, No, Version, query, segment},
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
    let (engine, id) = {
        // Two calls with one key and different names would both find nothing.
        let _guard = engines.creating.lock().await;
        match existing(engines, spec).await? {
            Some(found) => found,
            None => make(engines, engine, spec, &request).await?,
        }
    };
    finish(engine, &id, spec, &request).await.map_err(|error| {
        // To a caller NotFound means that there is nothing to delete.
        let error = if error.is_not_found() { Error { kind: ErrorKind::Unavailable, ..error } } else { error };
        error.context(format!("the container {} was created, and not started", spec.name)).after(id)
    })
}

/// The container that an earlier call has made of the same, and its Engine. Anything else with the key or the name is
/// `AlreadyExists`.
async fn existing<'a>(engines: &'a Engines, spec: &InstanceSpec) -> Result<Option<(&'a Engine, String)>> {
    let mut found = None;
    for engine in &engines.all {
        let of_key = list(engine, &[(Marks::OWNER, spec.key.as_str())], None).await?;
        let of_name = list(engine, &[], Some(&spec.name)).await?;
        for container in of_key.into_iter().chain(of_name) {
            found = Some((engine, check(engine, container, spec)?));
        }
    }
    Ok(found)
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
    let mut looks = 0;
    loop {
        let error = match post(engine, &spec.name, request).await {
            Ok(id) => return Ok((engine, id)),
            Err(error) => error,
        };
        let is_name_taken = error.kind == ErrorKind::AlreadyExists;
        if !is_name_taken && !error.kind.is_transient() {
            return Err(error);
        }
        // Another process was faster, or the Engine has done it and its answer was lost.
        match existing(engines, spec).await {
            Ok(Some(found)) => return Ok(found),
            Err(other) if is_name_taken => return Err(other),
            _ if !is_name_taken => return Err(error),
            _ => {}
        }
        // An Engine gives a name away before it lists the container, and takes it back after it has removed it.
        looks += 1;
        if looks == LOOKS {
            return Err(Error { kind: ErrorKind::Unavailable, ..error }
                .context("the container of this name is not listed; try again"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn post(engine: &Engine, name: &str, request: &Request) -> Result<String> {
    #[derive(Deserialize)]
    struct Created {
        #[serde(rename = "Id")]
        id: String,
    }
    let path = query("/containers/create", &[("name", name)]);
    let answer = engine.send(Method::POST, &path, Body::Json(request.body.clone())).await?;
    if answer.no() == Some(No::Image) {
        return Err(no_image(engine, &request.image));
    }
    let id = answer.ok()?.json::<Created>()?.id;
    if is_id(&id) {
        Ok(id)
    } else {
        Err(Error::new(ErrorKind::Internal, format!("{:?} is no id of a container", brief(&id))))
    }
}

/// Does what is missing until the container runs.
async fn finish(engine: &Engine, id: &str, spec: &InstanceSpec, request: &Request) -> Result<Instance> {
    let gone =
        || Error::new(ErrorKind::Unavailable, format!("the container {id} was deleted at the same time; try again"));
    let container = inspect(engine, id).await?.ok_or_else(gone)?;
    if !container.is_unfinished() {
        return Ok(container.instance(&engine.host));
    }
    for network in request.networks.iter().skip(1).filter(|network| !container.is_in(network)) {
        let path = format!("/networks/{}/connect", segment(network));
        engine.send(Method::POST, &path, Body::Json(json!({"Container": id}))).await?.ok()?;
    }
    let user_data = spec.user_data.bytes();
    if !user_data.is_empty() {
        seed::put(engine, id, &spec.name, user_data).await?;
    }
    engine.send(Method::POST, &format!("/containers/{id}/start"), Body::None).await?.ok()?;
    Ok(inspect(engine, id).await?.ok_or_else(gone)?.instance(&engine.host))
}
