//! `ccm-operator provider`, and the checks of a new provider.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use anyhow::Result;
use ccm_operator::{
    provider::{Phase, catalog::Catalog, embedded, payload, read, verify},
    text::yaml,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    contract, flags,
    lab::{binary, repository},
    payload as install,
    support::{objects, objects::Workloads, openshift, pool},
};

fn provider(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("provider").args(arguments).output().expect("the binary")
}

/// The output of a successful run.
fn printed(arguments: &[&str]) -> Result<String> {
    let output = provider(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn every_provider_is_listed() -> Result<()> {
    let table = printed(&["list"])?;
    assert_eq!(table.lines().count(), 1 + embedded::parsed_providers().len(), "{table}");
    assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    let json: Value = serde_json::from_str(&printed(&["list", "-o", "json"])?)?;
    assert_eq!(json, yaml::from_str::<Value>(&printed(&["list", "-o", "yaml"])?)?);
    let aws = json.as_array().and_then(|all| all.iter().find(|one| one["name"] == "aws")).expect("aws");
    assert_eq!(aws["platform"], "AWS");
    assert_eq!(aws["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(aws["phases"], serde_json::json!(["cluster", "bootstrap"]));
    assert!(aws["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{aws}");
    Ok(())
}

#[test]
fn a_provider_is_shown_with_the_origin_of_its_values() -> Result<()> {
    let table = printed(&["show", "aws"])?;
    for text in
        ["ValidatingAdmissionPolicy", "cloudControllerManagerAWS", "tls.minVersion", "assets/aws/deployment.yaml"]
    {
        assert!(table.contains(text), "{text} is not in {table}");
    }
    let json: Value = serde_json::from_str(&printed(&["show", "aws", "--phase", "bootstrap", "-o", "json"])?)?;
    assert_eq!(json["objects"][0]["file"], "bootstrap/aws/pod.yaml");
    assert_eq!(json, yaml::from_str::<Value>(&printed(&["show", "aws", "--phase=bootstrap", "-oyaml"])?)?);
    Ok(())
}

#[test]
fn an_unknown_provider_is_wrong_usage() {
    let output = provider(&["show", "asw"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("there is no provider \"asw\" (did you mean `aws`?)"), "{error}");
}

/// A copy of the tests' sound provider with one text replaced.
fn changed(from: &str, to: &str) -> Result<TempDir> {
    let folder = TempDir::new()?;
    for path in
        ["assets/demo/deployment.yaml", "assets/demo/provider.yaml", "assets/demo/role.yaml", "bootstrap/demo/pod.yaml"]
    {
        let copy = folder.path().join(path);
        fs::create_dir_all(copy.parent().expect("a folder"))?;
        fs::write(copy, fs::read_to_string(repository().join("tests/sound").join(path))?.replace(from, to))?;
    }
    Ok(folder)
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("UTF-8")
}

#[test]
fn the_embedded_providers_and_this_repository_break_no_rule() -> Result<()> {
    for target in [None, Some("aws"), Some(path(repository())), Some(path(&repository().join("tests/sound")))] {
        let arguments: Vec<_> = std::iter::once("verify").chain(target).collect();
        let text = printed(&arguments)?;
        assert!(text.ends_with("rules: nothing found\n"), "{text}");
    }
    Ok(())
}

#[test]
fn a_broken_folder_has_a_line_for_each_finding() -> Result<()> {
    let folder = changed("hostNetwork: true", "hostNetwork: false")?;
    let output = provider(&["verify", path(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout)?;
    assert_eq!(table.lines().filter(|line| line.starts_with("host-network  ")).count(), 2, "{table}");
    assert!(table.lines().all(|line| line.len() <= 100), "{table}");

    let output = provider(&["verify", path(folder.path()), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 2, "{report}");
    for field in ["provider", "rule", "file", "line", "what", "why", "fix"] {
        assert!(findings.iter().all(|finding| !finding[field].is_null()), "{field}: {report}");
    }

    let output = provider(&["verify", path(folder.path()), "-o", "junit"]);
    assert_eq!(output.status.code(), Some(1));
    let xml = String::from_utf8(output.stdout)?;
    assert_eq!(xml.matches("<failure ").count(), 2, "{xml}");
    assert_well_formed(&xml);
    Ok(())
}

#[test]
fn files_that_never_end_are_refused() -> Result<()> {
    type Make = fn(&Path) -> std::io::Result<()>;
    let fifo: Make = |path| {
        let made = Command::new("mkfifo").arg(path).status()?;
        if made.success() { Ok(()) } else { Err(std::io::Error::other("mkfifo failed")) }
    };
    for (make, why) in [
        (fifo, "not a regular file"),
        (|path| symlink("/dev/zero", path), "a link; put the file itself in its place"),
        (|path| symlink("..", path), "a link; put the file itself in its place"),
        (|path| symlink("loop.yaml", path.with_file_name("loop.yaml")), "a link; put the file itself in its place"),
        (|path| fs::File::create(path)?.set_len(1 << 40), "a file of a package may have 1048576"),
    ] {
        let folder = changed("", "")?;
        let file = folder.path().join("assets/demo/more.yaml");
        make(&file)?;
        let output = provider(&["verify", path(folder.path())]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("assets/demo/") && error.contains(why), "{why}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_live_api_server_is_asked_about_every_object() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let mark = plane.audit().mark()?;
    let kubeconfig = plane.kubeconfig_admin();
    let verify = |target: &[&str]| {
        let arguments = ["verify", "--dry-run=server", "--kubeconfig", path(&kubeconfig)];
        provider(&[&arguments, target].concat())
    };
    let output = verify(&[]);
    let table = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{table}{}", String::from_utf8_lossy(&output.stderr));

    let folder = changed("imagePullPolicy: IfNotPresent", "imagePullPolicy: Sometimes")?;
    let output = verify(&[path(folder.path()), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let finding = &report["findings"][0];
    assert_eq!(finding["rule"], "cluster-dry-run", "{report}");
    let file = fs::read_to_string(folder.path().join(finding["file"].as_str().expect("a file")))?;
    let line = file.lines().nth(usize::try_from(finding["line"].as_u64().expect("a line"))? - 1);
    assert!(line.is_some_and(|line| line.contains("imagePullPolicy: Sometimes")), "{line:?}");

    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let asked: Vec<_> = plane.audit().since(mark)?.into_iter().filter(|request| request.verb == "patch").collect();
    assert!(asked.len() > 50, "{}", asked.len());
    Ok(())
}

#[test]
fn an_unreachable_api_server_is_an_error_and_not_a_finding() -> Result<()> {
    let folder = TempDir::new()?;
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: none\n")?;
    let output = provider(&["verify", "aws", "--dry-run=server", "--kubeconfig", path(&kubeconfig)]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("has no context \"none\"") && error.lines().count() == 1, "{error}");
    Ok(())
}

/// Every tag is closed in the right order, and no special character is left unescaped.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("the end of a tag");
        assert!(!text.contains('>'), "{part}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{part}");
        let name = tag.split(' ').next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{part}"),
            None if tag.ends_with('/') || tag.starts_with('?') => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn an_unreadable_file_is_a_finding_and_a_folder_without_providers_wrong_usage() -> Result<()> {
    let folder = changed("platform: {", "platform: [")?;
    let output = provider(&["verify", path(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout)?;
    assert!(table.contains("readable  assets/demo/provider.yaml:3:"), "{table}");

    let empty = TempDir::new()?;
    for (target, expected) in [
        (path(empty.path()), "has no folder assets/<cloud>"),
        ("asw", "there is no provider \"asw\" (did you mean `aws`?)"),
    ] {
        let output = provider(&["verify", target]);
        assert_eq!(output.status.code(), Some(2), "{target}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn catalog_of(folder: &Path) -> Result<Catalog> {
    let (parsed_providers, _) = read::read(folder)?;
    let files = parsed_providers.iter().flat_map(|parsed| &parsed.files);
    Ok(Catalog::new(files.map(|(path, bytes)| (path.as_str(), bytes.as_slice())))?)
}

/// The repository's providers, and that of `tests/sound` for a platform, with one install payload.
fn with_a_new_provider(platform: &str, has_bootstrap: bool) -> Result<(TempDir, Catalog)> {
    let folder = TempDir::new()?;
    for root in ["assets", "bootstrap", "manifests"] {
        copy(&repository().join(root), &folder.path().join(root))?;
        copy(&repository().join("tests/sound").join(root), &folder.path().join(root))?;
    }
    let descriptor = folder.path().join("assets/demo/provider.yaml");
    fs::write(&descriptor, fs::read_to_string(&descriptor)?.replace("{type: Demo}", platform))?;
    if !has_bootstrap {
        fs::remove_dir_all(folder.path().join("bootstrap/demo"))?;
    }
    let catalog = catalog_of(folder.path())?;
    // As `make generate` does.
    let manifests = folder.path().join("manifests");
    fs::write(manifests.join("image-references"), payload::image_references(&catalog))?;
    let images = manifests.join("0000_26_cloud-controller-manager-operator_01_images.configmap.yaml");
    let generated = payload::images_config_map(&fs::read_to_string(&images)?, &catalog).expect("an images ConfigMap");
    fs::write(images, generated)?;
    Ok((folder, catalog))
}

#[tokio::test]
async fn a_new_provider_needs_no_change_of_a_test() -> Result<()> {
    for (platform, has_bootstrap) in [("{type: External, platformName: demo}", false), ("{type: Demo}", true)] {
        let (folder, catalog) = with_a_new_provider(platform, has_bootstrap)?;
        assert!(catalog.providers().any(|provider| provider.name() == "demo"));
        let (parsed_providers, payload) = read::read(folder.path())?;
        let report = verify::verify(&parsed_providers, payload.as_ref(), None);
        assert_eq!(report.findings, [], "{}", report.table());
        install::check(folder.path(), &catalog)?;
        contract::check_contracts(&catalog)?;
        contract::check_plans(&catalog, Phase::Cluster)?;
        contract::check_plans(&catalog, Phase::Bootstrap)?;
        let (_, programs) = flags::check_starts(&catalog, |platform| platform == "demo").await?;
        assert_eq!(programs, BTreeSet::from(["demo-cloud-controller-manager".to_owned()]));
    }
    Ok(())
}

#[tokio::test]
async fn flags_of_a_program_that_cannot_be_built_are_not_tested() -> Result<()> {
    let (folder, _) = with_a_new_provider("{type: Demo}", true)?;
    // The generic program does not have the flags of the cloud's own.
    for file in ["assets/demo/deployment.yaml", "bootstrap/demo/pod.yaml"].map(|file| folder.path().join(file)) {
        fs::write(&file, fs::read_to_string(&file)?.replace("- -v=2", "- --demo-zone=a"))?;
    }
    let (_, programs) = flags::check_starts(&catalog_of(folder.path())?, |platform| platform == "demo").await?;
    assert_eq!(programs, BTreeSet::new());
    Ok(())
}
