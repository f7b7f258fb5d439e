//! The two Containerfiles and the release workflow agree, and a release has all its files. `make e2e` tests the
//! images themselves.

use std::{collections::BTreeSet, env, fs, os::unix::fs::PermissionsExt, process::Command};

use anyhow::{Context, Result, ensure};
use ccm_operator::text::yaml;
use serde_json::{Map, Value, json};

use crate::lab::repository;

fn read(name: &str) -> Result<String> {
    fs::read_to_string(repository().join(name)).with_context(|| name.to_owned())
}

/// The value of an `ARG` in the text of a Containerfile.
fn argument<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix("ARG ")?.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn both_containerfiles_make_the_same_image() -> Result<()> {
    let (prebuilt, compiled) = (read("Containerfile")?, read("Containerfile.compile")?);
    for base in ["BASE", "CERTIFICATES"] {
        assert!(argument(&prebuilt, base).is_some_and(|image| image.contains("@sha256:")), "{base}");
        assert_eq!(argument(&prebuilt, base), argument(&compiled, base), "{base}");
    }
    let image =
        |text: &str| text.split_once("FROM ${BASE}").map(|(_, image)| image.replace("--from=compile /image/", "."));
    assert_eq!(image(&prebuilt).context("no FROM ${BASE}")?, image(&compiled).context("no FROM ${BASE}")?);
    Ok(())
}

/// Other files in the checkout, such as a token, are in no layer.
#[test]
fn the_compiler_gets_only_the_files_that_it_reads() -> Result<()> {
    let containerfile = read("Containerfile.compile")?;
    let copied: Vec<_> = containerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    let compile: Vec<_> =
        copied.iter().filter(|one| !one.starts_with("--from=")).flat_map(|one| one.split(' ')).collect();
    assert!(!compile.contains(&"."), "{compile:?}");
    for needed in ["Cargo.toml", "Cargo.lock", "crates", "src", "docs/nodes.md", "docs/rules.md", "hack", "tests"] {
        assert!(compile.contains(&needed), "{needed}");
    }
    let build = read("crates/core/build.rs")?;
    let (_, folders) = build.split_once("for folder in [").context("the embedded folders")?;
    let (folders, _) = folders.split_once(']').context("the embedded folders")?;
    for folder in folders.split(", ").map(|folder| folder.trim_matches('"')) {
        assert!(compile.contains(&folder), "{folder}");
    }
    Ok(())
}

