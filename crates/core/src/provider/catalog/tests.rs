use std::collections::BTreeSet;

use super::*;
use crate::{
    provider::{Descriptor, embedded, kubernetes},
    text::yaml,
};

const DESCRIPTOR: &str = "\
name: demo
platform: {type: Demo}
images:
  cloud-controller-manager: {key: demo, tag: demo}
arguments:
  cloud-controller-manager:
    --cluster-name: infrastructureName
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo, namespace: openshift-cloud-controller-manager}
spec:
  template:
    spec:
      containers:
      - name: cloud-controller-manager
        image: demo
        command: [/bin/demo, -v=2]
        args: [--cloud-provider=demo]
";

fn catalog(files: &[(&str, &str)]) -> Result<Catalog, String> {
    let files = files.iter().map(|(path, text)| (*path, text.as_bytes()));
    Catalog::new(files).map_err(|error| error.to_string())
}

/// The error of a catalog of one provider with a changed descriptor.
fn with_descriptor(from: &str, to: &str) -> String {
    let descriptor = DESCRIPTOR.replace(from, to);
    assert_ne!(descriptor, DESCRIPTOR, "{from:?} is missing");
    catalog(&[("assets/demo/provider.yaml", &descriptor), ("assets/demo/deployment.yaml", DEPLOYMENT)]).unwrap_err()
}

#[test]
fn built_in_providers_are_the_same_if_they_are_parsed_when_used() {
    let parsed = embedded::parsed_providers();
    let files = parsed.iter().flat_map(|one| one.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())));
    let (eager, lazy) = (Catalog::new(files).unwrap(), embedded::catalog().unwrap());
    let known = |catalog: &Catalog| {
        let known =
            catalog.all.iter().map(|one| (one.name().to_owned(), one.platform().cloned(), one.has_kubernetes()));
        known.collect::<Vec<_>>()
    };
    assert_eq!(known(&lazy), known(&eager));
    let contents = |catalog: &Catalog| {
        let all = catalog
            .all
            .iter()
            .map(|one| format!("{:?} {:?} {:?}", one.openshift(), one.kubernetes(), one.kubernetes_descriptor()));
        all.collect::<Vec<_>>()
    };
    assert!(contents(&lazy) == contents(&eager));
    assert!(lazy.providers().any(|provider| provider.name() == "aws"));
}

