//! The documents are followed: each console block of the pages about installing runs on a real control plane, every command line
//! of the others exists, every link has a target, and the versions are those of the tests.
//!
//! A block that a test cannot run has a mark on the page (see [`page`]).

mod any_kubernetes;
mod fixture;
mod helm;
mod new_provider;
mod page;
mod paths;
pub(crate) mod shell;
mod there_and_back;
mod version_operator;
mod without_lease;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cli::{self, Cli},
    grace::{DENIED_GRACE, NODE_GRACE, TRANSIENT_ERROR_GRACE},
    object::KINDS,
    status::cluster_operator::CONDITIONS,
};
use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::lab::{can, repository};
use page::{Block, Mark};

/// The pages whose commands `paths`, `any_kubernetes` and `helm` run, unless a mark says why not. Of other pages only the command lines are checked;
/// `make e2e` runs those about drivers.
const FOLLOWED: &[&str] = &[
    "README.md",
    "docs/any-kubernetes.md",
    "docs/installing-in-a-release.md",
    "docs/installing-with-helm.md",
    "docs/installing-with-kubectl.md",
    "docs/migrating.md",
    "docs/new-provider.md",
    "docs/replacing-the-go-operator.md",
    "docs/support.md",
    "docs/uninstalling.md",
];

/// The pages of clouds, which have an index of their own.
const CLOUDS: &str = "docs/clouds/";

/// The programs that the documents may name, besides the shell's own.
const PROGRAMS: &[&str] = &[
    "aws",
    "az",
    "base64",
    "cargo",
    "cat",
    "ccm-cloud",
    "ccm-operator",
    "cloud-providers/libvirt.py",
    "cmp",
    "cosign",
    "cp",
    "curl",
    "docker",
    "docker-cloud-controller-manager",
    "doctl",
    "find",
    "gcloud",
    "govc",
    "grep",
    "hack/e2e/node.sh",
    "hcloud",
    "head",
    "helm",
    "isoinfo",
    "jq",
    "kubectl",
    "linode-cli",
    "make",
    "mkdir",
    // The page about it defines it.
    "mycloud",
    "oc",
    "oci",
    "openshift-install",
    "openssl",
    "openstack",
    "podman",
    "pveum",
    "python3",
    "qm",
    "rm",
    "scp",
    "scw",
    "sed",
    "sha256sum",
    "sort",
    "ssh",
    "stat",
    "tail",
    "tar",
    "virsh",
    "vultr-cli",
];

/// The documents of the repository, by their paths in it.
fn documents() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("docs"), PathBuf::new()];
    // What stands there is part of the pages of clouds.
    let notes = Path::new("docs/clouds/notes");
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.display().to_string());
            } else if entry.file_type()?.is_dir() && folder.starts_with("docs") && path != notes {
                folders.push(path);
            }
        }
    }
    found.sort();
    ensure!(found.iter().any(|path| path == "README.md"), "{found:?}");
    Ok(found)
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() -> Result<()> {
    let mut links = 0;
    for document in documents()? {
        let text = fs::read_to_string(repository().join(&document))?;
        for (number, line, _) in page::lines(&text).filter(|(_, _, is_code)| !is_code) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") {
                    continue;
                }
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let here = Path::new(&document);
                let path = if path.is_empty() { here.to_owned() } else { here.parent().unwrap_or(here).join(path) };
                let path = repository().join(path);
                assert!(path.exists(), "{document}:{number}: {target} does not exist");
                let anchors =
                    if anchor.is_empty() { vec![String::new()] } else { page::anchors(&fs::read_to_string(&path)?) };
                assert!(
                    anchors.iter().any(|one| one == anchor),
                    "{document}:{number}: {target} is no heading: {anchors:?}"
                );
                links += 1;
            }
        }
    }
    assert!(links > 20, "{links}");
    Ok(())
}

