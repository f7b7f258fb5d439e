//! What a `CloudControllerManager` depends on in its cluster (pure).

use crate::{api::placement::Distribution, facts::version::Minor};

/// What the placement and the version depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The version of Kubernetes: the lowest of the control plane.
    pub minor: Minor,
    /// The distribution of Kubernetes; never `Auto`.
    pub distribution: Distribution,
    /// How many nodes have the label of the control plane; none where the control plane is elsewhere.
    pub control_plane_nodes: usize,
}

impl Cluster {
    /// From the nodes of the control plane, each with the version of its kubelet and its operating system; where there are none,
    /// from the version of the API server.
    ///
    /// The lowest version of the nodes decides: it rises once, when the last node of an upgrade is done, whichever API server
    /// has answered. `None` if there is neither a node nor a version.
    pub fn of(nodes: &[(String, String)], api_server: Option<&str>) -> Option<Self> {
        let kubelets: Vec<_> =
            nodes.iter().map(|(kubelet, _)| kubelet.as_str()).filter(|one| !one.is_empty()).collect();
        let versions = if kubelets.is_empty() { api_server.as_slice() } else { &kubelets };
        let minor = versions.iter().filter_map(|version| version.parse().ok()).min()?;
        let of_version = versions.iter().find_map(|version| distribution_of(version));
        let is_talos = nodes.iter().any(|(_, os_image)| os_image.starts_with("Talos"));
        Some(Self {
            minor,
            distribution: of_version.unwrap_or(if is_talos { Distribution::Talos } else { Distribution::Other }),
            control_plane_nodes: nodes.len(),
        })
    }
}

/// The distribution that a version names, such as `v1.35.4+k3s1`.
fn distribution_of(version: &str) -> Option<Distribution> {
    let known = [("+k3s", Distribution::K3s), ("+rke2", Distribution::Rke2), ("+k0s", Distribution::K0s)];
    known.into_iter().find(|(mark, _)| version.contains(mark)).map(|(_, distribution)| distribution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kubelet: &str, os: &str) -> (String, String) {
        (kubelet.to_owned(), os.to_owned())
    }

    fn cluster(nodes: &[(String, String)], api_server: Option<&str>) -> Option<(u32, Distribution, usize)> {
        let cluster = Cluster::of(nodes, api_server)?;
        Some((cluster.minor.0, cluster.distribution, cluster.control_plane_nodes))
    }

    #[test]
    fn the_lowest_version_of_the_control_plane_decides() {
        let nodes = ["v1.36.0", "v1.35.4", "v1.36.0"].map(|version| node(version, "Debian"));
        assert_eq!(cluster(&nodes, Some("v1.37.0")), Some((35, Distribution::Other, 3)));
        assert_eq!(cluster(&[], Some("v1.37.0")), Some((37, Distribution::Other, 0)), "it is elsewhere");
        assert_eq!(cluster(&[], None), None);
        assert_eq!(cluster(&[node("", "")], Some("v1.34.1")), Some((34, Distribution::Other, 1)), "no kubelet yet");
    }

    #[test]
    fn distributions_are_known_by_their_versions_and_systems() {
        for (version, os, expected) in [
            ("v1.35.4+k3s1", "Ubuntu", Distribution::K3s),
            ("v1.35.4+rke2r1", "Ubuntu", Distribution::Rke2),
            ("v1.35.4+k0s.0", "Ubuntu", Distribution::K0s),
            ("v1.35.4", "Talos (v1.12.0)", Distribution::Talos),
            ("v1.35.4-eks-1a2b3c", "Amazon Linux", Distribution::Other),
        ] {
            assert_eq!(cluster(&[node(version, os)], None), Some((35, expected, 1)), "{version}");
        }
        assert_eq!(cluster(&[], Some("v1.35.4+k0s")), Some((35, Distribution::K0s, 0)));
    }
}
