//! What containers are made of and run on: networks, the Engine itself, volumes and images.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_drivers::contract::{Error, Inventory, Resource, ResourceKind, Result};
use futures::future::try_join_all;
use serde::Deserialize;

use crate::{
    client::{Engine, Info},
    driver::Engines,
};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Network {
    id: String,
    name: String,
    driver: String,
    #[serde(rename = "IPAM", default)]
    addresses: Option<Addresses>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Addresses {
    #[serde(default)]
    config: Option<Vec<Pool>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pool {
    #[serde(default)]
    subnet: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volumes {
    #[serde(default)]
    volumes: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volume {
    name: String,
    driver: String,
    mountpoint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    id: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    size: i64,
}

/// One of a region, without its region. Engines know images and volumes by the same ids, so all ids but the Engine's own are
/// made global.
type Found = (String, String, Vec<(&'static str, String)>);

fn network(found: Network) -> Found {
    let pools = found.addresses.and_then(|addresses| addresses.config).unwrap_or_default();
    let subnets: Vec<_> = pools.into_iter().map(|pool| pool.subnet).filter(|subnet| !subnet.is_empty()).collect();
    (found.id, found.name, vec![("driver", found.driver), ("subnet", subnets.join(","))])
}

fn volume(found: Volume) -> Found {
    (found.name.clone(), found.name, vec![("driver", found.driver), ("path", found.mountpoint)])
}

/// Each tag is an image by which `create` takes it; an image without one is taken by its id.
fn images(found: Image) -> Vec<Found> {
    let Image { id, repo_tags, size } = found;
    let mut names: Vec<_> = repo_tags.unwrap_or_default().into_iter().filter(|tag| tag != "<none>:<none>").collect();
    if names.is_empty() {
        names.push(id.clone());
    }
    let image = |name: String| (name.clone(), name, vec![("digest", id.clone()), ("sizeBytes", size.to_string())]);
    names.into_iter().map(image).collect()
}

fn host(info: Info) -> Found {
    let details = vec![
        ("version", info.server_version),
        ("operatingSystem", info.operating_system),
        ("kernel", info.kernel_version),
        ("architecture", info.architecture),
        ("processors", info.processors.to_string()),
        ("memoryBytes", info.mem_total.to_string()),
        ("storageDriver", info.driver),
        ("controlGroups", info.cgroup_version.unwrap_or_default()),
    ];
    (info.id, info.name, details)
}

async fn of(engine: &Engine, kind: ResourceKind) -> Result<Vec<Resource>> {
    let found: Vec<Found> = match kind {
        ResourceKind::Network => engine.get::<Vec<Network>>("/networks").await?.into_iter().map(network).collect(),
        ResourceKind::Host => vec![host(engine.info().await?)],
        ResourceKind::Storage => {
            let Volumes { volumes } = engine.get("/volumes").await?;
            volumes.unwrap_or_default().into_iter().map(volume).collect()
        }
        ResourceKind::Image => engine.get::<Vec<Image>>("/images/json").await?.into_iter().flat_map(images).collect(),
        ResourceKind::InstanceType => {
            return Err(Error::not_supported("a Docker Engine has no instance types"));
        }
    };
    let region = &engine.host.region;
    let id = |id: String| if kind == ResourceKind::Host { id } else { format!("{region}/{id}") };
    let details = |all: Vec<(&str, String)>| -> BTreeMap<String, String> {
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name.to_owned(), text)).collect()
    };
    let resource = |(own, name, all)| Resource { id: id(own), name, region: region.clone(), details: details(all) };
    Ok(found.into_iter().map(resource).collect())
}

#[async_trait]
impl Inventory for Engines {
    fn kinds(&self) -> &[ResourceKind] {
        &[ResourceKind::Network, ResourceKind::Host, ResourceKind::Storage, ResourceKind::Image]
    }

    async fn list(&self, kind: ResourceKind, region: Option<&str>) -> Result<Vec<Resource>> {
        let engines = Self::of(self, region, None)?;
        Ok(try_join_all(engines.into_iter().map(|engine| of(engine, kind))).await?.concat())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn details_are_those_of_docker() {
        let parsed: Network = serde_json::from_value(json!({
            "Name": "rec", "Id": "74a6", "Scope": "local", "Driver": "bridge",
            "IPAM": {"Driver": "default", "Options": {}, "Config": [{"Subnet": "172.30.1.0/24"}, {"Subnet": "fd00::/64"}]},
        }))
        .unwrap();
        let details = vec![("driver", "bridge".to_owned()), ("subnet", "172.30.1.0/24,fd00::/64".to_owned())];
        assert_eq!(network(parsed), ("74a6".to_owned(), "rec".to_owned(), details));
        let tags = |tags: Value| {
            let image = json!({"Id": "sha256:c761", "RepoTags": tags, "Size": 7, "Labels": null});
            let found = images(serde_json::from_value(image).unwrap());
            found.into_iter().map(|(id, name, _)| (id, name)).collect::<Vec<_>>()
        };
        let twice = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(tags(json!(["a:1", "b:2"])), [twice("a:1"), twice("b:2")]);
        assert_eq!(tags(json!(["<none>:<none>"])), [twice("sha256:c761")]);
        assert_eq!(tags(Value::Null), [twice("sha256:c761")]);
        let none: Volumes = serde_json::from_value(json!({"Volumes": null, "Warnings": null})).unwrap();
        assert!(none.volumes.is_none());
    }
}
