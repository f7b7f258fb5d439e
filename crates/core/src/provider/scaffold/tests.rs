use serde_json::json;

use super::*;
use crate::{
    api::placement::Distribution,
    facts::{ccm::Ccm, cluster::Cluster},
    plan::Plan,
    provider::{
        CCM,
        catalog::Catalog,
        folder::{self, parsed_providers_of},
        verify::{Policy, check_external, verify},
    },
};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn options(name: &str) -> Options {
    Options {
        name: name.to_owned(),
        flavors: vec![Flavor::Kubernetes],
        image: format!("ghcr.io/acme/ccm:v1.2.3@{DIGEST}").parse().unwrap(),
        rule: None,
        command: Some("cloud-controller-manager".to_owned()),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
        cloud_provider: "external-acme".to_owned(),
        has_old_library: false,
        cloud_config: None,
        credentials: BTreeMap::new(),
        node_manager: None,
        routes: false,
        provider_id: format!("{name}://"),
        platform: "External".to_owned(),
        today: "2026-11-23".to_owned(),
    }
}

fn config(file: &str, holds_credentials: bool) -> CloudConfig {
    CloudConfig { file: file.to_owned(), holds_credentials }
}

/// All combinations of the options.
fn all() -> Vec<Options> {
    let mut all = vec![options("acme-x")];
    let mut vary = |choices: &[fn(&mut Options)]| {
        let with = |one: &Options, choose: &fn(&mut Options)| {
            let mut one = one.clone();
            choose(&mut one);
            one
        };
        all = all.iter().flat_map(|one| choices.iter().map(|choose| with(one, choose)).collect::<Vec<_>>()).collect();
    };
    vary(&[
        |_| (),
        |one| one.flavors.push(Flavor::OpenShift),
        |one| one.flavors = vec![Flavor::OpenShift],
        |one| (one.flavors, one.platform) = (vec![Flavor::OpenShift], "Acme".into()),
    ]);
    vary(&[
        |_| (),
        |one| one.cloud_config = Some(config("acme.conf", false)),
        |one| one.cloud_config = Some(config("on", true)),
    ]);
    vary(&[
        |_| (),
        |one| one.credentials = [("ACME_TOKEN".into(), "token".into())].into(),
        |one| {
            one.credentials = [("A".into(), "no".into()), ("B".into(), "no".into()), ("C".into(), "12".into())].into();
        },
    ]);
    vary(&[|_| (), |one| one.node_manager = Some(format!("ghcr.io/acme/node:1.0@{DIGEST}").parse().unwrap())]);
    vary(&[|_| (), |one| one.routes = true]);
    vary(&[|_| (), |one| one.image.tag = "v1.35.2".into()]);
    vary(&[
        |_| (),
        |one| {
            one.has_old_library = true;
            one.command = one.command.take().filter(|_| one.flavors.contains(&Flavor::OpenShift));
            one.arguments = vec!["--acme-zone=a: #".into(), "--on".into()];
            one.environment = [("ACME_ON".into(), "true".into()), ("ACME_TEXT".into(), "a: 'b' #".into())].into();
        },
    ]);
    all
}

/// The files as in a tree of providers.
fn among_others<'a>(name: &'a str, files: &'a BTreeMap<String, String>) -> impl Iterator<Item = (String, Vec<u8>)> {
    let yaml = files.iter().filter(|(path, _)| path.as_str() != "README.md");
    yaml.map(move |(path, text)| {
        let (top, rest) = path.split_once('/').unwrap();
        (format!("{top}/{name}/{rest}"), text.clone().into_bytes())
    })
}

/// A `CloudControllerManager` with only the required fields.
fn ccm(options: &Options) -> Ccm {
    let mut spec = json!({"provider": options.name});
    if options.cloud_config.is_some() {
        spec["cloudConfig"] = json!({"secretRef": {"name": "a", "key": "b"}});
    }
    if !options.credentials.is_empty() {
        spec["credentials"] = json!({"secretRef": {"name": "a"}});
    }
    if options.routes {
        spec["controllers"] = json!({"route": "Enabled"});
        spec["network"] = json!({"podCIDRs": ["10.0.0.0/8"]});
    }
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    Ccm::new("cluster".to_owned(), serde_json::from_value(spec).unwrap(), cluster)
}

