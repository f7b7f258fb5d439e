//! The options of `create` that only this driver has (pure).

use std::net::IpAddr;

use ccm_drivers::{
    contract::{Error, Result},
    settings::{Kind, Setting, Values},
};
use serde_json::{Map, Value, json};

use super::seed;
use crate::brief;

const PRIVILEGED: &str = "privileged";
const TMPFS: &str = "tmpfs";
const VOLUMES: &str = "volumes";
const MOUNTS: &str = "mounts";
const PORTS: &str = "ports";
const CGROUP_NAMESPACE: &str = "cgroupNamespace";
const COMMAND: &str = "command";

/// The declarations. None has a default, because defaults would be in the digest of every instance.
pub(crate) static OPTIONS: [Setting; 7] = [
    Setting::new(PRIVILEGED, Kind::Boolean, "Whether the container has all permissions, which a kubelet needs."),
    Setting::new(TMPFS, Kind::List, "Folders of the container that are in memory, such as /run,/tmp."),
    Setting::new(
        VOLUMES,
        Kind::List,
        "Folders of the container on a volume of their own, which is deleted with it, such as /var.",
    ),
    Setting::new(
        MOUNTS,
        Kind::List,
        "Files and folders of the Engine's host in the container, such as /lib/modules:/lib/modules:ro.",
    ),
    Setting::new(
        PORTS,
        Kind::List,
        "Ports of the container that the Engine's host opens: [ADDRESS:][PORT:]PORT[/tcp|udp|sctp], such as \
         127.0.0.1:6443:6443. Without a port of the host the Engine chooses one.",
    ),
    Setting::new(CGROUP_NAMESPACE, Kind::Text, "The namespace of control groups: private or host."),
    Setting::new(
        COMMAND,
        Kind::List,
        "The command and its arguments instead of those of the image, such as sleep,infinity.",
    ),
];

/// What the options add to the request: to the configuration of the container, and to that of its host.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) config: Map<String, Value>,
    pub(super) host: Map<String, Value>,
    pub(super) has_cgroup_namespace: bool,
    pub(super) has_ports: bool,
}

impl Options {
    pub(super) fn parse(values: &Values, has_user_data: bool) -> Result<Self> {
        let mut all = Self::default();
        if values.is(PRIVILEGED) {
            all.host.insert("Privileged".to_owned(), json!(true));
        }
        let tmpfs = paths(values, TMPFS)?;
        if let Some(path) = tmpfs.iter().find(|path| has_user_data && seed::overlaps(path)) {
            let problem =
                format!("tmpfs {path}: it would hide the user data in {}; use volumes for this folder", seed::FOLDER);
            return Err(Error::invalid(TMPFS, problem));
        }
        let tmpfs: Map<_, _> = tmpfs.into_iter().map(|path| (path.to_owned(), json!(""))).collect();
        all.host.insert("Tmpfs".to_owned(), tmpfs.into());
        let volumes = paths(values, VOLUMES)?;
        // A volume above the folder has the user data on it.
        if let Some(path) = volumes.iter().find(|path| has_user_data && seed::overlaps(path) && !seed::is_below(path)) {
            let problem = format!("volumes {path}: it would hide the user data in {}; leave it out", seed::FOLDER);
            return Err(Error::invalid(VOLUMES, problem));
        }
        let volumes: Map<_, _> = volumes.into_iter().map(|path| (path.to_owned(), json!({}))).collect();
        all.config.insert("Volumes".to_owned(), volumes.into());
        let mount = |text| mount(text, has_user_data);
        let mounts = values.list(MOUNTS).into_iter().map(mount).collect::<Result<Vec<_>>>()?;
        all.host.insert("Mounts".to_owned(), mounts.into());
        let (mut exposed, mut bound) = (Map::new(), Map::new());
        for text in values.list(PORTS) {
            let (port, binding) =
                port(text).ok_or_else(|| invalid(PORTS, text, "write [ADDRESS:][PORT:]PORT[/tcp|udp|sctp]"))?;
            exposed.insert(port.clone(), json!({}));
            if let Value::Array(bindings) = bound.entry(port).or_insert_with(|| json!([])) {
                bindings.push(binding);
            }
        }
        all.has_ports = !exposed.is_empty();
        all.config.insert("ExposedPorts".to_owned(), exposed.into());
        all.host.insert("PortBindings".to_owned(), bound.into());
        match values.text(CGROUP_NAMESPACE).unwrap_or_default() {
            "" => {}
            mode @ ("private" | "host") => {
                all.has_cgroup_namespace = true;
                all.host.insert("CgroupnsMode".to_owned(), json!(mode));
            }
            other => return Err(invalid(CGROUP_NAMESPACE, other, "write private or host")),
        }
        let command = values.list(COMMAND);
        if !command.is_empty() {
            all.config.insert("Cmd".to_owned(), json!(command));
        }
        Ok(all)
    }
}