#[test]
fn every_page_is_found_from_the_readme() -> Result<()> {
    let readme = fs::read_to_string(repository().join("README.md"))?;
    let index = fs::read_to_string(repository().join(CLOUDS).join("README.md"))?;
    for document in
        documents()?.iter().filter(|document| document.starts_with("docs/") && !document.contains("runbooks/"))
    {
        let of_cloud = document.strip_prefix(CLOUDS).filter(|page| *page != "README.md");
        let (page, target) = of_cloud.map_or((&readme, document.as_str()), |page| (&index, page));
        assert!(page.contains(&format!("]({target}")), "{document} is not named");
    }
    Ok(())
}

/// The command lines that the commands of a block run, each as its words. The programs are functions of the shell that record and
/// read their input to its end, as a pipe needs. A file that was just written may not be run while another test starts a process.
fn command_lines(block: &Block) -> Result<Vec<Vec<String>>> {
    let dir = tempfile::tempdir()?;
    let record = dir.path().join("record");
    fs::write(&record, "")?;
    // One write for each command line, because the commands of a pipe run at the same time.
    let stand_in = |program: &&str| {
        format!(
            "{program}() {{ printf '%s\\0' {program} \"$@\" $'\\036' >>\"$RECORD\"; echo value; while read -r _; do :; done; }}\n"
        )
    };
    let stand_ins: String = PROGRAMS.iter().map(stand_in).collect();
    fs::create_dir_all(dir.path().join("work/support"))?;
    let script = block.commands.join("\n");
    let script = script.trim_end_matches(" &");
    let output = Command::new("/bin/bash")
        .args(["-c", &format!("set -eo pipefail\n{stand_ins}{script}")])
        .current_dir(dir.path().join("work"))
        .env_clear()
        .env("PATH", "")
        // Values of earlier blocks.
        .envs([("IMAGE", "image"), ("VERSION", "1.0.0")])
        .env("RECORD", &record)
        .stdin(Stdio::null())
        .output()?;
    ensure!(output.status.success(), "{}: {}", block.place, String::from_utf8_lossy(&output.stderr));
    let record = fs::read_to_string(&record)?;
    let lines = record.split_terminator("\u{1e}\0");
    Ok(lines.map(|line| line.split_terminator('\0').map(str::to_owned).collect()).collect())
}

#[test]
fn every_command_line_exists() -> Result<()> {
    let mut own = 0;
    for document in documents()? {
        for block in page::blocks(&document)? {
            for words in command_lines(&block)?.into_iter().filter(|words| words[0] == "ccm-operator") {
                let arguments = cli::arguments(words.iter().map(Into::into).collect());
                if let Err(error) = Cli::try_parse_from(arguments) {
                    let is_shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                    assert!(is_shown, "{}: {words:?}: {error}", block.place);
                }
                own += 1;
            }
        }
    }
    assert!(own > 10, "{own}");
    Ok(())
}

/// The rows of the tables of a page, each as its cells.
fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    page.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split(" | ").collect()))
}

/// The words of a text that are quoted as code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A row names a command in its first cell. A command of commands is in the row of its parent.
#[test]
fn every_command_has_a_row() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/commands.md"))?;
    let rows: Vec<_> = rows(&page).collect();
    let own = |name: &str| {
        let begins = |text: &&str| quoted(text).next().is_some_and(|first| first.split(' ').next() == Some(name));
        let of_command = rows.iter().filter(move |row| row.first().is_some_and(begins));
        of_command.flat_map(|row| row.iter().flat_map(|cell| quoted(cell))).collect::<Vec<_>>()
    };
    for command in Cli::command().get_subcommands() {
        let (name, named) = (command.get_name(), own(command.get_name()));
        assert!(!named.is_empty(), "docs/commands.md has no row for {name}");
        for inner in command.get_subcommands().map(clap::Command::get_name) {
            let whole = format!("{name} {inner}");
            assert!(
                named.iter().any(|word| *word == inner || *word == whole),
                "docs/commands.md: no {whole}: {named:?}"
            );
        }
    }
    Ok(())
}