/// The contents of the image name each image that a part of it is from.
#[test]
fn the_list_of_the_images_contents_is_complete() -> Result<()> {
    let list = tempfile::NamedTempFile::new()?;
    fs::write(list.path(), r#"{"bomFormat": "CycloneDX", "components": [{"type": "library", "name": "kube"}]}"#)?;
    let output = Command::new(repository().join("hack/image-contents.sh")).arg(list.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let contents: Value = serde_json::from_slice(&output.stdout)?;
    let containerfile = read("Containerfile")?;
    assert_eq!(contents["components"][0]["name"], "kube");
    for (index, base) in ["BASE", "CERTIFICATES"].into_iter().enumerate() {
        let image = argument(&containerfile, base).context(base)?;
        let component = &contents["components"][index + 1];
        let version = component["version"].as_str().context("a digest")?;
        assert!(
            image.ends_with(version) && image.starts_with(component["name"].as_str().context("a name")?),
            "{image}"
        );
    }
    Ok(())
}

/// The jobs of the release workflow.
fn jobs() -> Result<Map<String, Value>> {
    let workflow: Value = yaml::from_str(&read(".github/workflows/release.yaml")?)?;
    workflow["jobs"].as_object().cloned().context("jobs")
}

/// The commands of a job, in their order.
fn commands(job: &Value) -> Vec<&str> {
    job["steps"].as_array().into_iter().flatten().filter_map(|step| step["run"].as_str()).collect()
}

#[test]
fn only_the_publishing_job_may_publish() -> Result<()> {
    let jobs = jobs()?;
    for (name, job) in &jobs {
        let is_publish = name == "publish";
        assert_eq!(job["permissions"] != json!({"contents": "read"}), is_publish, "{name}");
        assert_eq!(job["environment"] == "release", is_publish, "{name}");
    }
    let publish = &jobs["publish"];
    // Nothing is compiled there. The program that signs is that of another job.
    for command in commands(publish) {
        for compiler in
            ["release.sh sums", "release.sh build", "release.sh cosign", "hack/go.sh", "make ", "cargo ", "go "]
        {
            assert!(!command.contains(compiler), "{command}");
        }
    }
    assert_eq!(publish["needs"], json!(["ci", "sums", "cosign"]));
    assert_eq!(publish["env"]["COSIGN"], "${{ github.workspace }}/target/release-cosign/cosign");
    let signs = commands(publish).iter().position(|command| command.contains("release.sh sign"));
    let checks = commands(publish).iter().position(|command| command.contains("sha256sum --check"));
    assert!(checks.is_some() && checks < signs, "an artifact is checked before it runs");
    assert!(publish.to_string().contains("${{ needs.cosign.outputs.sha256 }}"), "{publish}");
    // It would be uploaded with the files of the release.
    let sums = jobs["sums"]["steps"].as_array().context("steps")?;
    let download = sums.iter().find(|step| step.to_string().contains("download-artifact")).context("a download")?;
    assert_eq!(download["with"]["pattern"], "*64");
    let script = read("hack/release.sh")?;
    assert!(!script.contains("identity-regexp"));
    assert!(script.contains("--certificate-identity \"${SIGNER:?is the address of the repository}/.github/workflows/release.yaml@refs/tags/v$version\""));
    Ok(())
}

/// `hack/e2e/run.sh` needs root and namespaces. A runner is neither root, nor has it the compiler of releases.
#[test]
fn a_release_has_passed_ci_as_root() -> Result<()> {
    let jobs = jobs()?;
    let (ci, containerfile) = (&jobs["ci"], read("Containerfile.compile")?);
    let compiler = argument(&containerfile, "RUST").context("no compiler")?;
    assert_eq!(ci["container"]["image"], compiler);
    let options: Vec<_> = ci["container"]["options"].as_str().unwrap_or_default().split(' ').collect();
    assert!(options.contains(&"--privileged") && options.contains(&"--cgroupns=host"), "{options:?}");
    let is_other_user = options.iter().any(|option| option.starts_with("--user") || option.starts_with("-u"));
    assert!(!is_other_user, "{options:?}");
    let commands = commands(ci);
    assert_eq!(commands.last(), Some(&".ci/run"));
    assert!(commands.contains(&"hack/go.sh >>\"$GITHUB_PATH\""), "{commands:?}");
    assert!(read(".ci/run")?.contains("make e2e"));
    // The toolchain that the sources ask for, by its digest.
    let (go, module) = (read("hack/go.sh")?, read("hack/testplane/go.mod")?);
    let version = go.lines().find_map(|line| line.strip_prefix("version=")).context("a version")?;
    let minor = module.lines().find_map(|line| line.strip_prefix("go ")?.rsplit_once('.')).context("a version")?.0;
    assert!(version.starts_with(&format!("{minor}.")), "{version} is not {minor}");
    assert!(go.contains("sha256sum --check --strict"));
    Ok(())
}

/// Makes a release in a copy of the scripts. Programs stand in for those that build, push and sign.
const RELEASE: &str = r#"
repository=$1 version=$2
mkdir -p hack/helm programs target/release-artifacts
cp "$repository/hack/release.sh" "$repository/hack/image-contents.sh" hack/
cp "$repository/Cargo.toml" "$repository/Containerfile" .
program() { { echo '#!/bin/sh'; cat; } >"$1"; chmod 755 "$1"; }
echo 'echo 0' | program hack/commit.sh
echo 'echo "$IMAGE"' | program hack/image.sh
echo 'echo "$PWD/programs"' | program hack/helm/build.sh
echo "touch \"\$4/ccm-operator-$version.tgz\"" | program programs/helm
echo '[ "$2" != push ] || printf sha256:0 >"$5"' | program programs/podman
echo 'echo "$*" >>log' | program programs/cosign
program programs/skopeo <<'END'
[ "$*" = "inspect --raw docker://registry.example.test/ccm@sha256:0" ] || exit 1
echo '{"manifests": [{"digest": "sha256:1", "platform": {"architecture": "amd64"}},'
echo '{"digest": "sha256:2", "platform": {"architecture": "arm64"}}]}'
END
for program in ccm-operator ccm-cloud docker-cloud-controller-manager; do
	for arch in amd64 arm64; do
		name=$program-$version-linux-$arch
		echo "$name" >"target/release-artifacts/$name"
		echo '{"components": []}' >"target/release-artifacts/$name.cdx.json"
	done
done
export PATH="$PWD/programs:$PATH" COSIGN="$PWD/programs/cosign" IMAGE=registry.example.test/ccm:v1
hack/release.sh sums
hack/release.sh push
PROGRAM=ccm-cloud hack/release.sh push
PROGRAM=docker-cloud-controller-manager hack/release.sh push
"#;

#[test]
fn all_files_of_a_release_have_sums_and_each_list_belongs_to_its_image() -> Result<()> {
    let (folder, version) = (tempfile::tempdir()?, env!("CARGO_PKG_VERSION"));
    let mut command = Command::new("sh");
    command.args(["-euc", RELEASE, "sh"]).arg(repository()).arg(version).current_dir(folder.path());
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let artifacts = folder.path().join("target/release-artifacts");
    let sums = fs::read_to_string(artifacts.join("SHA256SUMS"))?;
    let listed: BTreeSet<_> = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1.to_owned())).collect();
    let mut uploaded = BTreeSet::new();
    for entry in fs::read_dir(&artifacts)? {
        uploaded.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    assert!(uploaded.remove("SHA256SUMS"));
    assert_eq!(uploaded, listed);
    let image = "registry.example.test/ccm";
    let programs = ["ccm-operator", "ccm-cloud", "docker-cloud-controller-manager"];
    let mut signed = Vec::new();
    for program in programs {
        signed.push(format!("sign --yes {image}@sha256:0"));
        for (arch, digest) in [("amd64", "sha256:1"), ("arm64", "sha256:2")] {
            let binary = format!("{program}-{version}-linux-{arch}");
            let list = format!("{binary}.image.cdx.json");
            for file in [&binary, &list] {
                assert!(listed.contains(file), "{file}: {listed:?}");
            }
            signed.push(format!(
                "attest --yes --type cyclonedx --predicate target/release-artifacts/{list} {image}@{digest}"
            ));
        }
    }
    assert_eq!(fs::read_to_string(folder.path().join("log"))?.lines().collect::<Vec<_>>(), signed);
    let notes = fs::read_to_string(folder.path().join("target/release-images.txt"))?;
    assert_eq!(notes, programs.map(|program| format!("Image of {program}: `{image}:v1@sha256:0`\n")).concat());
    Ok(())
}

/// Cargo gives everything that it builds at once the same features of their dependencies.
#[test]
fn each_program_is_built_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho \"$*\"\n")?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", folder.path().display(), env::var("PATH")?);
    for (program, package) in [
        (None, "cloud-controller-manager-operator"),
        (Some("ccm-cloud"), "ccm-cloud"),
        (Some("docker-cloud-controller-manager"), "ccm-cloud-controller-manager"),
        (Some("other"), ""),
    ] {
        let mut build = Command::new(repository().join("hack/build.sh"));
        build.args(["--bin", "x"]).env("PATH", &path).env_remove("PROGRAM").envs(program.map(|name| ("PROGRAM", name)));
        let output = build.output()?;
        let expected = format!("build --release --locked --package {package} --bin x\n");
        assert_eq!(output.status.success(), !package.is_empty(), "{program:?}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout)?, if package.is_empty() { "" } else { &expected });
    }
    Ok(())
}

#[test]
fn ci_searches_for_known_vulnerabilities_every_day() -> Result<()> {
    let workflow: Value = yaml::from_str(&read(".github/workflows/advisories.yaml")?)?;
    assert!(workflow["on"]["schedule"][0]["cron"].is_string(), "{workflow}");
    assert!(workflow["jobs"].to_string().contains("make advisories"));
    assert!(read("Makefile")?.contains("cargo deny --locked check advisories"));
    Ok(())
}

#[test]
fn releases_are_compiled_by_the_compiler_of_the_containerfile() -> Result<()> {
    let containerfile = read("Containerfile.compile")?;
    let compiler = argument(&containerfile, "RUST").context("no compiler")?;
    assert_eq!(jobs()?["binary"]["container"], compiler);
    Ok(())
}
