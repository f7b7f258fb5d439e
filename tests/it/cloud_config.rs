//! `ccm-operator cloud-config` on files: its output and its errors.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::Result;
use ccm_operator::text::yaml;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{binary, repository};

/// The input files of one cluster.
struct Files {
    dir: TempDir,
}

/// The result of a run.
struct Finished {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Files {
    /// A cluster on this platform, whose ConfigMap holds this text.
    fn new(platform: &str, text: &str) -> Result<Self> {
        let files = Self { dir: TempDir::new()? };
        files.write("infrastructure", &infrastructure(&json!({"type": platform}), &json!({})))?;
        files.write("cloud-config", &config_map(&json!({"config": text})))?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, value: &Value) -> Result<()> {
        Ok(fs::write(self.path(name), value.to_string())?)
    }

    /// Runs the program with every existing file.
    fn run(&self, more: &[&str]) -> Finished {
        let mut command = Command::new(binary());
        command.arg("cloud-config");
        for (flag, file) in [
            ("--cluster-infrastructure-file", "infrastructure"),
            ("--cloud-config-file", "cloud-config"),
            ("--network-file", "network"),
        ] {
            if self.path(file).exists() {
                command.arg(flag).arg(self.path(file));
            }
        }
        finished(command.args(more).output().expect("the binary"))
    }

    /// Runs the program, which must succeed with an empty standard error.
    fn result(&self, more: &[&str]) -> String {
        let Finished { code, stdout, stderr } = self.run(more);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        stdout
    }

    /// Runs the program, which must fail with one line that contains all of these texts, and print nothing else.
    fn refused(&self, expected: &[&str]) {
        let Finished { code, stdout, stderr } = self.run(&[]);
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(2), "", 1), "{stderr}");
        assert!(stderr.starts_with("ccm-operator: "), "{stderr}");
        for text in expected {
            assert!(stderr.contains(text), "{text:?} is not in {stderr}");
        }
    }
}

fn finished(output: Output) -> Finished {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn infrastructure(platform_status: &Value, platform_spec: &Value) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
        "spec": {"cloudConfig": {"name": "cloud-provider-config", "key": "config"}, "platformSpec": platform_spec},
        "status": {"platformStatus": platform_status, "infrastructureName": "lab"},
    })
}

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "cloud-provider-config", "namespace": "openshift-config"},
    })
}

fn network(service_networks: &[&str]) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Network", "metadata": {"name": "cluster"},
        "spec": {"serviceNetwork": service_networks},
    })
}

const PROBES: &str = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";

#[test]
fn only_the_result_is_printed() -> Result<()> {
    let files = Files::new("AWS", "[Global]\n# kept\nZone = a\n")?;
    assert_eq!(files.result(&[]), format!("[Global]\n# kept\nZone = a\n{PROBES}"));

    let empty = infrastructure(&json!({"type": "AWS"}), &json!({}));
    let mut empty = empty;
    empty["spec"]["cloudConfig"] = json!({});
    files.write("infrastructure", &empty)?;
    fs::remove_file(files.path("cloud-config"))?;
    assert_eq!(files.result(&[]), format!("[Global]\n{PROBES}"), "of a cluster without a configuration");

    let files = Files::new("GCP", "[whatever\0 it \"is\n")?;
    assert_eq!(files.result(&[]), "[whatever\0 it \"is\n", "of a cloud whose configuration is copied");
    assert_eq!(files.result(&["--diff"]), "");
    Ok(())
}

#[test]
fn warnings_go_to_standard_error() -> Result<()> {
    let files = Files::new("OpenStack", "[Global]\nregoin = r\n\n[Networkin]\na = b\n")?;
    let Finished { code, stdout, stderr } = files.run(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("[Global]\nregoin = r\nuse-clouds = true\n") && !stdout.contains("warning"), "{stdout}");
    let place = "warning: ConfigMap openshift-config/cloud-provider-config, key config:";
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    for (line, (number, hint)) in stderr.lines().zip([(2, "`Region`"), (4, "`Networking`")]) {
        assert!(line.starts_with(&format!("{place}{number}: ")) && line.contains(hint), "{line}");
    }
    assert_eq!(files.run(&["--diff"]).stderr, stderr, "with --diff as well");
    Ok(())
}

