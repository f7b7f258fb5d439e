//! The addresses of a node (pure): those of the cloud, in the order that its kubelet asks for.

use std::net::IpAddr;

use ccm_base::{error::brief, object::items};
use ccm_core::nodes::node::PROVIDED_IP;
use ccm_drivers::contract::{Address, AddressKind};
use serde_json::{Value, json};

/// Why the addresses of a node cannot be set. The messages are those of k8s.io/cloud-provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodeIpError {
    /// The annotation cannot be read.
    #[error("failed to parse node IP {:?}: {problem}", brief(annotation))]
    Unreadable {
        /// The annotation.
        annotation: String,
        /// Why.
        problem: &'static str,
    },
    /// The cloud does not have the address.
    #[error("failed to get node address from cloud provider that matches ip: {ip}")]
    NotOfCloud {
        /// The address that the kubelet asks for.
        ip: IpAddr,
        /// The addresses that the cloud has.
        cloud: Vec<String>,
    },
}

/// Returns the addresses that a node has to have, each once, because the API server refuses duplicates. Returns `None` if the cloud has
/// none, as of an instance that is stopped.
pub(crate) fn wanted(node: &Value, cloud: &[Address]) -> Result<Option<Vec<Address>>, NodeIpError> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let mut all = cloud.to_vec();
    if !cloud.iter().any(|address| address.kind == AddressKind::Hostname) {
        let own = items(&node["status"]["addresses"]).iter().filter(|address| address["type"] == "Hostname");
        let names = own.filter_map(|address| address["address"].as_str());
        all.extend(names.map(|name| Address { kind: AddressKind::Hostname, address: name.to_owned() }));
    }
    let mut wanted: Vec<Address> = Vec::new();
    for address in selected(node, &all)? {
        if !wanted.contains(&address) {
            wanted.push(address);
        }
    }
    Ok(Some(wanted))
}

/// Returns the patch of the status that gives a node its addresses, if it does not have them in this order.
pub(crate) fn patch(node: &Value, cloud: &[Address]) -> Result<Option<Value>, NodeIpError> {
    let Some(wanted) = wanted(node, cloud)? else { return Ok(None) };
    let wanted = json!(wanted);
    let has = node["status"]["addresses"] == wanted;
    Ok((!has).then(|| json!({"status": {"addresses": wanted}})))
}

/// Puts the addresses that the kubelet asks for first, as the only ones of their types.
pub(crate) fn selected(node: &Value, all: &[Address]) -> Result<Vec<Address>, NodeIpError> {
    let Some(annotation) = node["metadata"]["annotations"][PROVIDED_IP].as_str() else { return Ok(all.to_vec()) };
    let mut chosen: Vec<Address> = Vec::new();
    for ip in provided(annotation)? {
        let before = chosen.len();
        chosen.extend(all.iter().filter(|address| parsed(&address.address) == Some(ip)).cloned());
        if chosen.len() == before {
            let cloud = all.iter().map(|address| address.address.clone()).collect();
            return Err(NodeIpError::NotOfCloud { ip, cloud });
        }
    }
    let is_other = |address: &&Address| !chosen.iter().any(|one| one.kind == address.kind);
    let others: Vec<_> = all.iter().filter(is_other).cloned().collect();
    chosen.extend(others);
    Ok(chosen)
}

/// Reads the annotation: one address, or one of IPv4 and one of IPv6.
fn provided(annotation: &str) -> Result<Vec<IpAddr>, NodeIpError> {
    let unreadable = |problem| NodeIpError::Unreadable { annotation: annotation.to_owned(), problem };
    let all: Option<Vec<IpAddr>> = annotation.split(',').map(parsed).collect();
    let all = all.ok_or_else(|| unreadable("could not parse it as addresses separated by commas"))?;
    match all.as_slice() {
        [_] => Ok(all),
        [one, other] if one.is_ipv6() != other.is_ipv6() => {
            if all.iter().any(IpAddr::is_unspecified) {
                return Err(unreadable("dual-stack node IP cannot include '0.0.0.0' or '::'"));
            }
            Ok(all)
        }
        _ => Err(unreadable("must contain either a single IP or a dual-stack pair of IPs")),
    }
}