/// The names of the metrics in the declarations of their module, with the ends that the text format appends.
fn metrics() -> Result<BTreeSet<String>> {
    let code = fs::read_to_string(repository().join("src/controllers/metrics.rs"))?;
    let (_, declared) = code.split_once("\nmetrics! {\n").context("the declarations")?;
    let (declared, _) = declared.split_once("\n}\n").context("the end of the declarations")?;
    let lines = declared.lines().filter_map(|line| line.split_once(" = \""));
    let name = |(declared, rest): (&str, &str)| {
        let (name, after) = rest.split_once('"')?;
        let is_counter = declared.split(": ").nth(1)?.starts_with("Counter");
        let unit = if after.starts_with(" Seconds") { "_seconds" } else { "" };
        Some(format!("ccm_operator_{name}{unit}{}", if is_counter { "_total" } else { "" }))
    };
    Ok(lines.filter_map(name).chain(["ccm_operator_build_info".to_owned()]).collect())
}

#[test]
fn every_metric_has_a_row() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/operations.md"))?;
    let cells = rows(&page).filter_map(|row| row.first().copied());
    let documented = cells.flat_map(quoted).filter(|name| name.starts_with("ccm_operator_"));
    assert_eq!(documented.map(str::to_owned).collect::<BTreeSet<_>>(), metrics()?);
    Ok(())
}

#[test]
fn every_section_with_commands_is_followed() -> Result<()> {
    let paths = concat!(
        include_str!("docs/paths.rs"),
        include_str!("docs/any_kubernetes.rs"),
        include_str!("docs/helm.rs"),
        include_str!("docs/new_provider.rs")
    );
    for document in FOLLOWED {
        let blocks = page::blocks(document)?;
        for block in blocks.iter().filter(|block| block.mark != Mark::NotRun) {
            let followed = format!("follow(&shell, (\"{document}\", \"{}\"))", block.section);
            assert!(paths.contains(&followed), "{}: no test runs this, and no mark says why", block.place);
        }
    }
    Ok(())
}

#[test]
fn the_conditions_of_the_cluster_operator_are_on_their_page() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/replacing-the-go-operator.md"))?;
    for condition in CONDITIONS {
        ensure!(page.contains(&format!("`{condition}`")), "docs/replacing-the-go-operator.md lacks {condition}");
    }
    Ok(())
}

/// Pods belong to workloads; on OpenShift, `ConfigMap`s and `ServiceAccount`s to namespaces that are deleted with everything in them.
#[test]
fn the_pages_uninstall_every_kind_of_object() -> Result<()> {
    let of_namespaces = ["pods", "configmaps", "serviceaccounts"];
    for (page, spared) in [
        ("docs/any-kubernetes.md", &of_namespaces[..1]),
        ("docs/uninstalling.md", &of_namespaces[..]),
        ("docs/replacing-the-go-operator.md", &of_namespaces[..]),
    ] {
        let text = fs::read_to_string(repository().join(page))?;
        let list =
            text.lines().find_map(|line| line.trim().strip_prefix("deployments,").map(|_| line)).context(page)?;
        let listed: BTreeSet<_> = list.trim_matches([' ', '\\']).split(',').collect();
        let kinds = KINDS.iter().map(|kind| kind.plural).filter(|plural| !spared.contains(plural));
        assert_eq!(listed, kinds.collect(), "{page}");
    }
    Ok(())
}