#[test]
fn differences_name_the_rule_and_mask_secrets() -> Result<()> {
    let text = "[Global]\nsecret-name = openstack-credentials\npassword = hunter2\n\
                auth-url = https://me:hunter2@example.com/v3\nregion = r\n[BlockStorage]\nbs-version = v3\n";
    let files = Files::new("OpenStack", text)?;
    let stdout = files.run(&["--diff"]).stdout;
    assert!(!stdout.contains("hunter2"), "{stdout}");
    for line in [
        "--- ConfigMap openshift-config/cloud-provider-config, key config",
        "+++ ConfigMap cloud-conf, key cloud.conf",
        "-secret-name = openstack-credentials",
        " password = ***",
        " auth-url = https://me:***@example.com/v3",
        "-[BlockStorage]",
        "+clouds-file = /etc/openstack/secret/clouds.yaml",
    ] {
        assert!(stdout.lines().any(|found| found == line), "{line:?} is not in {stdout}");
    }
    let rules: Vec<_> = stdout.lines().filter(|line| line.starts_with("# ")).collect();
    for key in ["[Global] secret-name", "[Global] use-clouds", "[BlockStorage]", "[LoadBalancer] max-shared-lb"] {
        let rule = rules.iter().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "));
        assert!(rule.is_some_and(|rule| rule.len() > 10), "{key} is not in {rules:?}");
    }
    Ok(())
}

#[test]
fn feature_gates_are_respected() -> Result<()> {
    let files = Files::new("AWS", "[Global]\n")?;
    let plain = format!("[Global]\n{PROBES}");
    let managed = format!("{plain}NLBSecurityGroupMode = Managed\n");
    for (gates, expected) in [
        ("AWSServiceLBNetworkSecurityGroup=true", &managed),
        ("Other=false,AWSServiceLBNetworkSecurityGroup=True", &managed),
        ("AWSServiceLBNetworkSecurityGroup=false", &plain),
        ("AWSServiceLBNetworkSecurityGroup=true,AWSServiceLBNetworkSecurityGroup=false", &plain),
        ("Other=true", &plain),
    ] {
        assert_eq!(files.result(&["--feature-gates", gates]), *expected, "{gates}");
    }
    Ok(())
}

#[test]
fn address_families_of_vsphere_follow_the_network() -> Result<()> {
    let text = "# Mine.\nglobal:\n  secretName: a\n  secretNamespace: b\nvcenter:\n  vc.example.com: {server: vc.example.com}\n";
    let files = Files::new("VSphere", text)?;
    let status = json!({"type": "VSphere", "vsphere": {
        "apiServerInternalIPs": ["192.0.2.1"], "ingressIPs": ["2001:db8::1"],
    }});
    let spec = json!({"vsphere": {"vcenters": [{"server": "vc.example.com", "datacenters": []}]}});
    files.write("infrastructure", &infrastructure(&status, &spec))?;
    assert_eq!(files.result(&[]), text, "without the network nothing is set");

    files.write("network", &network(&["172.30.0.0/16", "fd02::/112"]))?;
    let output = files.result(&[]);
    assert!(output.starts_with("# Mine.\nglobal:\n  secretName: a\n"), "{output}");
    let value: Value = yaml::from_str(&output)?;
    assert_eq!(value["global"]["ipFamily"], json!(["ipv4", "ipv6"]));
    let excluded = "192.0.2.1/32,2001:db8::1/128,fd69::2/128";
    assert_eq!(
        value["nodes"],
        json!({"excludeInternalNetworkSubnetCidr": excluded, "excludeExternalNetworkSubnetCidr": excluded})
    );
    let diff = files.result(&["--diff"]);
    assert!(diff.contains("\n# global.ipFamily: the address families of the service networks"), "{diff}");
    Ok(())
}

#[test]
fn the_source_of_openshifts_operators_comes_first() -> Result<()> {
    let files = Files::new("AWS", "")?;
    let mut managed = config_map(&json!({"cloud.conf": "[Global]\nZone = m\n"}));
    managed["metadata"] = json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"});
    files.write("cloud-config", &managed)?;
    assert_eq!(files.result(&[]), format!("[Global]\nZone = m\n{PROBES}"));

    let refused = |name: &str, namespace: &str| -> Result<()> {
        managed["metadata"] = json!({"name": name, "namespace": namespace});
        files.write("cloud-config", &managed)?;
        files.refused(&[
            &format!("the cluster would not read ConfigMap {namespace}/{name}: "),
            "Infrastructure cluster names \"cloud-provider-config\"",
        ]);
        Ok(())
    };
    let mut refused = refused;
    refused("other", "openshift-config-managed")?;
    refused("cloud-provider-config", "kube-system")?;
    refused("kube-cloud-config", "openshift-config")?;
    files.write("infrastructure", &infrastructure(&json!({"type": "OpenStack"}), &json!({})))?;
    refused("kube-cloud-config", "openshift-config-managed")?;
    Ok(())
}

