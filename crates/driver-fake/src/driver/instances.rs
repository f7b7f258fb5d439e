//! Instances of the fake cloud (IO).

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_base::error::brief;
use ccm_drivers::contract::{
    Address, AddressKind, Error, ErrorKind, Filter, Instance, InstanceSpec, Instances, Marks, Result, State,
};

use super::{CPUS, Opened};
use crate::protocol::{self, MAX_USER_DATA, NewInstance, Query, Request};

#[async_trait]
impl Instances for Opened {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let Filter { region, zone, name, owner, labels } = filter.clone();
        let owner = owner.map(|owner| (Marks::OWNER.to_owned(), owner));
        let labels = labels.into_iter().chain(owner).collect();
        let found = self.find(Query { region, zone, name, labels }).await?;
        let all: Vec<Instance> = found.into_iter().map(instance).collect::<Result<_>>()?;
        Ok(all.into_iter().filter(|instance| filter.fits(instance)).collect())
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        let found = instance(self.client.call(&Request::GetInstance { id: id.to_owned() }).await?)?;
        if found.id == id {
            return Ok(found);
        }
        let message = format!("the cloud was asked for instance {id:?}, and returned {:?}", found.id);
        Err(Error::new(ErrorKind::Internal, message))
    }

    async fn create(&self, spec: &InstanceSpec) -> Result<Instance> {
        let wanted = self.wanted(spec)?;
        let made = match self.client.call::<protocol::Instance>(&Request::CreateInstance(wanted)).await {
            Ok(made) => made,
            Err(error) if error.kind == ErrorKind::AlreadyExists => self.existing(spec, error).await?,
            // It may have been made all the same, if only the answer was lost.
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) => {
                return Err(match self.of_key(&spec.key).await {
                    Ok(Some(made)) if is_of(&made, spec) => error.after(made.id),
                    _ => error,
                });
            }
            Err(error) => return Err(error),
        };
        let made = instance(made)?;
        // One that was stopped since it was made stays stopped.
        if made.state != State::Pending {
            return Ok(made);
        }
        self.started(&made.id).await.and_then(instance).map_err(|error| error.after(made.id))
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let deleted = async {
            self.check_own(id).await?;
            self.client.call(&Request::DeleteInstance { id: id.to_owned() }).await
        };
        match deleted.await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        }
    }

    async fn start(&self, id: &str) -> Result<()> {
        self.check_own(id).await?;
        self.started(id).await.map(drop)
    }

    async fn stop(&self, id: &str) -> Result<()> {
        self.check_own(id).await?;
        self.client.call::<protocol::Instance>(&Request::StopInstance { id: id.to_owned() }).await.map(drop)
    }
}

impl Opened {
    /// Fails unless an instance has an owner: the others are not changed.
    pub(super) async fn check_own(&self, id: &str) -> Result<()> {
        if self.get(id).await?.marks.owner.is_some() {
            return Ok(());
        }
        let message =
            format!("instance {id:?} has no label {}: others have made it; change it with their tools", Marks::OWNER);
        Err(Error::new(ErrorKind::Forbidden, message))
    }

    async fn find(&self, query: Query) -> Result<Vec<protocol::Instance>> {
        self.client.call(&Request::ListInstances(query)).await
    }

    async fn of_key(&self, key: &str) -> Result<Option<protocol::Instance>> {
        let labels = BTreeMap::from([(Marks::OWNER.to_owned(), key.to_owned())]);
        let found = self.find(Query { labels, ..Query::default() }).await?;
        Ok(found.into_iter().find(|one| one.labels.get(Marks::OWNER).is_some_and(|owner| owner == key)))
    }

    async fn started(&self, id: &str) -> Result<protocol::Instance> {
        self.client.call(&Request::StartInstance { id: id.to_owned() }).await
    }