/// Parses an address as Kubernetes does: the numbers of an IPv4 address may have zeros in front, and are decimal.
fn parsed(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    }
    let without_zeros = |number: &str| {
        let rest = number.trim_start_matches('0');
        if rest.is_empty() && !number.is_empty() { "0".to_owned() } else { rest.to_owned() }
    };
    text.split('.').map(without_zeros).collect::<Vec<_>>().join(".").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses, as `InternalIP 10.0.0.1`.
    fn addresses(texts: &[&str]) -> Vec<Address> {
        let address = |text: &&str| {
            let (kind, address) = text.split_once(' ').unwrap();
            serde_json::from_value(json!({"type": kind, "address": address})).unwrap()
        };
        texts.iter().map(address).collect()
    }

    fn texts(addresses: &[Address]) -> Vec<String> {
        addresses.iter().map(|address| format!("{:?} {}", address.kind, address.address)).collect()
    }

    fn node(annotation: Option<&str>, has: &[&str]) -> Value {
        let mut node = json!({"metadata": {"annotations": {}}, "status": {"addresses": addresses(has)}});
        if let Some(annotation) = annotation {
            node["metadata"]["annotations"][PROVIDED_IP] = annotation.into();
        }
        node
    }

    const CLOUD: [&str; 6] = [
        "InternalIP 10.0.0.1",
        "InternalIP 10.0.0.2",
        "InternalIP fd00::1",
        "ExternalIP 1.1.1.1",
        "ExternalIP 1.1.1.2",
        "InternalDNS a.internal",
    ];

    #[test]
    fn what_the_kubelet_asks_for_comes_first_and_alone_of_its_type() {
        for (annotation, wanted) in [
            (None, &CLOUD[..]),
            (
                Some("10.0.0.2"),
                &["InternalIP 10.0.0.2", "ExternalIP 1.1.1.1", "ExternalIP 1.1.1.2", "InternalDNS a.internal"],
            ),
            (
                Some("010.000.0.2"),
                &["InternalIP 10.0.0.2", "ExternalIP 1.1.1.1", "ExternalIP 1.1.1.2", "InternalDNS a.internal"],
            ),
            (
                Some("fd00::1,10.0.0.1"),
                &[
                    "InternalIP fd00::1",
                    "InternalIP 10.0.0.1",
                    "ExternalIP 1.1.1.1",
                    "ExternalIP 1.1.1.2",
                    "InternalDNS a.internal",
                ],
            ),
            (
                Some("1.1.1.2"),
                &[
                    "ExternalIP 1.1.1.2",
                    "InternalIP 10.0.0.1",
                    "InternalIP 10.0.0.2",
                    "InternalIP fd00::1",
                    "InternalDNS a.internal",
                ],
            ),
            (Some("1.1.1.1,fd00:0::1"), &["ExternalIP 1.1.1.1", "InternalIP fd00::1", "InternalDNS a.internal"]),
            (
                Some("::ffff:1.1.1.1"),
                &[
                    "ExternalIP 1.1.1.1",
                    "InternalIP 10.0.0.1",
                    "InternalIP 10.0.0.2",
                    "InternalIP fd00::1",
                    "InternalDNS a.internal",
                ],
            ),
        ] {
            let selected = selected(&node(annotation, &[]), &addresses(&CLOUD)).unwrap();
            assert_eq!(texts(&selected), wanted, "{annotation:?}");
        }
    }

    #[test]
    fn an_address_of_two_types_stays_in_both() {
        let cloud =
            addresses(&["InternalIP 10.0.0.1", "InternalIP 10.0.0.9", "ExternalIP 10.0.0.1", "ExternalIP 1.1.1.1"]);
        let selected = selected(&node(Some("10.0.0.1"), &[]), &cloud).unwrap();
        assert_eq!(texts(&selected), ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.1"]);
    }

    #[test]
    fn an_address_that_the_cloud_does_not_have_is_an_error() {
        for (annotation, error) in [
            ("10.0.0.3", "failed to get node address from cloud provider that matches ip: 10.0.0.3"),
            ("10.0.0.1,fd00::2", "failed to get node address from cloud provider that matches ip: fd00::2"),
            ("0.0.0.0", "failed to get node address from cloud provider that matches ip: 0.0.0.0"),
            ("", "failed to parse node IP \"\": could not parse it as addresses separated by commas"),
            (
                "10.0.0.1, fd00::1",
                "failed to parse node IP \"10.0.0.1, fd00::1\": could not parse it as addresses separated by commas",
            ),
            ("a", "failed to parse node IP \"a\": could not parse it as addresses separated by commas"),
            ("1..1.1", "failed to parse node IP \"1..1.1\": could not parse it as addresses separated by commas"),
            (
                "10.0.0.1,10.0.0.2",
                "failed to parse node IP \"10.0.0.1,10.0.0.2\": must contain either a single IP or a dual-stack pair of IPs",
            ),
            (
                "fd00::1,fd00::2",
                "failed to parse node IP \"fd00::1,fd00::2\": must contain either a single IP or a dual-stack pair of IPs",
            ),
            (
                "10.0.0.1,fd00::1,1.1.1.1",
                "failed to parse node IP \"10.0.0.1,fd00::1,1.1.1.1\": must contain either a single IP or a dual-stack pair of IPs",
            ),
            (
                "10.0.0.1,::",
                "failed to parse node IP \"10.0.0.1,::\": dual-stack node IP cannot include '0.0.0.0' or '::'",
            ),
        ] {
            let failed = selected(&node(Some(annotation), &[]), &addresses(&CLOUD)).unwrap_err();
            assert_eq!(failed.to_string(), error);
        }
    }

    #[test]
    fn a_node_keeps_its_own_name_unless_the_cloud_has_one() {
        for (has, cloud, result) in [
            (
                &["Hostname a", "InternalIP 9.9.9.9"][..],
                &["InternalIP 10.0.0.1"][..],
                Some(&["InternalIP 10.0.0.1", "Hostname a"][..]),
            ),
            (&["Hostname a"], &["Hostname b", "InternalIP 10.0.0.1"], Some(&["Hostname b", "InternalIP 10.0.0.1"])),
            (&["InternalDNS a"], &["InternalIP 10.0.0.1"], Some(&["InternalIP 10.0.0.1"])),
            (&["Hostname a"], &[], None),
        ] {
            let wanted = wanted(&node(None, has), &addresses(cloud)).unwrap();
            assert_eq!(
                wanted.as_deref().map(texts),
                result.map(|all| all.iter().map(|text| (*text).to_owned()).collect()),
                "{has:?} {cloud:?}"
            );
        }
    }

    #[test]
    fn the_api_server_gets_each_address_once() {
        let twice = ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.1", "InternalIP 10.0.0.1", "Hostname a", "Hostname a"];
        for (annotation, once) in [
            (None, &["InternalIP 10.0.0.1", "ExternalIP 10.0.0.1", "Hostname a"]),
            (Some("10.0.0.1"), &["InternalIP 10.0.0.1", "ExternalIP 10.0.0.1", "Hostname a"]),
        ] {
            let wanted = wanted(&node(annotation, &[]), &addresses(&twice)).unwrap().unwrap();
            assert_eq!(texts(&wanted), once, "{annotation:?}");
        }
    }

    #[test]
    fn the_whole_list_is_compared_with_its_order() {
        let is_change = |has: &[&str], cloud: &[&str]| patch(&node(None, has), &addresses(cloud)).unwrap().is_some();
        let dual = ["InternalIP 10.0.0.1", "InternalIP fd00::1", "Hostname a"];
        assert!(!is_change(&dual, &dual[..2]), "several of one type are no change");
        assert!(is_change(&dual, &[dual[1], dual[0]]));
        assert!(is_change(&dual, &dual[..1]));
        assert!(is_change(&["Hostname a"], &dual[..2]));
        assert!(!is_change(&["InternalIP 10.0.0.1"], &[]), "a cloud without addresses changes nothing");
        let made = patch(&node(None, &["Hostname a"]), &addresses(&dual[..1])).unwrap().unwrap();
        assert_eq!(
            made,
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "a"}]}})
        );
    }
}
