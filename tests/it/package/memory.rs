//! The memory that untrusted packages can take, whatever command reads them.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::Result;
use ccm_operator::{
    error::chain,
    provider::{
        embedded,
        package::{Package, read},
    },
};
use tempfile::TempDir;

use super::write;
use crate::lab::binary;

/// The memory of a process that reads packages, in KiB: of what it writes to, as its code is shared.
const MEMORY: u32 = 64 << 10;

/// The words of a process that needs more and does not end at once.
const OUT_OF_MEMORY: &str = "out of memory";

/// The path of the package that a run of this test reads in little memory.
const PACKAGE: &str = "CCM_OPERATOR_TEST_PACKAGE";

/// Runs a program with so much memory, in KiB.
fn within(memory: u32, program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -d {memory}; exec \"$0\" \"$@\"")]).arg(program).stdin(Stdio::null());
    // Without memory there is none for a backtrace.
    command.env("RUST_BACKTRACE", "0");
    command
}

/// An object with about so many values: mappings with one member need most memory for their length.
fn heavy(values: usize) -> String {
    let head = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nspec:\n";
    format!("{head}{}", "- {a: {}}\n".repeat(values / 3))
}

/// Untrusted packages: each with the path to give.
fn hostile(folder: &Path) -> Result<Vec<PathBuf>> {
    let demo = |files: &[(String, Vec<u8>)]| Package::new("demo", files.to_vec()).expect("within the limits");
    let most = 1 << 20;
    let filled = |text: &str| [text.as_bytes(), b"#", &vec![b'x'; most - text.len() - 1]].concat();
    let cases = [
        // Everything at its limit.
        ("large", demo(&(0..8).map(|n| (format!("assets/{n}.yaml"), filled(&heavy(2_450)))).collect::<Vec<_>>()).tar()),
        ("heavy", demo(&[("assets/a.yaml".to_owned(), heavy(19_900).into_bytes())]).tar()),
        ("texts", {
            let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 17), ["*a"; 13].join(","));
            demo(&[("assets/kubernetes/a.yaml".to_owned(), text.into_bytes())]).tar()
        }),
        ("documents", demo(&[("assets/a.yaml".to_owned(), "---\na\n".repeat(9_000).into_bytes())]).tar()),
        ("defects", demo(&[("assets/a.yaml".to_owned(), "---\nkind: x\n".repeat(900).into_bytes())]).tar()),
        // Beyond it.
        ("laughs", {
            let level = |n: usize| format!("l{}: &l{} [{}]\n", n + 1, n + 1, vec![format!("*l{n}"); 10].join(","));
            unchecked(&[format!("l0: &l0 ha\n{}", (0..60).map(level).collect::<String>())])
        }),
        ("nested", unchecked(&["[".repeat(1 << 20)])),
        ("anchors", unchecked(&["- &a 1\n".repeat(1 << 17)])),
        ("wide", unchecked(&vec![heavy(200_000); 4])),
        ("tags", {
            let text = format!("%TAG !e! {}\n---\n{}", "x".repeat(1000), "- &a !e!x 1\n".repeat(50_000));
            unchecked(&[text])
        }),
        ("bomb", unchecked(&[vec![0; 100 << 20]])),
        ("many", unchecked(&vec!["a: 1\n"; 10_000])),
        ("zeros", vec![0; 80 << 20]),
    ];
    let mut paths = Vec::new();
    for (case, tar) in cases {
        let path = folder.join(case).join("demo.tar");
        write(folder, [(&path, tar)])?;
        paths.push(path);
    }
    paths.extend(combining(folder)?);
    let many = folder.join("files/demo");
    write(&many, (0..10_000).map(|n| (format!("assets/{n}.yaml"), "a: 1\n")))?;
    let sparse = folder.join("sparse/demo");
    write(&sparse, [("assets/b.yaml", "b: 1\n")])?;
    fs::File::create(sparse.join("assets/a.yaml"))?.set_len(1 << 40)?;
    let huge = folder.join("huge/demo.tar");
    write(folder, [(&huge, "")])?;
    fs::File::create(&huge)?.set_len(1 << 40)?;
    paths.extend([many, sparse, huge]);
    Ok(paths)
}