    /// What to ask the cloud for.
    fn wanted(&self, spec: &InstanceSpec) -> Result<NewInstance> {
        let InstanceSpec {
            key, name, region, zone, image, instance_type, user_data, networks, labels, options, ..
        } = spec;
        if key.is_empty() {
            return Err(Error::invalid("key", "the key is empty: give the UID of the owner"));
        }
        if let Some(label) = labels.keys().find(|label| label.starts_with(Marks::PREFIX)) {
            let message = format!("label {label:?}: labels that begin with {} are the driver's own", Marks::PREFIX);
            return Err(Error::invalid("labels", message));
        }
        let length = user_data.bytes().len();
        if length > MAX_USER_DATA {
            let message = format!("the user data has {length} bytes: at most {MAX_USER_DATA} are possible");
            return Err(Error::invalid("userData", message));
        }
        let mut labels = labels.clone();
        labels.insert(Marks::SPEC.to_owned(), spec.digest());
        let Marks { owner, cluster } = spec.marks();
        labels.extend(owner.map(|owner| (Marks::OWNER.to_owned(), owner)));
        labels.extend(cluster.map(|cluster| (Marks::CLUSTER.to_owned(), cluster)));
        let or = |text: &String, default: &String| if text.is_empty() { default.clone() } else { text.clone() };
        let networks = if networks.is_empty() { vec![self.defaults.network.clone()] } else { networks.clone() };
        Ok(NewInstance {
            key: Some(key.clone()),
            name: name.clone(),
            region: region.clone(),
            zone: zone.clone(),
            image: or(image, &self.defaults.image),
            instance_type: or(instance_type, &self.defaults.instance_type),
            networks,
            cpus: options.integer(CPUS),
            user_data: user_data.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat(),
            labels,
        })
    }

    /// The instance of the same key and spec, after the cloud refused to make another one.
    async fn existing(&self, spec: &InstanceSpec, refused: Error) -> Result<protocol::Instance> {
        if let Some(found) = self.of_key(&spec.key).await? {
            if is_of(&found, spec) {
                return Ok(found);
            }
            let message = format!("instance {:?} of key {:?} was made of another spec", brief(&found.id), spec.key);
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        if self.find(Query { name: Some(spec.name.clone()), ..Query::default() }).await?.is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, format!("{refused}; it was deleted meanwhile: try again")));
        }
        Err(refused)
    }
}

/// Whether an instance was made of a spec.
fn is_of(found: &protocol::Instance, spec: &InstanceSpec) -> bool {
    found.labels.get(Marks::SPEC) == Some(&spec.digest())
}

/// An instance of the cloud in the words of the contract.
fn instance(found: protocol::Instance) -> Result<Instance> {
    let protocol::Instance { id, name, region, zone, state, image, instance_type, addresses, labels, created, .. } =
        found;
    let is_id = id.strip_prefix("i-").is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    });
    if !is_id {
        return Err(Error::new(ErrorKind::Internal, format!("the cloud returned an instance of id {:?}", brief(&id))));
    }
    let hostname = Address { kind: AddressKind::Hostname, address: name.clone() };
    let internal = addresses.into_iter().map(|address| Address { kind: AddressKind::InternalIP, address });
    let mark = |name| labels.get(name).filter(|value| !value.is_empty()).cloned();
    Ok(Instance {
        provider_id: format!("fake:///{zone}/{id}"),
        id,
        region,
        zone,
        state: match state {
            protocol::State::Created => State::Pending,
            protocol::State::Running => State::Running,
            protocol::State::Stopped => State::Stopped,
            protocol::State::Unknown => State::Unknown,
        },
        image,
        instance_type,
        addresses: std::iter::once(hostname).chain(internal).collect(),
        marks: Marks { owner: mark(Marks::OWNER), cluster: mark(Marks::CLUSTER) },
        labels: labels.into_iter().filter(|(name, _)| !name.starts_with(Marks::PREFIX)).collect(),
        name,
        created,
    })
}