#[test]
fn errors_of_a_descriptor_have_a_place_and_a_suggestion() {
    for (from, to, expected) in [
        (
            "images:",
            "imagse:",
            "assets/demo/provider.yaml:3:1: unknown field `imagse`, expected one of name, platform, images, arguments, environment, cloudConfig, nodes, services (did you mean `images`?)",
        ),
        (
            "infrastructureName",
            "infrastuctureName",
            "assets/demo/provider.yaml:7:21: unknown fact `infrastuctureName`, expected one of infrastructureName, namespace, tls.minVersion, tls.cipherSuites, tls.disableHttp2, featureGates, clusterName, controllers, oldControllers, routes, podCIDRs, leaseName, securePort, verbosity (did you mean `infrastructureName`?)",
        ),
        ("infrastructureName", "{fact: namespac}", "(did you mean `namespace`?)"),
        ("infrastructureName", "{}", "either `fact` or `value` must be given"),
        ("infrastructureName", "{fact: namespace, value: x}", "either `fact` or `value` must be given"),
        (
            "  cloud-controller-manager: {key",
            "  cloud-controler-manager: {key",
            "assets/demo/provider.yaml:4: no manifest has a container \"cloud-controler-manager\" (did you mean `cloud-controller-manager`?)",
        ),
        ("  cloud-controller-manager:\n", "  other:\n", "no manifest has a container \"other\""),
        (
            "--cluster-name: infrastructureName",
            "--cloud-provider: {value: x}",
            "provider.yaml:7: container \"cloud-controller-manager\" already has --cloud-provider in its manifest",
        ),
        (
            "--cluster-name: infrastructureName",
            "--v: {value: x}",
            "provider.yaml:7: container \"cloud-controller-manager\" already has --v in its manifest",
        ),
        ("name: demo\n", "name: other\n", "provider.yaml:1: name: \"other\" is not the folder's name"),
        ("platform: {type: Demo}", "platform: {}", "missing field `type`"),
    ] {
        let error = with_descriptor(from, to);
        assert!(error.contains(expected), "{error}\nshould contain: {expected}");
        assert!(error.starts_with("assets/demo/provider.yaml") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn errors_of_a_folder_have_a_place() {
    let descriptor = ("assets/demo/provider.yaml", DESCRIPTOR);
    for (files, expected) in [
        (vec![("assets/demo/deployment.yaml", DEPLOYMENT)], "assets/demo/provider.yaml: missing"),
        (vec![("bootstrap/demo/pod.yaml", "")], "assets/demo/provider.yaml: missing"),
        (
            vec![descriptor, ("assets/demo/README.md", "")],
            "assets/demo/README.md: a provider's folder may contain only files named *.yaml",
        ),
        (
            vec![descriptor, ("assets/demo/more/a.yaml", "")],
            "assets/demo/more/a.yaml: a provider's folder may contain only files",
        ),
        (vec![descriptor, ("other/a.yaml", "")], "other/a.yaml: not in assets/<provider>/"),
        (vec![descriptor, ("assets/demo/a.yaml", "a: [")], "assets/demo/a.yaml:1:4: "),
        (
            vec![descriptor, ("assets/demo/a.yaml", "a: b")],
            "assets/demo/a.yaml:1: not a Kubernetes object: `apiVersion` is missing",
        ),
    ] {
        let error = catalog(&files).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn every_container_needs_an_image() {
    let deployment = DEPLOYMENT.replace("      containers:", "      initContainers: [{name: init}]\n      containers:");
    let error = catalog(&[("assets/demo/provider.yaml", DESCRIPTOR), ("assets/demo/deployment.yaml", &deployment)]);
    assert!(error.unwrap_err().contains("`images` has no entry for container \"init\""));
}

#[test]
fn the_narrowest_platform_wins() {
    let stack =
        DESCRIPTOR.replace("name: demo", "name: stack").replace("{type: Demo}", "{type: Demo, cloudName: Stack}");
    let catalog = catalog(&[
        ("assets/demo/provider.yaml", DESCRIPTOR),
        ("assets/demo/deployment.yaml", DEPLOYMENT),
        ("assets/stack/provider.yaml", &stack),
        ("assets/stack/deployment.yaml", DEPLOYMENT),
    ])
    .unwrap();
    for (name, variant, expected) in [
        ("Demo", None, Some("demo")),
        ("Demo", Some("Other"), Some("demo")),
        ("Demo", Some("Stack"), Some("stack")),
        ("External", None, None),
        ("Libvirt", None, None),
    ] {
        let platform = Platform { name: name.into(), variant: variant.map(Into::into) };
        let found = catalog.select(&platform).ok().map(OpenShiftProvider::name);
        assert_eq!(found, expected, "{platform:?}");
    }
}

#[test]
fn two_providers_cannot_serve_one_platform() {
    let twin = DESCRIPTOR.replace("name: demo", "name: twin");
    let error = catalog(&[
        ("assets/demo/provider.yaml", DESCRIPTOR),
        ("assets/demo/deployment.yaml", DEPLOYMENT),
        ("assets/twin/provider.yaml", &twin),
        ("assets/twin/deployment.yaml", DEPLOYMENT),
    ]);
    assert_eq!(error.unwrap_err(), "assets/twin/provider.yaml:2: provider \"demo\" serves the same platform");
}

#[test]
fn the_documentation_has_a_valid_descriptor_and_every_fact_and_kind() {
    let text = include_str!("../../../../../docs/adding-a-provider.md");
    let block = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines: Vec<_> = block.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
    let dedented = lines.join("\n");
    let descriptor: Descriptor = yaml::from_str(&dedented).unwrap();
    assert_eq!(descriptor.name, "mycloud");
    let listed = |start: &str| -> BTreeSet<String> {
        let list = text.split_once(start).and_then(|(_, rest)| rest.split_once(".\n")).map(|(list, _)| list).unwrap();
        list.split(',').map(|item| item.trim().trim_matches('`').to_owned()).collect()
    };
    for (list, is_of_ccm) in [("Facts: ", false), ("With a CloudControllerManager only: ", true)] {
        let facts = crate::facts::Fact::ALL.iter().filter(|(fact, _)| fact.is_of_ccm() == is_of_ccm);
        assert_eq!(listed(list), facts.map(|(_, name)| (*name).to_owned()).collect(), "{list}");
    }
    let kinds = crate::object::KINDS.iter().map(|kind| kind.kind.to_owned());
    assert_eq!(listed("Supported kinds: "), kinds.collect());
}

#[test]
fn the_documented_schema_of_descriptors_is_current() {
    let schemas = [
        ("provider", schemars::schema_for!(Descriptor)),
        ("kubernetes-provider", schemars::schema_for!(kubernetes::Descriptor)),
    ];
    for (name, schema) in schemas {
        let path = format!("{}/../../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let documented = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(schema == documented, "{path} is out of date: run `make generate`");
    }
}

#[test]
fn references_follow_the_namespace() {
    let catalog = embedded::catalog().unwrap();
    let all: Vec<_> = catalog.providers().flat_map(|provider| provider.references("moved")).collect();
    assert!(all.iter().any(|reference| reference.namespace == "moved"));
    assert!(all.iter().all(|reference| reference.namespace != crate::facts::DEFAULT_NAMESPACE));
}

#[test]
fn the_name_by_which_people_know_a_cloud_leads_to_its_provider() {
    let catalog = embedded::catalog().unwrap();
    for (name, hint) in [
        ("hetzner", "\"hetzner\" (did you mean `hcloud`?)"),
        ("Google", "\"Google\" (did you mean `gcp`?)"),
        ("cloudscal", "\"cloudscal\" (did you mean `cloudscale`?)"),
        ("upcloud", "\"upcloud\"; there are"),
    ] {
        let message = catalog.unknown(name);
        assert!(message.starts_with(&format!("there is no provider {hint}")), "{message}");
    }
    let known: Vec<_> = catalog.kubernetes_names().collect();
    assert!(ALIASES.iter().all(|(alias, of)| known.contains(of) && !known.contains(alias)));
}