/// Packages that hold two things, one for each of the other: each is within the limits, and their product is gigabytes.
fn combining(folder: &Path) -> Result<Vec<PathBuf>> {
    let long = "x".repeat(900_000);
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let secrets = lines(2_000, &|n| format!("      - {{name: v{n}, secret: {{secretName: s{n}}}}}\n"));
    let verbs = lines(4_000, &|n| format!("v{n}, "));
    let tags = lines(5_000, &|n| format!("\"1.{}\": v{n}, ", n + 40));
    let arguments = lines(5_000, &|n| format!("        - --a{n}\n"));
    let variables = lines(3_000, &|n| format!("    A{n}: token\n"));
    let containers = lines(200, &|_| "      - {name: cloud-controller-manager}\n".to_owned());
    let deployment = "assets/kubernetes/deployment.yaml";
    let descriptor = "assets/kubernetes/provider.yaml";
    let mut paths = Vec::new();
    for (case, changes) in [
        (
            "namespace",
            vec![
                (deployment, "namespace: kube-system", format!("namespace: {long}")),
                (deployment, "      volumes:\n", format!("      volumes:\n{secrets}")),
            ],
        ),
        (
            "role",
            vec![(
                "assets/kubernetes/rbac.yaml",
                "rules:\n",
                format!("rules:\n- apiGroups: [{long}]\n  resources: [a]\n  verbs: [{verbs}]\n"),
            )],
        ),
        (
            "permissions",
            vec![(
                descriptor,
                "permissions: []",
                format!("permissions: [{{reason: a, apiGroup: {long}, resource: b, verbs: [{verbs}]}}]"),
            )],
        ),
        (
            "tags",
            vec![
                (descriptor, "repository: ", format!("repository: {long}")),
                (descriptor, "tags: {", format!("tags: {{{tags}")),
            ],
        ),
        (
            "container",
            vec![
                ("assets/deployment.yaml", "- name: cloud-controller-manager", format!("- name: {long}")),
                ("assets/deployment.yaml", "        args:\n", format!("        args:\n{arguments}")),
            ],
        ),
        ("platform", vec![("assets/provider.yaml", "platformName: ", format!("platformName: {long}"))]),
        (
            "variables",
            vec![
                (deployment, "      containers:\n", format!("      containers:\n{containers}")),
                (descriptor, "    EXAMPLE_TOKEN: token\n", format!("    EXAMPLE_TOKEN: token\n{variables}")),
            ],
        ),
    ] {
        let mut files: Vec<_> = embedded::scaffold().into_iter().map(|(path, text)| (path, text.to_owned())).collect();
        for (file, from, to) in changes {
            let (_, text) = files.iter_mut().find(|(path, _)| path == file).expect("a file of the scaffold");
            assert!(text.contains(from), "{file}: {from}");
            *text = text.replacen(from, &to, 1);
        }
        let path = folder.join(case).join("example.tar");
        write(folder, [(&path, Package::new("example", files)?.tar())])?;
        paths.push(path);
    }
    Ok(paths)
}

