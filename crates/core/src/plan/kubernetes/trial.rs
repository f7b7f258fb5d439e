//! A trial of a cloud-controller-manager beside the cluster's own: with separate names, namespace, lease and port, and
//! without any controller, or only with the one that initializes nodes (pure).
//!
//! k8s.io/controller-manager v0.35.4 (`IsControllerEnabled`) starts the controllers in the list of `--controllers`, and without `*` no
//! others. The others are in it as `-NAME`: the program ends if it does not know a name, as it would in an installation.

use serde_json::json;

use super::{check, planned};
use crate::{
    api::{
        placement::ApiServer,
        spec::{Lifecycle, Spec},
    },
    facts::{
        ccm::{Ccm, Controller},
        cluster::Cluster,
    },
    object::{Object, container_name},
    plan::{Error, substitute::containers_mut},
    provider::{
        CCM,
        kubernetes::{Descriptor, KubernetesProvider, NAMESPACE},
    },
};

/// The label of every object of a test, with the test's name.
pub const LABEL: &str = "ccm-operator.dev/test";

/// The input of a test.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// Its name: the suffix of its objects' names, and the name of its namespace and its Secret.
    pub name: &'a str,
    /// The port for health and metrics on the network of the host.
    pub port: u16,
    /// Whether nodes are initialized.
    pub initializes: bool,
    /// Whether the Secret has the file of `--cloud-config`.
    pub has_config: bool,
    /// Whether the Secret has the credentials.
    pub has_credentials: bool,
    /// The address of the API server for its pods, if it differs from the distribution's.
    pub api_server: Option<ApiServer>,
    /// The cluster.
    pub cluster: Cluster,
}

impl Trial<'_> {
    /// Returns the namespace of its pods: its own, unless the provider must run in `kube-system`.
    pub fn namespace<'a>(&'a self, provider: &KubernetesProvider) -> &'a str {
        if provider.descriptor.namespaces.include(self.name) { self.name } else { NAMESPACE }
    }

    /// Returns the `CloudControllerManager` that corresponds to the test.
    pub fn ccm(&self, provider: &KubernetesProvider) -> Result<Ccm, serde_json::Error> {
        let descriptor = &provider.descriptor;
        let mut spec = json!({
            "provider": descriptor.name,
            "namespace": self.namespace(provider),
            "controllers": {
                "cloudNode": if self.initializes { "Enabled" } else { "Disabled" },
                "cloudNodeLifecycle": "Disabled",
                "service": "Disabled",
                "route": "Disabled",
            },
            "ports": {"secure": self.port},
        });
        if let Some(file) = descriptor.cloud_config.as_ref().filter(|_| self.has_config) {
            spec["cloudConfig"] = json!({"secretRef": {"name": self.name, "key": file.file}});
        }
        if self.has_credentials {
            spec["credentials"] = json!({"secretRef": {"name": self.name}});
        }
        if provider.workload().is_some_and(|(workload, _)| workload.kind().kind == "Deployment") {
            spec["placement"] = json!({"replicas": 1});
        } else if self.cluster.control_plane_nodes == 0 {
            // A DaemonSet needs an explicit placement, and its pods harm no node.
            spec["placement"] = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
        }
        if let Some(ApiServer { host, port }) = &self.api_server {
            spec["placement"]["apiServer"] = json!({"host": host, "port": port});
        }
        let spec: Spec = serde_json::from_value(spec)?;
        Ok(Ccm::new(self.name.to_owned(), spec, self.cluster))
    }

    /// Returns its objects, in the order of creation.
    pub fn objects(&self, provider: &KubernetesProvider, ccm: &Ccm) -> Result<Vec<Object>, Error> {
        // A CloudControllerManager must have an enabled controller, and every provider has this one.
        let mut checked = ccm.clone();
        checked.spec.controllers.cloud_node_lifecycle = Lifecycle::Rehearsal;
        check(provider, &checked)?;
        let mut objects = planned(provider, ccm, None)?;
        for object in &mut objects {
            object.set_label(LABEL, self.name);
            name_other_controllers(&provider.descriptor, object, ccm);
        }
        Ok(objects)
    }
}