#[test]
fn every_combination_breaks_no_rule_and_is_planned() {
    let all = all();
    assert_eq!(all.len(), 4 * 3 * 3 * 2 * 2 * 2 * 2);
    for options in all {
        let files = files(&options).unwrap_or_else(|error| panic!("{error}: {options:?}"));
        let yaml = files.iter().filter(|(path, _)| path.as_str() != "README.md");
        let parsed_providers =
            parsed_providers_of(&options.name, yaml.map(|(path, text)| (path.as_str(), text.as_bytes())));
        assert_eq!(parsed_providers.len(), options.flavors.len(), "{options:?}");
        assert_eq!(verify(&parsed_providers, None, None).findings, [], "{options:?}");
        assert_eq!(check_external(&parsed_providers, &Policy::default()).findings, [], "{options:?}");
        let catalog = Catalog::new(among_others(&options.name, &files)).unwrap();
        assert_eq!(catalog.providers().count(), usize::from(options.flavors.contains(&Flavor::OpenShift)));
        if options.flavors.contains(&Flavor::Kubernetes) {
            let plan = Plan::of_ccm(&catalog, &ccm(&options));
            let plan = plan.unwrap_or_else(|error| panic!("{error}: {options:?}"));
            assert!(plan.objects().len() > 6, "{options:?}");
        }
        for (path, text) in files {
            assert!(
                !["#if ", "#each ", "#end", "#= ", "_IMAGE", EXAMPLE].iter().any(|mark| text.contains(mark)),
                "{path}: {text}"
            );
        }
    }
}

#[test]
fn the_example_itself_is_a_provider() {
    let parsed_providers =
        parsed_providers_of(EXAMPLE, embedded::scaffold().into_iter().map(|(path, text)| (path, text.as_bytes())));
    assert_eq!(parsed_providers.len(), 2);
    assert_eq!(verify(&parsed_providers, None, None).findings, []);
}