/// A canonical tar of these manifests, whatever they are.
fn unchecked(manifests: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (n, bytes) in manifests.iter().enumerate() {
        let bytes = bytes.as_ref();
        let empty = Package::new("demo", [(format!("assets/{n:05}.yaml"), [])]).expect("a path").tar();
        let mut header = empty[..512].to_vec();
        header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// Runs the program in little memory. Whatever it says of a package, it ends by itself.
fn ended(arguments: &[impl AsRef<OsStr>]) -> Result<Output> {
    let output = within(MEMORY, binary()).args(arguments).output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    let is_done = [Some(0), Some(1), Some(2)].contains(&output.status.code()) && !message.contains(OUT_OF_MEMORY);
    let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(is_done, "{arguments:?}: {} {message:.2000}", output.status);
    Ok(output)
}

/// A sound package of both flavors, whose descriptors, arguments and files are about as large as they may be.
fn full(folder: &Path) -> Result<PathBuf> {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let tag = |n: usize| format!("\"1.{}\": {{tag: v1.0.{n}, digest: \"{digest}\"}}", 35 + n);
    let tags = (0..200).map(tag).collect::<Vec<_>>().join(", ");
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let arguments = lines(6_500, &|n| format!("        - --a{n:05}={}\n", "x".repeat(60)));
    let set = lines(100, &|n| format!("    A{n:05}: {{value: {}}}\n", "x".repeat(2_000)));
    let own = "arguments:\n  cloud-controller-manager:\n";
    let scaffold = embedded::scaffold();
    let size = (8 << 20) / scaffold.len() - 1_000;
    let files = scaffold.into_iter().map(|(path, text)| {
        let mut text = text
            .replace("tags: {\"1.35\": v1.0.0}", &format!("tags: {{{tags}}}"))
            .replace("manager:v1.0.0", &format!("manager:v1.0.0@{digest}"))
            .replace(own, &format!("environment:\n  cloud-controller-manager:\n{set}{own}"));
        if path.ends_with("/deployment.yaml") {
            text = text.replacen("        args:\n", &format!("        args:\n{arguments}"), 1);
        }
        let comment = format!("# {}\n", "x".repeat(size - text.len()));
        (path, text + &comment)
    });
    let path = folder.join("full/example");
    write(&path, files)?;
    Ok(path)
}

#[test]
fn every_command_reads_a_full_package_within_64_mib() -> Result<()> {
    let folder = TempDir::new()?;
    let (package, ccm) = (full(folder.path())?, folder.path().join("ccm.yaml"));
    let (package, ccm) = (package.to_str().expect("UTF-8"), ccm.to_str().expect("UTF-8"));
    let object = serde_json::json!({
        "apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager", "metadata": {"name": "cluster"},
        "spec": {
            "provider": "example", "cloudConfig": {"configMapRef": {"name": "a", "key": "b"}},
            "credentials": {"secretRef": {"name": "c"}},
        },
    });
    fs::write(ccm, object.to_string())?;
    for (arguments, expected) in [
        (&["provider", "digest", package][..], "sha256:"),
        (&["provider", "verify", package], "read as a folder: 2 providers checked by "),
        (&["provider", "verify", "-o", "json", package], "\"findings\": []"),
        (&["provider", "verify", "-o", "junit", package], "failures=\"0\""),
        (&["provider", "rbac", "--flavor=kubernetes", package], "kind: ClusterRole\n"),
        (&["provider", "rbac", "--flavor=openshift", package], "kind: ClusterRole\n"),
        (&["provider", "show", package], "--a06499="),
        (&["provider", "show", "-o", "json", package], "\"--a06499\""),
        (&["provider", "list", "--provider", package], "example"),
        (&["provider", "pack", package, "-o", "-"], "--a06499="),
        (&["render", "ccm", "--config", ccm, "--kubernetes-version=1.35", "--provider", package], "--a06499="),
    ] {
        let output = ended(arguments)?;
        let (out, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {message:.2000}{out:.2000}");
        assert!(out.contains(expected), "{arguments:?}: {expected} is missing");
    }
    // Its tar is too large for a ConfigMap.
    let install = ["render", "install", "--provider", package];
    let message = String::from_utf8(ended(&install)?.stderr)?;
    assert!(message.contains("and the API server takes 1048576 in a ConfigMap"), "{message:.2000}");
    Ok(())
}

#[test]
fn no_package_takes_more_than_64_mib_or_ends_the_process() -> Result<()> {
    if let Some(path) = env::var_os(PACKAGE) {
        match read::read(Path::new(&path)) {
            Ok(loaded) => {
                let parsed_providers = loaded.package.parsed_providers();
                let found: usize =
                    parsed_providers.iter().map(|parsed| parsed.defects.len() + parsed.misfits().len()).sum();
                assert!(found > 0, "no hostile package is sound");
            }
            Err(error) => assert!(!chain(&error).contains(OUT_OF_MEMORY), "{}", chain(&error)),
        }
        return Ok(());
    }
    let folder = TempDir::new()?;
    let test = "package::memory::no_package_takes_more_than_64_mib_or_ends_the_process";
    for path in hostile(folder.path())? {
        for command in ["digest", "verify", "rbac", "show", "list --provider"] {
            let arguments: Vec<_> = command.split(' ').map(OsStr::new).chain([path.as_os_str()]).collect();
            let output = ended(&[&[OsStr::new("provider")][..], &arguments[..]].concat())?;
            // The digest needs no more than the bytes, and the flavor that is shown may be the one without a defect.
            assert!(["digest", "show"].contains(&command) || !output.status.success(), "{command} {}", path.display());
        }
        let mut command = within(MEMORY, &env::current_exe()?);
        let output = command.args(["--exact", test, "--test-threads=1"]).env(PACKAGE, &path).output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {} {message}", path.display(), output.status);
    }
    for (case, text) in [
        ("list", format!("x: [{}]\n", "a,".repeat(500_000))),
        ("heavy", heavy(60_000)),
        ("laughs", "a: &a [b]\nc: [*a]\n".repeat(9)),
    ] {
        let tree = folder.path().join("tree").join(case);
        write(&tree, (0..4).map(|n| (format!("assets/demo/{n}.yaml"), &text)))?;
        let output = within(MEMORY, binary()).args(["provider", "verify"]).arg(&tree).output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        let is_done = [Some(1), Some(2)].contains(&output.status.code()) && !message.contains(OUT_OF_MEMORY);
        assert!(is_done, "{case}: {} {message}", output.status);
    }
    // A process that needs more ends.
    let output =
        within(MEMORY / 8, binary()).args(["provider", "digest"]).arg(folder.path().join("large/demo.tar")).output()?;
    assert!(String::from_utf8(output.stderr)?.contains(OUT_OF_MEMORY));
    Ok(())
}
