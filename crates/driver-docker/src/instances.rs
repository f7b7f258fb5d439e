//! Instances: containers, whoever made them.

use std::time::Duration;

use async_trait::async_trait;
use ccm_drivers::contract::{Error, ErrorKind, Filter, Instance, InstanceSpec, Instances, Marks, Result};
use futures::{StreamExt, future::try_join_all, stream::FuturesUnordered};
use hyper::Method;

use crate::{
    brief,
    client::{Body, Engine, Reason, filters, is_id, query},
    driver::Engines,
};

mod container;
mod create;
mod options;
mod request;
mod seed;

pub(crate) use options::OPTIONS;

use container::{Container, Inspected, Listed};

/// How often it is looked whether a container is there or gone, and the pause in between.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

impl Engines {
    /// The Engine that has an instance, and its container. All Engines are asked at once, and the first that has it is enough. It
    /// is `NotFound` only if every Engine says so.
    pub(crate) async fn locate(&self, id: &str) -> Result<(&Engine, Container)> {
        let ask = async |engine| find(engine, id).await.map(|found| found.map(|container| (engine, container)));
        let mut asked: FuturesUnordered<_> = self.all.iter().map(ask).collect();
        let mut failure = None;
        while let Some(found) = asked.next().await {
            match found {
                Ok(Some(found)) => {
                    // Most others are about to answer, and would lose their connections.
                    let _ = tokio::time::timeout(PAUSE, asked.for_each(async |_| ())).await;
                    return Ok(found);
                }
                Ok(None) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::not_found(format!("there is no instance {:?}", brief(id)))))
    }

    /// The same, for an operation that changes the instance: only those are changed that have an owner.
    pub(crate) async fn locate_own(&self, id: &str) -> Result<(&Engine, Container)> {
        let (engine, container) = self.locate(id).await?;
        if container.marks().owner.is_some() {
            return Ok((engine, container));
        }
        let (name, label) = (brief(&container.name), Marks::OWNER);
        Err(Error::new(
            ErrorKind::Forbidden,
            format!("the container {name} ({id}) has no label {label}: others have made it; change it with docker"),
        ))
    }
}

async fn change(engine: &Engine, id: &str, verb: &str) -> Result<()> {
    engine.send(Method::POST, &format!("/containers/{id}/{verb}"), Body::None).await?.ok().map(drop)
}

/// A container by whatever is given for its id; `None` if the Engine does not have it.
async fn find(engine: &Engine, id: &str) -> Result<Option<Container>> {
    if is_id(id) { inspect(engine, id).await } else { engine.info().await.map(|_| None) }
}

/// A container by its id; `None` if the Engine does not have it.
async fn inspect(engine: &Engine, id: &str) -> Result<Option<Container>> {
    let answer = engine.send(Method::GET, &format!("/containers/{id}/json"), Body::None).await?;
    if answer.reason() == Some(Reason::NoContainer) {
        return Ok(None);
    }
    let container: Container = answer.ok()?.json::<Inspected>()?.into();
    if container.id == id {
        return Ok(Some(container));
    }
    // The Engine has looked for the name, because it does not have the id.
    if container.name == id {
        return Ok(None);
    }
    let (region, other) = (&engine.host.region, brief(&container.id));
    Err(Error::new(
        ErrorKind::Internal,
        format!("region {region}: asked for the container {id}, the Engine answers {other:?}"),
    ))
}

/// The containers of an Engine with these labels and this name.
async fn list(engine: &Engine, labels: &[(&str, &str)], name: Option<&str>) -> Result<Vec<Container>> {
    // The Engine splits a label at its first equals sign, and takes a name for a regular expression.
    let asked = labels.iter().filter(|(name, _)| !name.contains('='));
    let mut all: Vec<_> = asked.map(|(name, value)| ("label", format!("{name}={value}"))).collect();
    let plain = name.filter(|name| request::is_name(name));
    all.extend(plain.map(|name| ("name", format!("^/{}$", name.replace('.', "\\.")))));
    let path = query("/containers/json", &[("all", "1"), ("filters", &filters(&all))]);
    let listed: Vec<Listed> = engine.get(&path).await?;
    let containers = listed.into_iter().map(Container::try_from).collect::<Result<Vec<_>>>();
    let mut containers = containers.map_err(|error| error.context(format!("region {}", engine.host.region)))?;
    containers.retain(|one| name.is_none_or(|name| one.name == name) && one.has(labels));
    Ok(containers)
}

#[async_trait]
impl Instances for Engines {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let mut labels: Vec<_> = filter.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        labels.extend(filter.owner.as_deref().map(|owner| (Marks::OWNER, owner)));
        let ask = async |engine: &'_ Engine| {
            let containers = list(engine, &labels, filter.name.as_deref()).await?;
            Ok(containers.into_iter().map(|container| container.instance(&engine.host)).collect::<Vec<_>>())
        };
        let engines = self.of(filter.region.as_deref(), filter.zone.as_deref())?;
        let mut instances = try_join_all(engines.into_iter().map(ask)).await?.concat();
        instances.retain(|instance| filter.fits(instance));
        Ok(instances)
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        let (engine, container) = self.locate(id).await?;
        Ok(container.instance(&engine.host))
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        create::create(self, spec).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let engine = match self.locate_own(id).await {
            Err(error) if error.is_not_found() && is_id(id) => return Ok(()),
            Err(error) if error.is_not_found() => {
                let id = brief(id);
                return Err(Error::invalid(
                    "id",
                    format!("{id:?} is not the whole id of a container; use the id of the instance, not its name"),
                ));
            }
            found => found?.0,
        };
        delete(engine, id).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        let (engine, container) = self.locate_own(id).await?;
        if container.is_unfinished() {
            // It may not have its user data yet.
            let name = brief(&container.name);
            return Err(Error::invalid(
                "id",
                format!("the creation of the container {name} has not finished; repeat instance-create, or delete it"),
            ));
        }
        change(engine, id, "start").await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        let (engine, _) = self.locate_own(id).await?;
        change(engine, id, "stop").await
    }
}

/// Deletes a container and its volumes, and waits until it is gone.
async fn delete(engine: &Engine, id: &str) -> Result<()> {
    let path = query(&format!("/containers/{id}"), &[("force", "1"), ("v", "1")]);
    for _ in 0..ATTEMPTS {
        let answer = engine.send(Method::DELETE, &path, Body::None).await?;
        if !matches!(answer.reason(), Some(Reason::NoContainer | Reason::BeingRemoved)) {
            answer.ok()?;
        }
        if inspect(engine, id).await?.is_none() {
            return Ok(());
        }
        // Somebody else is deleting it.
        tokio::time::sleep(PAUSE).await;
    }
    let region = &engine.host.region;
    Err(Error::new(
        ErrorKind::Timeout,
        format!("region {region}: the container {id} is still being removed; try again"),
    ))
}

#[cfg(test)]
mod tests;
