use super::*;
use crate::provider::{Flavor, embedded, folder::parsed_providers_of};

const DIGEST: &str = "sha256:ab1e432fbb0aa137860b8996632a8108911a6dc2691c1a7e77e34072606eb676";

fn embedded(name: &str) -> ParsedProvider {
    embedded::parsed_providers_of(name).remove(0)
}

fn from<'a>(values: &'a [ShownValue], container: &str, name: &str) -> Vec<&'a str> {
    let named = values.iter().filter(|value| &*value.container == container && value.name == name);
    named.map(|value| value.from.as_str()).collect()
}

#[test]
fn a_summary_has_the_platform_and_the_phases() {
    let summary = Summary::of(&embedded("azurestack").openshift().unwrap(), DIGEST, "1");
    assert_eq!(summary.platform, "Azure/AzureStackCloud");
    assert_eq!(summary.phases, ["cluster", "bootstrap"]);
    assert_eq!(summary.digest, DIGEST);
}

#[test]
fn each_fact_of_openshift_has_a_placeholder() {
    let facts = placeholders(&embedded("aws").openshift().unwrap().descriptor);
    for (fact, name) in facts::Fact::ALL.iter().filter(|(fact, _)| !fact.is_of_ccm()) {
        assert!(facts.value(*fact).is_some(), "{name}");
    }
}

#[test]
fn details_have_the_source_of_every_value() {
    let details = details(&embedded("vsphere"), DIGEST, "1", Phase::Cluster).unwrap();
    let ccm = "cloud-controller-manager";
    let host = "set in every container; left out without a value";
    let feature_gates = details.arguments.iter().find(|value| value.name == "--feature-gates").unwrap();
    assert_eq!(feature_gates.value.as_deref(), Some("<FeatureGate status.featureGates>"));
    for (values, name, expected) in [
        (&details.arguments, "--cloud-provider", "manifest"),
        (&details.arguments, "--leader-elect-resource-namespace", "manifest; follows --namespace"),
        (&details.arguments, "--cluster-name", "fact infrastructureName"),
        (&details.arguments, "--node-labels", "descriptor; only with feature gate VSphereMixedNodeEnv"),
        (&details.arguments, "--feature-gates", "fact featureGates; left out without a value"),
        (&details.environment, "VSPHERE_SECRET_NAMESPACE", "fact namespace"),
        (&details.environment, "KUBERNETES_SERVICE_HOST", host),
    ] {
        assert_eq!(from(values, ccm, name), [expected], "{name} in {values:#?}");
    }
    let waves: Vec<_> = details.objects.iter().map(|object| object.wave).collect();
    assert!(waves.is_sorted() && waves.first() == Some(&2) && waves.last() == Some(&4), "{waves:?}");
    assert_eq!((details.summary.name.as_str(), details.phase), ("vsphere", "cluster"));
    assert!(from(&details.environment, ccm, "HTTPS_PROXY").len() == 1, "{:#?}", details.environment);
    assert_eq!(details.images[0].built_in, "quay.io/openshift/origin-vsphere-cloud-controller-manager");
}

#[test]
fn every_wave_has_its_reason() {
    for kind in crate::object::KINDS {
        assert!((1..=WAVES.len()).contains(&usize::from(kind.wave)), "{kind:?}");
    }
}

#[test]
fn facts_do_not_enter_init_containers_and_bootstrap_pods() {
    let azure = embedded("azure");
    let of_cluster = details(&azure, DIGEST, "1", Phase::Cluster).unwrap();
    assert!(from(&of_cluster.environment, "azure-inject-credentials", "HTTP_PROXY").is_empty());
    assert_eq!(from(&of_cluster.environment, "cloud-node-manager", "NODE_NAME"), ["manifest: fieldRef spec.nodeName"]);
    let of_bootstrap = details(&azure, DIGEST, "1", Phase::Bootstrap).unwrap();
    assert!(of_bootstrap.arguments.iter().all(|argument| argument.from == "manifest"));
    assert_eq!(of_bootstrap.environment, []);
}

#[test]
fn tables_fit_a_hundred_columns() {
    for parsed in embedded::parsed_providers().into_iter().filter(|parsed| parsed.flavor == Flavor::OpenShift) {
        for phase in [Phase::Cluster, Phase::Bootstrap] {
            let text = details_table(&details(&parsed, DIGEST, "1.2.3", phase).unwrap());
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }
}

/// A provider for OpenShift with this many arguments.
fn with_arguments(count: usize) -> ParsedProvider {
    let args = (0..count).map(|n| format!("--a{n:05}, ")).collect::<Vec<_>>().concat();
    let (name, image) = ("n".repeat(253), "{key: k, tag: t}");
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {name}}}\nspec: {{template: {{spec: {{containers: \
         [{{name: {}, args: [{args}]}}]}}}}}}\n",
        "c".repeat(63)
    );
    let descriptor = format!("name: a\nplatform: {{type: A}}\nimages: {{{}: {image}}}\n", "c".repeat(63));
    let files = [("assets/deployment.yaml", deployment), ("assets/provider.yaml", descriptor)];
    parsed_providers_of("a", files.map(|(path, text)| (path, text.into_bytes()))).remove(0)
}

#[test]
fn the_values_of_a_container_share_its_name() {
    let details = details(&with_arguments(1_000), DIGEST, "1", Phase::Cluster).unwrap();
    let first = &details.arguments[0];
    assert_eq!((first.container.len(), first.object.len()), (63, "Deployment ".len() + 253 + 1 + 253));
    let is_shared =
        |one: &ShownValue| Rc::ptr_eq(&one.object, &first.object) && Rc::ptr_eq(&one.container, &first.container);
    assert!(details.arguments.len() == 1_000 && details.arguments.iter().all(is_shared));
}
