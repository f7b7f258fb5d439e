//! The endpoints of Docker Engines in the setting `host`; each is a region (pure).

use std::{fmt, net::IpAddr, path::PathBuf};

use ccm_drivers::contract::{Endpoint, Error, Result};

use crate::brief;

/// The endpoint of an installation of Docker, as its own client has it.
pub(crate) const DEFAULT: &str = "unix:///var/run/docker.sock";

/// The region of an endpoint without a name.
const DEFAULT_REGION: &str = "default";

/// What is added to the name of a region for its only zone.
const ZONE: &str = "-a";

/// The maximum length of the value of a label of a Node, which names of zones become.
const MAX_NAME: usize = 63;

/// The schemes of Docker's own client that have another transport, and what to do instead.
const REFUSED: [(&str, &str); 5] = [
    (
        "ssh",
        "forward the socket with `ssh -L /tmp/docker.sock:/var/run/docker.sock HOST`, and use unix:///tmp/docker.sock",
    ),
    ("npipe", "an Engine on Windows is not supported: let it listen on tcp:// with TLS"),
    ("fd", "it is for a dockerd that systemd starts: use the socket that systemd listens on, with unix://"),
    ("http", "write tcp:// instead"),
    ("https", "write tcp:// instead, and give certPath for TLS"),
];

/// An endpoint of an Engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// The id of the region.
    pub(crate) region: String,
    /// The place to connect to.
    pub(crate) endpoint: Endpoint,
}

impl Host {
    /// The id of the region's zone.
    pub(crate) fn zone(&self) -> String {
        format!("{}{ZONE}", self.region)
    }

    /// Whether no network is between: the endpoint is a socket or of the loopback interface.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        match &self.endpoint {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(host, _) => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// The same region at another place, as the setting has it.
    pub(crate) fn moved(&self, endpoint: &Endpoint) -> String {
        let moved = Self { region: self.region.clone(), endpoint: endpoint.clone() };
        format!("{}={moved}", self.region)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Unix(path) => write!(f, "unix://{}", path.display()),
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

/// Parses the endpoints of the setting. A `tcp://` endpoint without a port has that of Docker, which depends on TLS.
pub(crate) fn parse(endpoints: &[&str], has_tls: bool) -> Result<Vec<Host>> {
    let endpoints = if endpoints.is_empty() { &[DEFAULT][..] } else { endpoints };
    let hosts = endpoints.iter().map(|one| host(one, endpoints.len() == 1, has_tls)).collect::<Result<Vec<_>>>()?;
    for (index, one) in hosts.iter().enumerate() {
        let mut others = hosts.iter().take(index);
        if others.clone().any(|other| other.region == one.region) {
            return Err(invalid(&one.region, "two endpoints have this name; each region needs a name of its own"));
        }
        if others.clone().chain(hosts.iter().skip(index + 1)).any(|other| other.zone() == one.region) {
            return Err(invalid(&one.region, "this name is the zone of another region; choose another name"));
        }
        if others.any(|other| other.endpoint == one.endpoint) {
            return Err(invalid(&one.to_string(), "the endpoint is listed twice; an Engine is one region"));
        }
    }
    Ok(hosts)
}

fn host(text: &str, is_only: bool, has_tls: bool) -> Result<Host> {
    let (region, url) = match text.split_once('=') {
        Some((name, url)) if !name.contains("://") => (name.trim(), url.trim()),
        _ if is_only => (DEFAULT_REGION, text),
        _ => return Err(invalid(text, "several endpoints need names: write NAME=URL,NAME=URL")),
    };
    let may_stand = |at: u8| at.is_ascii_lowercase() || at.is_ascii_digit() || at == b'-';
    let is_name = !region.is_empty()
        && region.len() + ZONE.len() <= MAX_NAME
        && region.bytes().all(may_stand)
        && !region.starts_with('-')
        && !region.ends_with('-');
    if !is_name {
        let most = MAX_NAME - ZONE.len();
        return Err(invalid(
            region,
            &format!("the name of a region has at most {most} lowercase letters, digits and hyphens between them"),
        ));
    }
    Ok(Host { region: region.to_owned(), endpoint: endpoint(url, has_tls)? })
}

fn endpoint(url: &str, has_tls: bool) -> Result<Endpoint> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(invalid(url, "write unix:///PATH or tcp://HOST:PORT"));
    };
    if let Some((_, advice)) = REFUSED.iter().find(|(refused, _)| *refused == scheme) {
        return Err(invalid(url, &format!("{scheme}:// is not supported; {advice}")));
    }
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Endpoint::Unix(PathBuf::from(rest))),
        "unix" => Err(invalid(url, "the path of the socket has to be absolute, such as unix:///var/run/docker.sock")),
        "tcp" => tcp(rest.strip_suffix('/').unwrap_or(rest), has_tls)
            .ok_or_else(|| invalid(url, "write tcp://HOST:PORT, without a path; an IPv6 address stands in brackets")),
        _ => Err(invalid(url, "the scheme is unknown; write unix:///PATH or tcp://HOST:PORT")),
    }
}

