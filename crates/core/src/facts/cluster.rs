//! The facts of a cluster that a `CloudControllerManager` depends on (pure).

use crate::{
    api::placement::Distribution,
    facts::{distribution::of_version, version::Minor},
};

/// The facts of a cluster that the placement and the version depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The version of Kubernetes: the lowest of the control plane.
    pub minor: Minor,
    /// The distribution of Kubernetes; never `Auto`.
    pub distribution: Distribution,
    /// The number of nodes with the label of the control plane; zero if the control plane is elsewhere.
    pub control_plane_nodes: usize,
}

impl Cluster {
    /// Reads the facts from the control-plane nodes, each with the version of its kubelet and its detected distribution. If no kubelet shows
    /// a version that can be read, the version is that of the API server.
    ///
    /// The lowest version of the nodes counts: it rises once, after the upgrade of the last node, whichever API server has answered.
    /// Returns `None` if no version can be read.
    pub fn of(nodes: &[(String, Option<Distribution>)], api_server: Option<&str>) -> Option<Self> {
        let kubelets = nodes.iter().map(|(kubelet, _)| kubelet.as_str());
        let lowest = kubelets.clone().filter_map(|version| version.parse::<Minor>().ok()).min();
        let minor = lowest.or_else(|| api_server?.parse().ok())?;
        let api_server = api_server.filter(|_| lowest.is_none());
        let of_a_node = nodes.iter().find_map(|(_, shown)| *shown);
        let shown = of_a_node.or_else(|| kubelets.chain(api_server).find_map(of_version));
        Some(Self { minor, distribution: shown.unwrap_or(Distribution::Other), control_plane_nodes: nodes.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kubelet: &str) -> (String, Option<Distribution>) {
        (kubelet.to_owned(), None)
    }

    fn cluster(
        nodes: &[(String, Option<Distribution>)],
        api_server: Option<&str>,
    ) -> Option<(u32, Distribution, usize)> {
        let cluster = Cluster::of(nodes, api_server)?;
        Some((cluster.minor.0, cluster.distribution, cluster.control_plane_nodes))
    }

    #[test]
    fn the_lowest_version_of_the_control_plane_decides() {
        let nodes = ["v1.36.0", "v1.35.4", "v1.36.0"].map(node);
        assert_eq!(cluster(&nodes, Some("v1.37.0")), Some((35, Distribution::Other, 3)));
        assert_eq!(cluster(&[], Some("v1.37.0")), Some((37, Distribution::Other, 0)), "it is elsewhere");
        assert_eq!(cluster(&[], None), None);
        assert_eq!(cluster(&[node("")], Some("v1.34.1")), Some((34, Distribution::Other, 1)), "no kubelet yet");
        assert_eq!(cluster(&[node("lab")], Some("v1.34.1")), Some((34, Distribution::Other, 1)), "not a version");
        assert_eq!(cluster(&[node("lab"), node("v1.35.4")], Some("v1.34.1")), Some((35, Distribution::Other, 2)));
        assert_eq!(cluster(&[node("lab")], None), None);
    }

    #[test]
    fn the_distribution_is_that_of_a_node_or_else_of_the_version() {
        let talos = ("v1.35.4".to_owned(), Some(Distribution::Talos));
        assert_eq!(cluster(&[node("v1.35.4"), talos], Some("v1.35.4+k3s1")), Some((35, Distribution::Talos, 2)));
        assert_eq!(cluster(&[node("")], Some("v1.35.4+rke2r1")), Some((35, Distribution::Rke2, 1)), "no kubelet yet");
        assert_eq!(cluster(&[], Some("v1.35.4+k0s")), Some((35, Distribution::K0s, 0)), "it is elsewhere");
        assert_eq!(cluster(&[node("v1.35.4-eks-1a2b3c")], None), Some((35, Distribution::Other, 1)));
    }
}
