//! Which Engines the settings lead to. An endpoint that leads to another Engine than before, or than the setting `accountID`
//! names, gets no answer: there the instances of the right one are not found, which must not look as if they were gone.

use std::sync::{Mutex, PoisonError};

use ccm_drivers::contract::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::brief;

/// What stands between the ids of several Engines in the id of their account.
const JOIN: &str = "+";

/// An Engine's answer to `GET /info`, as far as it is of use.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Info {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) server_version: String,
    pub(crate) operating_system: String,
    pub(crate) kernel_version: String,
    pub(crate) architecture: String,
    #[serde(rename = "NCPU")]
    pub(crate) processors: u64,
    pub(crate) mem_total: u64,
    pub(crate) driver: String,
    pub(crate) docker_root_dir: String,
    pub(crate) cgroup_version: Option<String>,
}

/// The ids of the Engines of one driver.
pub(crate) struct Identities {
    /// The ids of the setting `accountID`.
    wanted: Option<Vec<String>>,
    /// The regions, each with its Engine once it is known.
    seen: Mutex<Vec<(String, Option<Known>)>>,
}

/// What an Engine has to keep. With another folder or another driver for its storage it has none of its containers.
#[derive(Clone, PartialEq, Eq)]
struct Known {
    id: String,
    folder: String,
    driver: String,
}

impl Identities {
    pub(crate) fn new(account: Option<&str>, regions: impl Iterator<Item = String>) -> Self {
        let wanted = account.filter(|id| !id.is_empty()).map(|id| id.split(JOIN).map(str::to_owned).collect());
        Self { wanted, seen: Mutex::new(regions.map(|region| (region, None)).collect()) }
    }

    /// The id of the account of these Engines.
    pub(crate) fn account(mut ids: Vec<String>) -> String {
        ids.sort_unstable();
        ids.join(JOIN)
    }

    /// Checks that the endpoint of a region leads to the right Engine, and remembers it.
    pub(super) fn admit(&self, region: &str, info: &Info) -> Result<()> {
        let id = &info.id;
        if id.is_empty() || id.contains(JOIN) {
            return Err(Error::new(ErrorKind::Internal, format!("{:?} is no id of an Engine", brief(id))));
        }
        let now = Known { id: id.clone(), folder: info.docker_root_dir.clone(), driver: info.driver.clone() };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let refuse = |problem: String| Err(Error::new(ErrorKind::InvalidCredentials, problem));
        if let Some(wanted) = &self.wanted {
            // As many as endpoints, all different: then each of them is the right one.
            if wanted.len() != seen.len() || !wanted.contains(id) {
                return refuse(format!(
                    "the Engine has the id {}, and accountID demands {}: correct host or accountID",
                    brief(id),
                    brief(&wanted.join(JOIN))
                ));
            }
        }
        for (other, known) in seen.iter() {
            let Some(known) = known else { continue };
            if other == region && known.id != *id {
                return refuse(format!("another Engine is there now: its id is {}, and was {}", brief(id), known.id));
            }
            if other == region && *known != now {
                return refuse(format!(
                    "the Engine has other storage now: the driver {} in {}, and had {} in {}; its containers are there",
                    brief(&now.driver),
                    brief(&now.folder),
                    brief(&known.driver),
                    brief(&known.folder)
                ));
            }
            if other != region && known.id == *id {
                return Err(Error::invalid(
                    "host",
                    format!(
                        "the regions {other} and {region} are the same Engine, or two with the same id {}: remove one \
                         region, or give one Engine a new id (delete engine-id in its data folder, or with Docker 20.10 \
                         /etc/docker/key.json, and restart it)",
                        known.id
                    ),
                ));
            }
        }
        if let Some((_, known)) = seen.iter_mut().find(|(name, _)| name == region) {
            *known = Some(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str) -> Info {
        Info { id: id.to_owned(), ..Info::default() }
    }

    fn two(account: Option<&str>) -> Identities {
        Identities::new(account, ["a", "b"].map(str::to_owned).into_iter())
    }

    #[test]
    fn every_region_keeps_its_engine() {
        for account in [None, Some("A+B")] {
            let identities = two(account);
            identities.admit("a", &info("A")).unwrap();
            identities.admit("a", &info("A")).unwrap();
            let error = identities.admit("a", &info("B")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
            let error = identities.admit("b", &info("A")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument("host".to_owned()), "{error}");
            identities.admit("b", &info("B")).unwrap();
        }
    }

    #[test]
    fn an_engine_with_other_storage_is_another_one() {
        let on = |folder: &str, driver: &str| Info {
            docker_root_dir: folder.to_owned(),
            driver: driver.to_owned(),
            ..info("A")
        };
        let identities = two(None);
        identities.admit("a", &on("/data", "overlay2")).unwrap();
        for other in [on("/var/lib/docker", "overlay2"), on("/data", "vfs")] {
            let error = identities.admit("a", &other).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
            assert!(error.message.contains("overlay2 in /data"), "{error}");
        }
        identities.admit("a", &on("/data", "overlay2")).unwrap();
    }

    #[test]
    fn another_account_is_refused() {
        for (account, id) in [("A+B", "C"), ("A", "A"), ("A+B+C", "A"), ("A+", "B")] {
            let error = two(Some(account)).admit("a", &info(id)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{account} {id}");
        }
        for id in ["", "A+B"] {
            assert_eq!(two(None).admit("a", &info(id)).unwrap_err().kind, ErrorKind::Internal);
        }
    }

    #[test]
    fn the_account_does_not_depend_on_the_order_of_endpoints() {
        assert_eq!(Identities::account(vec!["B".to_owned(), "A".to_owned()]), "A+B");
    }
}
