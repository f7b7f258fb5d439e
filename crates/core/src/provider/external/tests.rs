use std::{fs, path::Path};

use super::{
    policy::PolicyFile,
    read::{ExternalProviders, ExternalSettings},
    *,
};
use crate::{
    facts::{Facts, Platform},
    plan::Plan,
    provider::{Phase, catalog::Catalog, embedded, package, verify::trust::tests::pinned},
};

/// A provider's folder of this name, which passes every check: Exoscale's under another name.
fn folder_of(name: &str, root: &Path) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(path.join("assets/kubernetes")).unwrap();
    for parsed in embedded::parsed_providers().iter().filter(|one| one.name == "exoscale") {
        for (file, bytes) in &parsed.files {
            let text = std::str::from_utf8(bytes).unwrap().replace("name: exoscale", &format!("name: {name}"));
            let text = pinned(&text.replace("exoscale-cloud-", &format!("{name}-cloud-")));
            fs::write(path.join("assets/kubernetes").join(file.rsplit('/').next().unwrap()), text).unwrap();
        }
    }
    path
}

fn folder(root: &Path) -> PathBuf {
    folder_of("demo", root)
}

fn digest(path: &Path) -> String {
    package::read::read(path).unwrap().digest
}

fn wanted(path: &Path) -> ProviderRequest {
    ProviderRequest { path: Some(path.to_owned()), digest: Some(digest(path)), name: Some("demo".into()) }
}

fn catalog(wanted: Vec<Result<ProviderRequest, RefusedProvider>>, replace: &[&str]) -> Catalog {
    let replace = replace.iter().map(|name| (*name).to_owned()).collect();
    let settings =
        ExternalSettings { requests: wanted, replace, pinning: Pinning::Required, ..ExternalSettings::default() };
    ExternalProviders::read(embedded::catalog().unwrap(), settings).catalog()
}

/// Whether a provider is refused for a reason, under a name.
fn assert_refused(catalog: &Catalog, name: &str, reason: &str) {
    let error = catalog.kubernetes_of(name).unwrap_err();
    assert!(error.contains(reason), "{error}\nshould contain {reason:?}");
    // On OpenShift, the platform of a refused provider is unknown.
    let plan = Plan::new(
        catalog,
        &Facts { platform: Ok(Some(Platform { name: "AWS".into(), variant: None })), ..Facts::default() },
        Phase::Cluster,
    );
    assert!(plan.unwrap_err().to_string().contains(reason));
}

#[test]
fn a_provider_that_passes_every_check_is_used_by_its_name() {
    let root = tempfile::tempdir().unwrap();
    let path = folder(root.path());
    let all = catalog(vec![Ok(wanted(&path))], &[]);
    assert_eq!(all.refused(), []);
    let origin = all.kubernetes_of("demo").unwrap().origin.clone().unwrap();
    assert_eq!((origin.path, origin.digest), (path.display().to_string(), digest(&path)));
    assert!(all.kubernetes_of("exoscale").unwrap().origin.is_none(), "the built-in ones stay");
}

#[test]
fn each_guard_refuses_on_its_own() {
    let root = tempfile::tempdir().unwrap();
    let path = folder(root.path());
    let good = || wanted(&path);
    let zeros = format!("sha256:{}", "0".repeat(64));
    for (wanted, reason) in [
        (ProviderRequest { path: None, ..good() }, "no path is given".to_owned()),
        (ProviderRequest { digest: None, ..good() }, "no digest is given".to_owned()),
        (ProviderRequest { digest: Some("sha256:12".into()), ..good() }, "\"sha256:12\" is no digest".to_owned()),
        (
            ProviderRequest { digest: Some(zeros.clone()), ..good() },
            format!("expected the digest {zeros}, found {}", digest(&path)),
        ),
        (ProviderRequest { name: Some("other".into()), ..good() }, "CLOUD_PROVIDER \"other\"".to_owned()),
        (ProviderRequest { path: Some(root.path().join("absent/demo")), ..good() }, "No such file".to_owned()),
    ] {
        assert_refused(&catalog(vec![Ok(wanted)], &[]), "demo", &reason);
    }
    assert_eq!(catalog(vec![Ok(good())], &[]).refused(), [], "what was changed was the reason");
}