#[test]
fn an_error_names_its_source() -> Result<()> {
    let files = Files::new("AWS", "[Global]\nZone = a\nVPC = \"not closed\n")?;
    files.refused(&["ConfigMap openshift-config/cloud-provider-config, key config:3:"]);
    files.write("cloud-config", &config_map(&json!({"cloud.conf": "x = y"})))?;
    files.refused(&["cloud-provider-config, key cloud.conf:1:1: "]);
    files.write("cloud-config", &config_map(&json!({"other": "x"})))?;
    files.refused(&["cloud-provider-config has no key \"config\"", "spec.cloudConfig.key", "it has other"]);
    files.write("cloud-config", &network(&[]))?;
    files.refused(&[files.path("cloud-config").to_str().unwrap(), "kind Network", "ConfigMap"]);
    fs::remove_file(files.path("cloud-config"))?;
    files.refused(&["ConfigMap openshift-config/cloud-provider-config", "create it with key config"]);

    for platform in ["Azure", "VSphere"] {
        let files = Files::new(platform, " \n")?;
        files.refused(&["cloud-provider-config: key config is missing or empty, but this cloud needs a configuration"]);
    }

    let files = Files::new("Azure", "{\n  \"aadClientSecret\": \"hunter2\",\n  \"cloud\": hunter2\n}\n")?;
    files.refused(&["key config:3:"]);
    assert!(!files.run(&[]).stderr.contains("hunter2"));

    let files = Files::new("AWS", "")?;
    files.write("network", &network(&[]))?;
    fs::write(files.path("network"), "kind: [")?;
    files.refused(&[files.path("network").to_str().unwrap(), ":1:"]);
    fs::remove_file(files.path("network"))?;
    files.write("infrastructure", &json!({"kind": "Infrastructure"}))?;
    files.refused(&["status.platformStatus.type"]);
    Ok(())
}

#[test]
fn a_cluster_without_cloud_configuration_is_explained() -> Result<()> {
    for (platform, expected) in [("Libvirt", "platform Libvirt"), ("None", "platform None")] {
        let files = Files::new(platform, "")?;
        files.refused(&["no cloud configuration is synced for this cluster: ", expected]);
    }
    Ok(())
}

#[test]
fn wrong_usage_is_exit_code_two() -> Result<()> {
    let files = Files::new("AWS", "")?;
    for more in
        [&["--feature-gates", "A"][..], &["--feature-gates", "A=maybe"], &["--feature-gates", "=true"], &["more"]]
    {
        let Finished { code, stdout, stderr } = files.run(more);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{more:?}: {stderr}");
    }
    fs::remove_file(files.path("infrastructure"))?;
    let Finished { code, stderr, .. } = files.run(&[]);
    assert!(code == Some(2) && stderr.contains("--cluster-infrastructure-file"), "{stderr}");
    Ok(())
}

/// The blocks of a document in a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_documented_commands_print_the_documented_output() -> Result<()> {
    let text = fs::read_to_string(repository().join("docs/cloud-configuration.md"))?;
    let dir = TempDir::new()?;
    for block in blocks(&text, "yaml") {
        let name = block.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the file's name");
        fs::write(dir.path().join(name), block)?;
    }
    let commands = blocks(&text, "console");
    assert_eq!(commands.len(), 2);
    for block in commands {
        let end = block.lines().take_while(|line| line.ends_with('\\')).count() + 1;
        let lines: Vec<&str> = block.split_inclusive('\n').collect();
        let command = lines[..end].concat();
        let command = command.strip_prefix("$ ").expect("a command");
        let command = command.replacen("ccm-operator", &binary().display().to_string(), 1);
        let output = Command::new("sh").args(["-c", &command]).current_dir(dir.path()).output()?;
        let Finished { code, stdout, stderr } = finished(output);
        assert_eq!((code, format!("{stderr}{stdout}")), (Some(0), lines[end..].concat()), "{command}");
    }
    Ok(())
}