fn invalid(option: &str, text: &str, advice: &str) -> Error {
    Error::invalid(option, format!("{option} {:?}: {advice}", brief(text)))
}

/// Whether a path is that of a file or a folder in one form only.
fn is_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or_default();
    !parts.is_empty() && parts.split('/').all(|part| !["", ".", ".."].contains(&part)) && !path.contains(':')
}

/// Whether a path is in the kernel's view of processes, where an Engine mounts nothing.
fn is_in_proc(path: &str) -> bool {
    path.strip_prefix("/proc").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn paths<'a>(values: &'a Values, option: &str) -> Result<Vec<&'a str>> {
    let check = |path| {
        if is_in_proc(path) {
            Err(invalid(option, path, "nothing can be mounted in /proc; leave it out"))
        } else if is_path(path) {
            Ok(path)
        } else {
            Err(invalid(option, path, "write an absolute path of the container, such as /run"))
        }
    };
    values.list(option).into_iter().map(check).collect()
}

fn mount(text: &str, has_user_data: bool) -> Result<Value> {
    let mut parts = text.split(':');
    let mode = |mode| match mode {
        None | Some("rw") => Some(false),
        Some("ro") => Some(true),
        Some(_) => None,
    };
    let (source, target, is_read_only) = (parts.next(), parts.next(), mode(parts.next()));
    match (source, target, is_read_only, parts.next()) {
        (Some(_), Some(target), Some(_), None) if has_user_data && seed::overlaps(target) => Err(invalid(
            MOUNTS,
            text,
            &format!("the user data in {} would be on the Engine's host; mount it elsewhere", seed::FOLDER),
        )),
        (Some(source), Some(target), Some(is_read_only), None) if is_path(source) && is_path(target) => {
            Ok(json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": is_read_only}))
        }
        _ => Err(invalid(MOUNTS, text, "write /SOURCE:/TARGET or /SOURCE:/TARGET:ro")),
    }
}

/// The port of the container with its protocol, and where the host opens it.
fn port(text: &str) -> Option<(String, Value)> {
    let (rest, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    if !["tcp", "udp", "sctp"].contains(&protocol) {
        return None;
    }
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    let (rest, inner) = rest.rsplit_once(':').map_or((None, rest), |(rest, inner)| (Some(rest), inner));
    let inner = number(inner)?;
    let (address, outer) = match rest {
        None => (None, None),
        Some(rest) => match rest.rsplit_once(':') {
            None => (None, Some(rest)),
            Some((address, outer)) => (Some(address), Some(outer)),
        },
    };
    let address = match address {
        None => String::new(),
        Some(address) => {
            let address = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
            address.parse::<IpAddr>().ok()?.to_string()
        }
    };
    let outer = match outer {
        None | Some("") => String::new(),
        Some(outer) => number(outer)?.to_string(),
    };
    Some((format!("{inner}/{protocol}"), json!({"HostIp": address, "HostPort": outer})))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ccm_drivers::contract::ErrorKind;

    use super::*;

    fn parse(given: &[(&str, &str)]) -> Result<(Value, Value)> {
        parse_with(given, true)
    }

    fn parse_with(given: &[(&str, &str)], has_user_data: bool) -> Result<(Value, Value)> {
        let given: BTreeMap<_, _> = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let values = Values::options(&OPTIONS, &given).unwrap();
        Options::parse(&values, has_user_data).map(|options| (options.config.into(), options.host.into()))
    }

    #[test]
    fn every_option_has_an_effect() {
        let (config, host) = parse(&[
            ("privileged", "true"),
            ("tmpfs", "/run,/tmp"),
            ("volumes", "/var, /data"),
            ("mounts", "/lib/modules:/lib/modules:ro,/a:/b"),
            ("ports", "127.0.0.1:6443:6443,80:8080/udp,81:8080/udp,443,[::1]::9"),
            ("cgroupNamespace", "private"),
            ("command", "sleep,infinity"),
        ])
        .unwrap();
        assert_eq!(
            config,
            json!({
                "Volumes": {"/var": {}, "/data": {}},
                "ExposedPorts": {"6443/tcp": {}, "8080/udp": {}, "443/tcp": {}, "9/tcp": {}},
                "Cmd": ["sleep", "infinity"],
            })
        );
        assert_eq!(
            host,
            json!({
                "Privileged": true,
                "Tmpfs": {"/run": "", "/tmp": ""},
                "Mounts": [
                    {"Type": "bind", "Source": "/lib/modules", "Target": "/lib/modules", "ReadOnly": true},
                    {"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": false},
                ],
                "PortBindings": {
                    "6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "6443"}],
                    "8080/udp": [{"HostIp": "", "HostPort": "80"}, {"HostIp": "", "HostPort": "81"}],
                    "443/tcp": [{"HostIp": "", "HostPort": ""}],
                    "9/tcp": [{"HostIp": "::1", "HostPort": ""}],
                },
                "CgroupnsMode": "private",
            })
        );
        let (config, host) = parse(&[]).unwrap();
        assert_eq!(config, json!({"Volumes": {}, "ExposedPorts": {}}));
        assert_eq!(host, json!({"Tmpfs": {}, "Mounts": [], "PortBindings": {}}));
    }

    #[test]
    fn a_bad_option_is_named() {
        let cases = [
            ("tmpfs", "run"),
            ("tmpfs", "/"),
            ("tmpfs", "/run/../var"),
            ("tmpfs", "/run:size=1m"),
            ("tmpfs", "/var"),
            ("tmpfs", "/var/lib/cloud/seed/nocloud"),
            ("tmpfs", "/var/lib/cloud/seed/nocloud/user-data"),
            ("tmpfs", "/proc/sys"),
            ("volumes", "data:/var"),
            ("volumes", "/proc"),
            ("volumes", "/var/lib/cloud/seed/nocloud/user-data"),
            ("mounts", "/a"),
            ("mounts", "a:/b"),
            ("mounts", "/a:/b:rx"),
            ("mounts", "/a:/b:ro:z"),
            ("mounts", "/data:/var"),
            ("mounts", "/data:/var/lib/cloud/seed/nocloud:ro"),
            ("mounts", "/data:/var/lib/cloud/seed/nocloud/user-data"),
            ("ports", "0"),
            ("ports", "65536"),
            ("ports", "80/http"),
            ("ports", "a:80:80"),
            ("ports", "1.2.3.4:80:80:80"),
            ("cgroupNamespace", "mine"),
        ];
        for (option, value) in cases {
            let error = parse(&[(option, value)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument(option.to_owned()), "{value}");
            assert!(error.message.starts_with(option), "{error}");
        }
        // Without user data nothing is hidden, and nothing is put on the host.
        for (option, value) in [("tmpfs", "/var"), ("mounts", "/data:/var")] {
            parse_with(&[(option, value)], false).unwrap();
        }
    }
}
