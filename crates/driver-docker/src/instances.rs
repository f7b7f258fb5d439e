//! Instances: containers, whoever made them.

use std::time::Duration;

use async_trait::async_trait;
use ccm_drivers::contract::{Error, ErrorKind, Filter, Instance, InstanceSpec, Instances, Marks, Result};
use hyper::Method;

use crate::{
    brief,
    client::{Body, Engine, No, filters, query},
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
const LOOKS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a text is the whole id of a container. Names and parts of ids, which an Engine also takes, are not.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|at| at.is_ascii_digit() || (b'a'..=b'f').contains(&at))
}

impl Engines {
    /// The Engine that has an instance, and its container. It is `NotFound` only if every Engine says so.
    pub(crate) async fn locate(&self, id: &str) -> Result<(&Engine, Container)> {
        let mut failure = None;
        for engine in &self.all {
            let found = if is_id(id) { inspect(engine, id).await } else { engine.info().await.map(|_| None) };
            match found {
                Ok(Some(container)) => return Ok((engine, container)),
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

    async fn change(&self, id: &str, verb: &str) -> Result<()> {
        let (engine, _) = self.locate_own(id).await?;
        engine.send(Method::POST, &format!("/containers/{id}/{verb}"), Body::None).await?.ok().map(drop)
    }
}

/// A container by its id; `None` if the Engine does not have it.
async fn inspect(engine: &Engine, id: &str) -> Result<Option<Container>> {
    let answer = engine.send(Method::GET, &format!("/containers/{id}/json"), Body::None).await?;
    if answer.no() == Some(No::Container) {
        return Ok(None);
    }
    let container: Container = answer.ok()?.json::<Inspected>()?.into();
    // Another container may have the id as its name.
    Ok((container.id == id).then_some(container))
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
        let mut instances = Vec::new();
        for engine in self.of(filter.region.as_deref(), filter.zone.as_deref())? {
            let containers = list(engine, &labels, filter.name.as_deref()).await?;
            instances.extend(containers.into_iter().map(|container| container.instance(&engine.host)));
        }
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
        if !is_id(id) {
            let id = brief(id);
            return Err(Error::invalid(
                "id",
                format!("{id:?} is not the whole id of a container; use the id of the instance, not its name"),
            ));
        }
        let engine = match self.locate_own(id).await {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?.0,
        };
        delete(engine, id).await
    }

    async fn start(&self, id: &str) -> Result<()> {
        self.change(id, "start").await
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.change(id, "stop").await
    }
}

/// Deletes a container and its volumes, and waits until it is gone.
async fn delete(engine: &Engine, id: &str) -> Result<()> {
    let path = query(&format!("/containers/{id}"), &[("force", "1"), ("v", "1")]);
    for _ in 0..LOOKS {
        let answer = engine.send(Method::DELETE, &path, Body::None).await?;
        if !matches!(answer.no(), Some(No::Container | No::Removal)) {
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
