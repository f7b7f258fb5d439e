use super::*;

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: a\n";

#[test]
fn every_defect_has_its_place_and_the_rest_is_read() {
    let files = [
        ("assets/a/bad.yaml", "a:\n- ["),
        ("assets/a/note.txt", ""),
        ("assets/a/provider.yaml", "# One.\nname: b\nplatform: {type: A}\nimages: {}\n"),
        ("assets/a/role.yaml", ROLE),
        ("assets/a/two.yaml", "a: 1\n---\napiVersion: v1\n# Not this one.\nkind: Secret\nmetadata: {name: a}\n"),
        ("bootstrap/b/pod.yaml", "1"),
    ];
    let parsed_providers = parsed_providers(files.map(|(path, text)| (path, text.as_bytes())));
    assert_eq!(parsed_providers.iter().map(|parsed| parsed.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(parsed_providers[0].manifests.len(), 1);
    let defects: Vec<_> = parsed_providers.iter().flat_map(|parsed| &parsed.defects).map(ToString::to_string).collect();
    let expected = [
        "assets/a/bad.yaml:2:3: ",
        "assets/a/note.txt: a provider's folder may contain only files named *.yaml",
        "assets/a/provider.yaml:2: name: \"b\" is not the folder's name",
        "assets/a/two.yaml:1: not a Kubernetes object: `apiVersion` is missing",
        "assets/a/two.yaml:5: unsupported kind v1 Secret",
        "bootstrap/b/pod.yaml:1: not a Kubernetes object: `apiVersion` is missing",
        "assets/b/provider.yaml: missing: it names the platform that the provider serves",
    ];
    assert_eq!(defects.len(), expected.len(), "{defects:#?}");
    for (defect, expected) in defects.iter().zip(expected) {
        assert!(defect.starts_with(expected), "{defect} does not start with {expected}");
    }
}

#[test]
fn one_of_two_providers_of_a_platform_is_refused() {
    let files = ["a", "b"].map(|name| {
        (format!("assets/{name}/provider.yaml"), format!("name: {name}\nplatform: {{type: Demo}}\nimages: {{}}\n"))
    });
    let parsed_providers = parsed_providers(files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())));
    assert_eq!(parsed_providers[0].defects, []);
    let defects: Vec<_> = parsed_providers[1].defects.iter().map(ToString::to_string).collect();
    assert_eq!(defects, ["assets/b/provider.yaml:2: provider \"a\" serves the same platform"]);
}