#[test]
fn what_is_in_the_folder_is_checked_even_with_its_digest() {
    for (file, from, to, reason) in [
        ("assets/kubernetes/provider.yaml", "name: demo\n", "name: other\n", "its descriptor says \"other\""),
        ("assets/kubernetes/deployment.yaml", "kind: Deployment", "kind: Deploymint", "deployment.yaml:"),
        ("assets/kubernetes/provider.yaml", "repository: ", "repostory: ", "did you mean `repository`"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let path = folder(root.path());
        let text = fs::read_to_string(path.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        fs::write(path.join(file), text.replacen(from, to, 1)).unwrap();
        assert_refused(&catalog(vec![Ok(wanted(&path))], &[]), "demo", reason);
    }
}

#[test]
fn a_built_in_provider_is_replaced_only_on_demand_and_never_stands_in() {
    let root = tempfile::tempdir().unwrap();
    let path = folder_of("hcloud", root.path());
    let good = || ProviderRequest { path: Some(path.clone()), digest: Some(digest(&path)), name: None };
    assert_refused(&catalog(vec![Ok(good())], &[]), "hcloud", "--replace-built-in hcloud is not given");
    assert_refused(&catalog(vec![Ok(good())], &["aws"]), "hcloud", "--replace-built-in hcloud is not given");
    let all = catalog(vec![Ok(good())], &["hcloud"]);
    assert!(all.refused().is_empty() && all.kubernetes_of("hcloud").unwrap().origin.is_some());
    let bad = ProviderRequest { digest: Some(format!("sha256:{}", "0".repeat(64))), ..good() };
    assert_refused(&catalog(vec![Ok(bad)], &["hcloud"]), "hcloud", "expected the digest");
    assert_refused(&catalog(vec![Ok(good()), Ok(good())], &["hcloud"]), "hcloud", "has a provider \"hcloud\"");
}

#[test]
fn the_environment_asks_for_one_word_for_word() {
    let hash = "0".repeat(64);
    let all = [
        ("CLOUD_PROVIDER", "libvirt"),
        ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", "true"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", "/cloud-providers/libvirt.tar"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", hash.as_str()),
    ];
    let of = |set: &[(&str, &str)]| {
        ProviderRequest::of_environment(|name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let expected = ProviderRequest {
        path: Some("/cloud-providers/libvirt.tar".into()),
        digest: Some(format!("sha256:{hash}")),
        name: Some("libvirt".into()),
    };
    assert_eq!(of(&all), Ok(Some(expected)));
    for missing in [0, 2, 3] {
        let set: Vec<_> = all.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, one)| *one).collect();
        let refused = of(&set).unwrap_err();
        assert!(refused.why.contains(&format!("{} is not set", all[missing].0)), "{refused}");
    }
    let mut set = all;
    for (enabled, is_asked) in [("false", Some(false)), ("", Some(false)), ("yes", None), ("TRUE", None)] {
        set[1].1 = enabled;
        assert_eq!(of(&set).ok().map(|wanted| wanted.is_some()), is_asked, "{enabled:?}");
    }
    assert_eq!(of(&[all[0]]), Ok(None), "the name alone enables nothing");
}

#[test]
fn a_flag_has_a_path_and_a_digest() {
    let wanted = ProviderRequest::of_flag("/providers/a@b.tar@sha256:00");
    assert_eq!((wanted.path, wanted.digest), (Some("/providers/a@b.tar".into()), Some("sha256:00".into())));
    let wanted = ProviderRequest::of_flag("./demo");
    assert_eq!((wanted.path, wanted.digest), (Some("./demo".into()), None));
    assert_eq!(ProviderRequest::of_flag("@sha256:00").path, None);
}

#[test]
fn one_that_was_refused_is_read_again_and_one_that_is_used_is_not() {
    let root = tempfile::tempdir().unwrap();
    let path = folder(root.path());
    let (other, wanted) = (root.path().join("elsewhere"), wanted(&path));
    fs::rename(&path, &other).unwrap();
    let settings =
        ExternalSettings { requests: vec![Ok(wanted)], pinning: Pinning::Required, ..ExternalSettings::default() };
    let mut externals = ExternalProviders::read(embedded::catalog().unwrap(), settings);
    assert!(!externals.retry(), "nothing has changed");
    assert!(externals.catalog().kubernetes_of("demo").is_err());
    fs::rename(&other, &path).unwrap();
    assert!(externals.retry() && externals.catalog().kubernetes_of("demo").is_ok());
    fs::remove_dir_all(&path).unwrap();
    assert!(!externals.retry() && externals.catalog().kubernetes_of("demo").is_ok(), "what was checked stays");
}

#[test]
fn a_platform_of_openshift_is_taken_from_a_built_in_provider_only_on_demand() {
    let descriptor = |platform: &str| format!("name: demo\nplatform: {platform}\nimages: {{}}\n");
    let external = |platform: &str| {
        let package = Package::new("demo", [("assets/provider.yaml", descriptor(platform))]).unwrap();
        let provider = Provider::of("demo", &package.parsed_providers())?;
        ExternalProvider::new(package, provider, Origin::default())
    };
    let with = |platform: &str, replace: &[String]| {
        let mut catalog = embedded::catalog().unwrap();
        catalog.exclude_built_in(replace);
        catalog.add(&external(platform).unwrap().provider);
        catalog
    };
    let select = |catalog: &Catalog, name: &str, variant: Option<&str>| {
        let platform = Platform { name: name.into(), variant: variant.map(str::to_owned) };
        catalog.select(&platform).map(|provider| provider.name().to_owned())
    };
    assert!(with("{type: AWS}", &[]).refused()[0].why.contains("--replace-built-in aws"));
    let replaced = with("{type: AWS}", &["aws".to_owned()]);
    assert_eq!(select(&replaced, "AWS", None).as_deref(), Ok("demo"));
    assert_eq!(select(&with("{type: Demo}", &[]), "Demo", None).as_deref(), Ok("demo"));
    let defect = |platform: &str| external(platform).unwrap_err().problem;
    assert!(defect("{type: External}").contains("needs platformName"));
    assert!(defect("{type: Demo, platformName: x}").contains("is for type External only"));
    let external = with("{type: External, platformName: demo}", &[]);
    assert_eq!(select(&external, "External", Some("demo")).as_deref(), Ok("demo"));
    assert!(select(&external, "External", Some("other")).unwrap_err().contains("with the name \"other\""));
    assert!(select(&external, "External", None).unwrap_err().contains("provides its own cloud-controller-manager"));
}

/// The settings of a process: this folder, and a policy.
fn with_policy(path: &Path, policy: PolicyFile) -> ExternalSettings {
    ExternalSettings {
        requests: vec![Ok(wanted(path))],
        policy: Some(policy),
        pinning: Pinning::Required,
        ..ExternalSettings::default()
    }
}

/// A folder that needs a policy, and the policy.
fn needy(root: &Path) -> (PathBuf, PathBuf, &'static str) {
    let (path, policy) = (folder(root), root.join("policy.yaml"));
    let deployment = path.join("assets/kubernetes/deployment.yaml");
    let text =
        fs::read_to_string(&deployment).unwrap().replace("hostNetwork: true", "hostNetwork: true\n      hostPID: true");
    fs::write(deployment, text).unwrap();
    let allows = "demo: {external-host-namespace: [hostPID]}\n";
    fs::write(&policy, allows).unwrap();
    (path, policy, allows)
}

#[test]
fn a_policy_is_used_with_its_digest_only() {
    let root = tempfile::tempdir().unwrap();
    let (path, file, allows) = needy(root.path());
    let digest = package::digest(allows.as_bytes());
    let zeros = format!("sha256:{}", "0".repeat(64));
    let read = |digest: Option<&str>| {
        let policy = PolicyFile { path: file.clone(), digest: digest.map(ToOwned::to_owned) };
        ExternalProviders::read(embedded::catalog().unwrap(), with_policy(&path, policy)).catalog()
    };
    let used = read(Some(&digest));
    assert_eq!(used.refused(), []);
    let origin = used.kubernetes_of("demo").unwrap().origin.clone().unwrap();
    assert_eq!(origin.policy_exceptions, ["external-host-namespace: hostPID"]);
    assert_refused(&read(None), "demo", "no digest is given, so the text is not verified");
    assert_refused(&read(None), "demo", &format!("`ccm-operator provider digest {}` prints", file.display()));
    assert_refused(&read(Some("sha256:12")), "demo", "\"sha256:12\" is no digest");
    assert_refused(&read(Some(&zeros)), "demo", &format!("expected the digest {zeros}, found {digest}"));
    let flag = PolicyFile::of_flag(&format!("{}@{digest}", file.display()));
    assert_eq!(flag, PolicyFile { path: file.clone(), digest: Some(digest.clone()) });
    assert_eq!(PolicyFile::of_flag("a@b.yaml"), PolicyFile { path: "a@b.yaml".into(), digest: None });
}

#[test]
fn a_policy_is_read_once_and_its_change_widens_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (path, file, allows) = needy(root.path());
    // The pinned policy allows nothing, so the provider is refused, and is read again and again.
    fs::write(&file, "{}\n").unwrap();
    let policy = PolicyFile { path: file.clone(), digest: Some(package::digest(b"{}\n")) };
    let mut externals = ExternalProviders::read(embedded::catalog().unwrap(), with_policy(&path, policy));
    assert_refused(&externals.catalog(), "demo", "(external-host-namespace)");
    assert_eq!(externals.paths().collect::<Vec<_>>(), [path.as_path()], "no change of the policy is waited for");
    fs::write(&file, allows).unwrap();
    assert!(!externals.retry(), "the policy is what was pinned");
    assert_refused(&externals.catalog(), "demo", "(external-host-namespace)");
    fs::remove_file(&file).unwrap();
    assert!(!externals.retry());

    // A folder that was missing is read as soon as it exists.
    let policy = PolicyFile { path: file.clone(), digest: Some(package::digest(allows.as_bytes())) };
    let mut externals = ExternalProviders::read(embedded::catalog().unwrap(), with_policy(&path, policy));
    assert_refused(&externals.catalog(), "demo", "failed to read --provider-policy");
    assert!(externals.paths().any(|path| path == file));
    fs::write(&file, "demo: {}\n").unwrap();
    assert!(externals.retry(), "for another reason");
    assert_refused(&externals.catalog(), "demo", "expected the digest");
    fs::write(&file, allows).unwrap();
    assert!(externals.retry());
    assert_eq!(externals.catalog().refused(), []);
}