#[test]
fn the_grace_periods_of_the_pages_are_those_of_the_operator() -> Result<()> {
    let in_words = |period: Duration| match period.as_secs() {
        30 => "half a minute",
        60 => "a minute",
        120 => "two minutes",
        150 => "two and a half minutes",
        other => panic!("the pages have no words for {other} s yet"),
    };
    for (period, page, sentence) in [
        (NODE_GRACE, "docs/any-kubernetes.md", "After {} the operator determines why a node stays uninitialized"),
        (NODE_GRACE, "docs/any-kubernetes.md", "no node has waited for its initialization for more than {};"),
        (NODE_GRACE, "docs/operations.md", "the nodes that have waited for more than {}, by the id"),
        (NODE_GRACE, "README.md", "if it waits for more than {}: by"),
        (NODE_GRACE, "docs/clouds/aws.md", "If a node waits for more than {}, `ccm-operator nodes`"),
        (
            NODE_GRACE,
            "src/controllers/metrics.rs",
            "Nodes that have waited for their initialization for more than {}, by",
        ),
        (TRANSIENT_ERROR_GRACE, "docs/any-kubernetes.md", "after {}, if a node for the pods is not ready"),
        (TRANSIENT_ERROR_GRACE, "docs/any-kubernetes.md", "{} after Kubernetes gives up the rollout"),
        (
            TRANSIENT_ERROR_GRACE,
            "docs/any-kubernetes.md",
            "if finalizers have kept an object that is being deleted for {}",
        ),
        (TRANSIENT_ERROR_GRACE, "docs/operations.md", "for {}, or for"),
        (DENIED_GRACE, "docs/operations.md", "or for {} because of a missing permission"),
        (
            TRANSIENT_ERROR_GRACE,
            "docs/runbooks/CloudControllerManagerOperatorWatchSilent.md",
            "The ClusterOperator becomes Degraded after {}",
        ),
    ] {
        let text = fs::read_to_string(repository().join(page)).context(page)?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let sentence = sentence.replace("{}", in_words(period));
        ensure!(text.contains(&sentence), "{page} does not say {sentence:?}");
    }
    Ok(())
}

#[test]
fn the_programs_that_the_pages_use_are_there() {
    for program in ["curl", "jq"] {
        let found = Command::new("which").arg(program).output().is_ok_and(|output| output.status.success());
        can(&format!("run {program}"), found);
    }
}

#[test]
fn the_supported_versions_are_those_of_the_tests() -> Result<()> {
    let read = |path: &str| fs::read_to_string(repository().join(path)).context(path.to_owned());
    let page = read("docs/supported-versions.md")?;
    let modules = read("hack/testplane/go.mod")?;
    let kubernetes =
        modules.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes ")).context("a version")?;
    assert!(page.contains(&format!("kube-apiserver {kubernetes},")), "{kubernetes}");
    let minor = kubernetes.trim_start_matches('v').rsplit_once('.').context("a minor version")?.0;
    assert!(page.contains(&format!("| Kubernetes | {minor} |")), "{minor}");
    let makefile = read("Makefile")?;
    let others =
        makefile.lines().find_map(|line| line.strip_prefix("OTHER_KUBERNETES = ")).context("other versions")?;
    let mut tested: Vec<_> = others.split(' ').chain([kubernetes]).collect();
    tested.sort_unstable();
    let minors: Vec<_> = tested.iter().filter_map(|one| Some(one.strip_prefix('v')?.rsplit_once('.')?.0)).collect();
    let row = format!("| Kubernetes without OpenShift | {} |", minors.join(", "));
    let row = page.lines().find(|line| line.starts_with(&row)).with_context(|| row.clone())?;
    assert!(tested.iter().all(|version| row.contains(version)), "{tested:?}");
    let feature = format!("v{}", minor.replace('.', "_"));
    assert!(
        read("Cargo.toml")?.contains(&format!("features = [\"{feature}\"]")) && page.contains(&format!("`{feature}`"))
    );

    let mut apis = BTreeSet::new();
    let mut folders = vec![repository().join("manifests"), repository().join("assets"), repository().join("bootstrap")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = fs::read_to_string(path)?;
                apis.extend(text.lines().filter_map(|line| line.strip_prefix("apiVersion: ").map(str::to_owned)));
            }
        }
    }
    for api in apis {
        assert!(page.contains(&format!("`{api}`")), "docs/supported-versions.md does not name {api}");
    }
    Ok(())
}
