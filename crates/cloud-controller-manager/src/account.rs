//! The account that this cluster used first (IO): an annotation of the lease. A cloud-controller-manager that is given the credentials
//! of another account would find none of its nodes there, so with another account nothing is answered.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use ccm_drivers::{
    contract::{Error, ErrorKind, Result},
    middleware::NOT_FIRST_ACCOUNT,
};
use ccm_kit::{
    cluster::request::{self, Cause, NO_DEADLINE},
    process::leadership::Authority,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{error::brief, reason};

/// The annotation of the lease.
pub(crate) const ANNOTATION: &str = "ccm-operator.dev/account";

/// How often the annotation is written while the lease is renewed at the same time.
const MOST_TRIES: u32 = 5;

/// The id of the account that was used first, once it is known. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccountId(Arc<OnceLock<String>>);

impl AccountId {
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Sets the id. It stays as it is if it is known.
    pub(crate) fn set(&self, id: &str) {
        self.0.get_or_init(|| id.to_owned());
    }

    /// The id for messages.
    pub(crate) fn text(&self) -> String {
        self.get().map_or("not known yet".into(), brief).into_owned()
    }
}

/// The place where the id is kept.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    namespace: String,
    lease: String,
}

impl Place {
    pub(crate) fn of((namespace, lease): (&str, &str)) -> Self {
        Self { namespace: namespace.to_owned(), lease: lease.to_owned() }
    }

    /// What to do where an error is about another account.
    pub(crate) fn advice(&self) -> String {
        let Self { namespace, lease } = self;
        format!(
            "The Lease {namespace}/{lease} remembers it (annotation {ANNOTATION}). Restore its credentials and endpoint or, if the other \
             account is meant: kubectl --namespace {namespace} annotate lease {lease} {ANNOTATION}-, and restart the pods"
        )
    }

    /// Where both accounts and the advice are reported, for the many errors about nodes.
    pub(crate) fn reported(&self) -> String {
        format!("the Event {} of the Lease {}/{} says what to do", reason::ACCOUNT, self.namespace, self.lease)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the annotation {ANNOTATION} of Lease {}/{}", self.namespace, self.lease)
    }
}

/// The account that was used first.
pub(crate) struct FirstAccount {
    api: Api<Lease>,
    place: Place,
    authority: Authority,
}

impl FirstAccount {
    pub(crate) fn new(client: Client, place: Place, authority: Authority) -> Self {
        Self { api: Api::namespaced(client, &place.namespace), place, authority }
    }

    /// The place of the id, for messages.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Reads the id; `None` if no account was used yet.
    pub(crate) async fn read(&self) -> Result<Option<String>> {
        Ok(self.lease().await?.as_ref().and_then(id))
    }

    /// Keeps the id of the first account. Fails with `InvalidCredentials` if there is another one.
    pub(crate) async fn keep(&self, account: &str) -> Result<()> {
        for _ in 0..MOST_TRIES {
            let found = self.lease().await?;
            match found.as_ref().and_then(id) {
                Some(kept) if kept == account => return Ok(()),
                Some(kept) => return Err(Self::another(account, &kept)),
                None => {}
            }
            let params = PostParams::default();
            let is_there = found.is_some();
            let lease = self.with_account(found.unwrap_or_default(), account);
            let write = async {
                if is_there {
                    self.api.replace(&self.place.lease, &params, &lease).await
                } else {
                    self.api.create(&params, &lease).await
                }
            };
            match request::send(self.authority.write_budget(), write).await {
                Ok(_) => return Ok(()),
                // The lease was renewed, or created, in between.
                Err(Cause::Api(kube::Error::Api(status))) if status.code == 409 => {}
                Err(cause) => return Err(self.failed("write", &cause)),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, format!("failed to write {}: it keeps changing", self.place)))
    }

    async fn lease(&self) -> Result<Option<Lease>> {
        let read = request::send(NO_DEADLINE, self.api.get_opt(&self.place.lease)).await;
        read.map_err(|cause| self.failed("read", &cause))
    }

    /// The lease with the id. The holder and the version stay, so the write fails if the lease was renewed in between.
    fn with_account(&self, mut lease: Lease, account: &str) -> Lease {
        let ObjectMeta { name, namespace, annotations, .. } = &mut lease.metadata;
        (*name, *namespace) = (Some(self.place.lease.clone()), Some(self.place.namespace.clone()));
        annotations.get_or_insert_with(BTreeMap::new).insert(ANNOTATION.to_owned(), account.to_owned());
        lease
    }

    fn failed(&self, what: &str, cause: &Cause) -> Error {
        Error::new(ErrorKind::Unavailable, format!("failed to {what} {}: {cause}", self.place))
    }

    fn another(account: &str, kept: &str) -> Error {
        let problem =
            format!("the credentials belong to the account {:?}, and it was {:?}", brief(account), brief(kept));
        Error::new(ErrorKind::InvalidCredentials, problem).context(NOT_FIRST_ACCOUNT)
    }
}

fn id(lease: &Lease) -> Option<String> {
    let id = lease.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    Some(id.clone()).filter(|id| !id.is_empty())
}