/// Adds the controllers that are off to the argument `--controllers`.
fn name_other_controllers(descriptor: &Descriptor, object: &mut Object, ccm: &Ccm) {
    let own = descriptor.own(ccm);
    let is_off = |controller: &Controller| own.controllers().all(|on| on != *controller);
    let name = |controller: Controller| format!("-{}", controller.flag_name(descriptor.has_old_controllers()));
    let off: Vec<_> = descriptor.controllers().into_iter().filter(is_off).map(name).collect();
    for container in containers_mut(object, &["containers"]).filter(|one| container_name(one) == CCM) {
        for argument in container["args"].as_array_mut().into_iter().flatten() {
            if let Some(on) = argument.as_str().and_then(|text| text.strip_prefix("--controllers=")) {
                let all: Vec<_> =
                    Some(on).filter(|on| !on.is_empty()).into_iter().chain(off.iter().map(String::as_str)).collect();
                *argument = format!("--controllers={}", all.join(",")).into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        api::placement::Distribution,
        facts::version::Minor,
        object::Key,
        provider::{embedded, folder::arguments},
    };

    const NAME: &str = "ccm-test-abcde";

    fn trial(provider: &KubernetesProvider, initializes: bool, control_plane_nodes: usize) -> Trial<'static> {
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes };
        Trial {
            name: NAME,
            port: 12_345,
            initializes,
            has_config: provider.descriptor.cloud_config.is_some(),
            has_credentials: provider.descriptor.credentials.is_some(),
            api_server: None,
            cluster,
        }
    }

    fn objects(trial: &Trial, provider: &KubernetesProvider) -> Vec<Object> {
        trial.objects(provider, &trial.ccm(provider).unwrap()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_provider_is_tried_out_under_names_of_its_own() {
        let catalog = embedded::catalog().unwrap();
        for provider in catalog.kubernetes() {
            let own: BTreeSet<Key> = provider.manifests.iter().map(Object::key).collect();
            for (initializes, nodes) in [(false, 3), (true, 3), (false, 0)] {
                for object in objects(&trial(provider, initializes, nodes), provider) {
                    let key = object.key();
                    assert!(key.name.ends_with(NAME) && !own.contains(&key), "{key}");
                    assert_eq!(object.value()["metadata"]["labels"][LABEL], NAME, "{key}");
                    let is_shared = matches!(key.namespace.as_str(), "" | "kube-system");
                    assert!(is_shared || key.namespace == NAME, "{key}");
                }
            }
        }
    }

    #[test]
    fn no_controller_runs_but_the_one_that_is_asked_for() {
        let catalog = embedded::catalog().unwrap();
        for provider in catalog.kubernetes() {
            for initializes in [false, true] {
                let objects = objects(&trial(provider, initializes, 3), provider);
                let pods = objects.iter().filter_map(Object::pod_spec);
                let containers = pods.flat_map(|pod| pod["containers"].as_array().into_iter().flatten());
                let ccm: Vec<_> = containers.clone().filter(|one| one["name"] == CCM).collect();
                assert_eq!(ccm.len(), 1, "{}", provider.descriptor.name);
                let has_ccm = provider.descriptor.node_manager.is_some();
                let given: Vec<_> = arguments(ccm[0]).filter_map(|one| one.strip_prefix("--controllers=")).collect();
                let (on, off): (Vec<_>, Vec<_>) = given[0].split(',').partition(|name| !name.starts_with('-'));
                let expected = if initializes && !has_ccm { vec!["cloud-node-controller"] } else { Vec::new() };
                assert_eq!((given.len(), on), (1, expected), "{}", provider.descriptor.name);
                assert!(off.contains(&"-cloud-node-lifecycle-controller"), "{off:?}");
                let has_load_balancers = provider.descriptor.load_balancers;
                assert_eq!(off.contains(&"-service-lb-controller"), has_load_balancers, "{}", provider.descriptor.name);
                for argument in ["--secure-port=12345", "--configure-cloud-routes=false"] {
                    assert!(arguments(ccm[0]).any(|one| one == argument), "{argument}");
                }
                let lease = format!("--leader-elect-resource-name=cloud-controller-manager-{NAME}");
                assert!(arguments(ccm[0]).any(|one| one == lease), "{lease}");
                let all = containers.count();
                assert_eq!(all > 1, initializes && has_ccm, "{}", provider.descriptor.name);
            }
        }
    }

    #[test]
    fn its_pods_find_the_api_server_where_they_are_told() {
        let catalog = embedded::catalog().unwrap();
        for provider in catalog.kubernetes() {
            let api_server = Some(ApiServer { host: "192.0.2.1".into(), port: 6443 });
            let objects = objects(&Trial { api_server, ..trial(provider, false, 3) }, provider);
            let pod = objects.iter().find_map(Object::pod_spec).unwrap();
            let host = json!({"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"});
            assert!(pod["containers"][0]["env"].as_array().unwrap().contains(&host), "{}", provider.descriptor.name);
        }
    }

    #[test]
    fn what_the_provider_needs_is_checked() {
        let catalog = embedded::catalog().unwrap();
        let hcloud = catalog.kubernetes_of("hcloud").unwrap();
        let trial = Trial { has_credentials: false, ..trial(hcloud, false, 3) };
        let error = trial.objects(hcloud, &trial.ccm(hcloud).unwrap()).unwrap_err().to_string();
        assert!(error.contains("spec.credentials: provider hcloud needs a Secret with the keys token"), "{error}");
    }
}