fn tcp(rest: &str, has_tls: bool) -> Option<Endpoint> {
    let (host, port) = if let Some(rest) = rest.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        (address, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
    } else {
        rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)))
    };
    let is_host = |at: u8| at.is_ascii_alphanumeric() || b"-._:".contains(&at);
    if host.is_empty() || !host.bytes().all(is_host) {
        return None;
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None if has_tls => 2376,
        None => 2375,
    };
    Some(Endpoint::Tcp(host.to_owned(), port))
}

fn invalid(what: &str, problem: &str) -> Error {
    Error::invalid("host", format!("host {:?}: {problem}", brief(&without_credentials(what))))
}

/// A text that may be a URL with a user and a password, without both.
fn without_credentials(text: &str) -> String {
    let Some((credentials, rest)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = credentials.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}...@{rest}")
}

#[cfg(test)]
mod tests {
    use ccm_drivers::contract::ErrorKind;

    use super::*;

    fn shown(endpoints: &[&str], has_tls: bool) -> Vec<String> {
        parse(endpoints, has_tls).unwrap().iter().map(|host| format!("{} {host}", host.region)).collect()
    }

    #[test]
    fn endpoints_are_regions() {
        assert_eq!(shown(&[], false), ["default unix:///var/run/docker.sock"]);
        assert_eq!(shown(&["tcp://a.example"], false), ["default tcp://a.example:2375"]);
        assert_eq!(shown(&["tcp://a.example"], true), ["default tcp://a.example:2376"]);
        assert_eq!(shown(&["b=tcp://[::1]:1/"], true), ["b tcp://[::1]:1"]);
        assert_eq!(
            shown(&["a=unix:///a=b.sock", "b-1=tcp://127.0.0.1:2375"], false),
            ["a unix:///a=b.sock", "b-1 tcp://127.0.0.1:2375"]
        );
        // Without a name an equals sign belongs to the path.
        assert_eq!(shown(&["unix:///a=b.sock"], false), ["default unix:///a=b.sock"]);
    }

    #[test]
    fn a_bad_endpoint_says_what_to_do() {
        let cases: [(&[&str], &str); 19] = [
            (&["ssh://root@a"], "forward the socket"),
            (&["npipe:////./pipe/docker_engine"], "Windows"),
            (&["fd://"], "systemd"),
            (&["https://a"], "certPath"),
            (&["http://a"], "write tcp://"),
            (&["ftp://a"], "the scheme is unknown"),
            (&["/var/run/docker.sock"], "write unix:///PATH"),
            (&["unix://docker.sock"], "absolute"),
            (&["tcp://"], "write tcp://HOST:PORT"),
            (&["tcp://a:0"], "write tcp://HOST:PORT"),
            (&["tcp://a:1/path"], "write tcp://HOST:PORT"),
            (&["tcp://::1:2375"], "brackets"),
            (&["tcp://[a]:1"], "brackets"),
            (&["tcp://user@a:1"], "write tcp://HOST:PORT"),
            (&["unix:///a", "unix:///b"], "need names"),
            (&["a=unix:///a", "a=unix:///b"], "two endpoints have this name"),
            (&["a-a=unix:///a", "a=unix:///b"], "the zone of another region"),
            (&["a=unix:///a", "b=unix:///a"], "listed twice"),
            (&["A=unix:///a"], "lowercase"),
        ];
        for (endpoints, expected) in cases {
            let error = parse(endpoints, false).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument("host".to_owned()));
            assert!(error.message.contains(expected), "{endpoints:?}: {error}");
        }
        for text in [
            "tcp://user:secret@a:1",
            "a=tcp://user:se@secret@a:1",
            "user:secret@a",
            "ssh://u:secret@a",
            "x://u:secret/@a",
        ] {
            let error = parse(&[text], false).unwrap_err();
            assert!(!error.message.contains("secret") && error.message.contains("@a"), "{error}");
        }
    }
}