#[test]
fn what_is_asked_for_reaches_the_pod() {
    let mut options = options("acme");
    options.cloud_config = Some(config("acme.conf", false));
    options.credentials = [("ACME_TOKEN".into(), "token".into())].into();
    let files = files(&options).unwrap();
    let catalog = Catalog::new(among_others(&options.name, &files)).unwrap();
    let plan = Plan::of_ccm(&catalog, &ccm(&options)).unwrap();
    let workload = plan.objects().iter().find(|one| one.kind().kind == "Deployment").unwrap();
    let container = &workload.pod_spec().unwrap()["containers"][0];
    assert_eq!(container["image"], format!("ghcr.io/acme/ccm:v1.2.3@{DIGEST}"));
    assert_eq!(container["command"], json!(["cloud-controller-manager"]));
    let arguments = folder::arguments(container).collect::<Vec<_>>();
    for argument in ["--cloud-provider=external-acme", "--cloud-config=/etc/acme/acme.conf"] {
        assert!(arguments.contains(&argument), "{arguments:?}");
    }
    let token = json!({"name": "ACME_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "token"}}});
    assert!(container["env"].as_array().unwrap().contains(&token), "{container}");
    let volumes = workload.pod_spec().unwrap()["volumes"].as_array().unwrap();
    assert_eq!(volumes[0]["secret"]["items"], json!([{"key": "b", "path": "acme.conf"}]));
}

#[test]
fn comments_stay_and_go_with_what_they_are_about() {
    let bare = files(&options("acme")).unwrap();
    let descriptor = &bare["assets/kubernetes/provider.yaml"];
    assert!(
        descriptor.contains("# Edit: the architectures of the image") && !descriptor.contains("The route controller")
    );
    assert!(!descriptor.contains("node-manager") && !descriptor.contains("--cloud-config"), "{descriptor}");
    insta::assert_snapshot!("scaffold_descriptor", descriptor);
}

#[test]
fn the_rule_of_versions_is_that_of_the_tag() {
    let versions = |tag: &str, rule| {
        let mut options = options("acme");
        (options.image.tag, options.rule) = (tag.to_owned(), rule);
        let found = of_image(&options.image, options.rule)?;
        Ok((found["rule"].as_str().unwrap().to_owned(), found["tags"].as_object().unwrap().len()))
    };
    let known = |rule: &str, tags| Ok::<_, String>((rule.to_owned(), tags));
    for (tag, rule, expected) in [
        ("v1.2.3", None, known("OneLine", 5)),
        ("v1.35.3", None, known("SameMinor", 1)),
        ("0.36.0", None, known("SameMinor", 1)),
        ("v36.3.8", None, known("MajorIsMinor", 1)),
        ("v1.35.3", Some(VersionRule::OneLine), known("OneLine", 5)),
    ] {
        assert_eq!(versions(tag, rule), expected, "{tag}");
    }
    let error = versions("v1.2.3", Some(VersionRule::SameMinor)).unwrap_err();
    assert_eq!(error, "the tag v1.2.3 does not tell a minor version of Kubernetes: --rule must be OneLine");
}

#[test]
fn a_name_is_that_of_a_folder_and_of_objects() {
    for name in ["acme", "a1-b", "example", &"a".repeat(40)] {
        assert_eq!(check_name(name, &["aws"]), Ok(()), "{name}");
    }
    for (name, why) in [
        ("", "begins with a letter"),
        ("1a", "begins with a letter"),
        ("a_b", "lower-case letters"),
        ("A", "lower-case letters"),
        ("a/b", "lower-case letters"),
        ("a-", "lower-case letters"),
        (&"a".repeat(41), "more than 40"),
        ("no", "such as no-cloud"),
        ("kubernetes", "another meaning"),
        ("a-next", "another meaning"),
        ("aws", "such as my-aws"),
    ] {
        let error = check_name(name, &["aws"]).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn openshift_needs_the_digest_of_every_image() {
    let mut options = Options { flavors: vec![Flavor::OpenShift], ..options("acme") };
    options.node_manager = Some("a.io/a/b:1".parse().unwrap());
    let Err(problem) = files(&options) else { panic!("an image without a digest") };
    assert!(problem.contains("the digest of a.io/a/b:1,"), "{problem}");
    options.flavors = vec![Flavor::Kubernetes];
    let files = files(&options).unwrap();
    assert!(!files["assets/kubernetes/deployment.yaml"].contains("sha256"), "the operator chooses the tag");
}

#[test]
fn a_tag_keeps_the_digest_that_is_given_for_it() {
    let mut options = Options { node_manager: Some("a.io/a/b:1.0".parse().unwrap()), ..options("acme") };
    let written = files(&options).unwrap();
    let descriptor = yaml::from_str::<Value>(&written["assets/kubernetes/provider.yaml"]).unwrap();
    let tags = |container: &str| descriptor["images"][container]["versions"]["tags"]["1.35"].clone();
    assert_eq!(tags(CCM), json!({"tag": "v1.2.3", "digest": DIGEST}));
    assert_eq!(tags("cloud-node-manager"), "1.0", "a version of its own");
    let readme = &written["README.md"];
    let asks = "skopeo inspect --format '{{.Digest}}' docker://a.io/a/b:1.0\n";
    assert!(readme.contains(asks) && !readme.contains("docker://ghcr.io"), "{readme}");

    // The policy in the README is sufficient.
    options.image.digest = None;
    let written = files(&options).unwrap();
    let (_, policy) = written["README.md"].split_once("```yaml\n").unwrap();
    let policy = Policy::parse(policy.split_once("```").unwrap().0).unwrap();
    let yaml = written.iter().filter(|(path, _)| path.as_str() != "README.md");
    let parsed_providers = parsed_providers_of("acme", yaml.map(|(path, text)| (path.as_str(), text.as_bytes())));
    let found: Vec<_> =
        check_external(&parsed_providers, &Policy::default()).findings.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|finding| finding.ends_with("has no digest (external-image-digest)")), "{found:?}");
    assert_eq!(check_external(&parsed_providers, &policy).findings, []);
    assert_eq!(policy.unused(&parsed_providers), []);
}

#[test]
fn an_image_has_a_tag() {
    let image: ImageReference = "registry.lab:5000/a/b:v1".parse().unwrap();
    assert_eq!((image.repository.as_str(), image.tag.as_str()), ("registry.lab:5000/a/b", "v1"));
    let text = format!("a.io/a/b:v1@{DIGEST}");
    assert_eq!(text.parse::<ImageReference>().unwrap().to_string(), text);
    for text in ["", "a", "a/b", "a:1", "registry.lab:5000/a", "a/b:latest", "a/B:1", "a/b:1@sha256:0"] {
        assert!(text.parse::<ImageReference>().is_err(), "{text}");
    }
}
