use super::*;

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
        args: [--cloud-provider=demo]
";

fn catalog(files: &[(&str, &str)]) -> Result<Catalog, String> {
    let files = files.iter().map(|(path, text)| (*path, text.as_bytes()));
    Catalog::new(files).map_err(|error| error.to_string())
}

/// The error of a catalog of one provider whose descriptor was changed.
fn with_descriptor(from: &str, to: &str) -> String {
    let descriptor = DESCRIPTOR.replace(from, to);
    assert_ne!(descriptor, DESCRIPTOR, "{from:?} is not there");
    catalog(&[("assets/demo/provider.yaml", &descriptor), ("assets/demo/deployment.yaml", DEPLOYMENT)]).unwrap_err()
}

#[test]
fn the_embedded_catalog_is_sound() {
    let catalog = crate::provider::embedded::catalog().unwrap();
    assert!(catalog.providers().any(|provider| provider.name() == "aws"));
}

#[test]
fn errors_of_a_descriptor_name_file_line_and_the_nearest_right_spelling() {
    for (from, to, expected) in [
        (
            "images:",
            "imagse:",
            "assets/demo/provider.yaml: unknown field `imagse`, expected one of name, platform, images, arguments, environment, cloudConfig at line 3, column 1 (did you mean `images`?)",
        ),
        (
            "infrastructureName",
            "infrastuctureName",
            "unknown fact `infrastuctureName`, expected one of infrastructureName, namespace, tls.minVersion, tls.cipherSuites, featureGates (did you mean `infrastructureName`?) at line 7",
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
            "has --cloud-provider in its manifest already",
        ),
        ("name: demo\n", "name: other\n", "name: \"other\" is not the folder's name"),
        ("platform: {type: Demo}", "platform: {}", "missing field `type`"),
    ] {
        let error = with_descriptor(from, to);
        assert!(error.contains(expected), "{error}\nshould say: {expected}");
        assert!(error.starts_with("assets/demo/provider.yaml") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn errors_of_a_folder_name_the_file() {
    let descriptor = ("assets/demo/provider.yaml", DESCRIPTOR);
    for (files, expected) in [
        (vec![("assets/demo/deployment.yaml", DEPLOYMENT)], "assets/demo/provider.yaml: missing"),
        (vec![("bootstrap/demo/pod.yaml", "")], "bootstrap/demo/pod.yaml: there is no assets/demo/provider.yaml"),
        (
            vec![descriptor, ("assets/demo/README.md", "")],
            "assets/demo/README.md: a provider's folder holds files named *.yaml",
        ),
        (vec![descriptor, ("assets/demo/more/a.yaml", "")], "assets/demo/more/a.yaml: a provider's folder holds files"),
        (vec![descriptor, ("other/a.yaml", "")], "other/a.yaml: not in assets/<provider>/"),
        (vec![descriptor, ("assets/demo/a.yaml", "a: [")], "assets/demo/a.yaml: "),
        (
            vec![descriptor, ("assets/demo/a.yaml", "a: b")],
            "assets/demo/a.yaml: not a Kubernetes object: `apiVersion` is missing",
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
    assert!(error.unwrap_err().contains("`images` says nothing of container \"init\""));
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
        let found = match catalog.select(&platform) {
            Selection::Provider(provider) => Some(provider.name()),
            Selection::Nothing(_) => None,
        };
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
    assert_eq!(error.unwrap_err(), "assets/twin/provider.yaml: provider \"demo\" serves the same platform");
}

#[test]
fn the_documented_descriptor_is_one() {
    let text = include_str!("../../../docs/adding-a-provider.md");
    let block = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines: Vec<_> = block.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
    let dedented = lines.join("\n");
    let descriptor = Descriptor::parse(&dedented, "docs/adding-a-provider.md").unwrap();
    assert_eq!(descriptor.name, "aws");
    for (_, name) in crate::facts::Fact::ALL {
        assert!(text.contains(&format!("`{name}`")), "the fact {name} is not documented");
    }
    for kind in crate::object::KINDS.iter().filter(|kind| kind.kind != "Pod") {
        assert!(text.contains(kind.kind), "the kind {} is not documented", kind.kind);
    }
}

#[test]
fn the_schema_of_descriptors_is_the_one_that_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/provider.schema.json");
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Descriptor)).unwrap() + "\n";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let documented = std::fs::read_to_string(path).unwrap_or_default();
    assert!(schema == documented, "docs/provider.schema.json is not what the types say: run `make generate`");
}
