//! The driver before it has an account: its settings, and the options of `create`.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_drivers::{
    contract::{Driver, DriverType, Endpoint, Error, Result},
    settings::{ACCOUNT_ID, Kind, Setting, Values},
};

use crate::{
    client::{Engine, Identities, Version},
    driver::Engines,
    hosts::{self, Host},
    instances::OPTIONS,
    tls::{self, Tls},
};

/// The driver of Docker Engines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Docker;

const HOST: &str = "host";
const CERT_PATH: &str = "certPath";
const TLS_VERIFY: &str = "tlsVerify";
const TLS_SERVER_NAME: &str = "tlsServerName";
const API_VERSION: &str = "apiVersion";
const IMAGE: &str = "image";
const NETWORK: &str = "network";

static SETTINGS: [Setting; 7] = [
    Setting::with_default(
        HOST,
        Kind::List,
        hosts::DEFAULT,
        "The endpoint of the Engine: unix:///PATH or tcp://HOST:PORT. Several endpoints have names and are regions: \
         NAME=URL,NAME=URL. The region of an endpoint without a name is default. tcp:// to another machine needs TLS (certPath), or \
         tlsVerify=false.",
    ),
    Setting::new(
        CERT_PATH,
        Kind::Path,
        "The folder with ca.pem, cert.pem and key.pem for TLS. Where it is set, all tcp:// endpoints have TLS. Without cert.pem \
         and key.pem only the Engine is authenticated.",
    ),
    Setting::new(
        TLS_VERIFY,
        Kind::Boolean,
        "Whether tcp:// endpoints need TLS; true demands certPath. TLS without verification is not supported, so false together \
         with certPath is refused; false alone allows tcp:// to other machines without TLS. Docker's own client takes every value \
         for true.",
    ),
    Setting::new(
        TLS_SERVER_NAME,
        Kind::Text,
        "The name in the certificates of the Engines, if it is not the host of the endpoint.",
    ),
    Setting::new(
        API_VERSION,
        Kind::Text,
        "The version of the Engine's API, such as 1.41. Without it the newest version is used that both sides speak.",
    ),
    Setting::new(IMAGE, Kind::Text, "The image of instances that are created without one."),
    Setting::new(
        NETWORK,
        Kind::Text,
        "The network of instances that are created without one; the Engine's default network if it is empty.",
    ),
];

#[async_trait]
impl DriverType for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn summary(&self) -> &'static str {
        "Containers of Docker Engines"
    }

    fn settings(&self) -> &[Setting] {
        &SETTINGS
    }

    fn options(&self) -> &[Setting] {
        &OPTIONS
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        let hosts = hosts(values)?;
        let tls = Tls::load(values)?;
        let pinned = given(values, API_VERSION).map(Version::pinned).transpose()?;
        let regions = hosts.iter().map(|host| host.region.clone());
        let identities = Arc::new(Identities::new(values.text(ACCOUNT_ID), regions));
        let engine = |host| Engine::new(host, tls.clone(), pinned, identities.clone());
        let engines = hosts.into_iter().map(engine).collect();
        Ok(Box::new(Engines::new(engines, given(values, IMAGE), given(values, NETWORK))))
    }

    async fn endpoint(&self, values: &Values) -> Result<Option<Endpoint>> {
        let hosts = hosts(values)?;
        let only = if let [host] = hosts.as_slice() { Some(host.endpoint.clone()) } else { None };
        Ok(only)
    }

    async fn through(&self, values: &Values, endpoint: &Endpoint) -> Result<Values> {
        let hosts = hosts(values)?;
        let [host] = hosts.as_slice() else { return Ok(values.clone()) };
        let values = values.clone().with(HOST, &host.moved(endpoint));
        Ok(match &host.endpoint {
            Endpoint::Tcp(name, _)
                if given(&values, CERT_PATH).is_some() && given(&values, TLS_SERVER_NAME).is_none() =>
            {
                values.with(TLS_SERVER_NAME, name)
            }
            Endpoint::Tcp(..) => values,
            // A socket of a path has no TLS, and its stand-in has none either.
            Endpoint::Unix(_) => values.with(CERT_PATH, "").with(TLS_VERIFY, ""),
        })
    }
}

fn hosts(values: &Values) -> Result<Vec<Host>> {
    let has_tls = tls::is_wanted(values)?;
    let hosts = hosts::parse(&values.list(HOST), has_tls)?;
    // Docker's own client takes them. Here the network between is only trusted if somebody says so.
    let is_open = |host: &&Host| !has_tls && given(values, TLS_VERIFY).is_none() && !host.is_on_this_machine();
    hosts.iter().find(is_open).map_or(Ok(()), |host| {
        Err(Error::invalid(
            HOST,
            format!(
                "host {host}: without TLS, whoever is in the network between can read and change everything; give certPath, or \
                 set tlsVerify to false if the network is safe"
            ),
        ))
    })?;
    Ok(hosts)
}

/// The text of a setting that is not empty.
fn given<'a>(values: &'a Values, name: &str) -> Option<&'a str> {
    values.text(name).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
