use super::*;
use crate::{
    config::tests::keys_and_values,
    facts::vsphere::{FailureDomain, NodeNetworking, Topology, VCenter},
};

mod laws;

const SOURCE: &str = "\
# Of the installer.
global:
  insecureFlag: true   # a lab
  secretName: \"vsphere-creds\"
  secretNamespace: kube-system

vcenter: # the only one
  vc.example.com:
    server: vc.example.com
    datacenters:
    - DC1
    user: someone

# Kept.
x-other: {a: [1, 2]}
";

fn domain(server: &str, datacenter: &str) -> FailureDomain {
    FailureDomain { server: server.into(), topology: Topology { datacenter: datacenter.into() } }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn network(name: &str, subnets: &[&str], excluded: &[&str]) -> NodeNetwork {
    NodeNetwork {
        network: name.into(),
        network_subnet_cidr: strings(subnets),
        exclude_network_subnet_cidr: strings(excluded),
    }
}

fn spec() -> VSphere {
    VSphere {
        vcenters: vec![VCenter { server: "vc.example.com".into(), port: 443, datacenters: strings(&["DC1"]) }],
        ..VSphere::default()
    }
}

fn context(spec: VSphere) -> Facts {
    Facts { vsphere: Some(spec), ..Facts::default() }
}

fn document(text: &str) -> Value {
    yaml::from_str(text).unwrap()
}

fn completed_as(source: &str, facts: &Facts) -> Value {
    let output = transform(source, facts).unwrap();
    let again = transform(&output.text, facts).unwrap();
    assert_eq!((again.text.as_str(), again.changes.len()), (output.text.as_str(), 0), "not idempotent");
    document(&output.text)
}

#[test]
fn nothing_changes_without_the_platform_spec() {
    let odd = "---\r\n'global': {secretName: a, \"secretNamespace\": b}\t# c\r\nvcenter: {a: {server: a}}\r\n...\r\n";
    for source in [SOURCE, odd, "{\"global\":{\"user\":\"a\",\"password\":\"b\",\"server\":\"c\"}}"] {
        let output = transform(source, &Facts::default()).unwrap();
        assert_eq!(output.text, source);
        assert_eq!(output.changes, []);
    }
}

#[test]
fn vcenters_follow_the_infrastructure_and_the_rest_is_kept() {
    let output = transform(SOURCE, &context(spec())).unwrap();
    assert_eq!(
        output.text,
        SOURCE.replace(
            "    server: vc.example.com\n    datacenters:\n    - DC1\n    user: someone\n",
            "    datacenters:\n    - DC1\n    port: 443\n    server: vc.example.com\n"
        )
    );
    assert_eq!(
        keys_and_values(&output.changes),
        [
            ("vcenter.vc.example.com.port", None, Some("443")),
            ("vcenter.vc.example.com.user", Some("(not shown)"), None)
        ]
    );
    assert_eq!(transform(&output.text, &context(spec())).unwrap().changes, []);
}

#[test]
fn a_block_with_the_same_meaning_is_kept() {
    let source =
        "vcenter: {vc.example.com: {port: 443, server: 'vc.example.com', datacenters: [DC1], insecureFlag: no}}
global: {user: a, password: b}\nnodes: {}\n";
    let output = transform(source, &context(spec())).unwrap();
    assert_eq!((output.text.as_str(), output.changes), (source, vec![]));
}

#[test]
fn failure_domains_add_datacenters_and_vcenters() {
    let mut spec = spec();
    spec.failure_domains = vec![
        domain("vc.example.com", "DC1"),
        domain("vc.example.com", "DC2"),
        domain("other.example.com", "DC9"),
        domain("other.example.com", "DC9"),
    ];
    let document = completed_as(SOURCE, &context(spec));
    assert_eq!(
        document["vcenter"],
        json!({
            "vc.example.com": {"server": "vc.example.com", "port": 443, "datacenters": ["DC1", "DC2"]},
            "other.example.com": {"server": "other.example.com", "datacenters": ["DC9"]},
        })
    );
}

#[test]
fn labels_are_set_with_more_than_one_failure_domain() {
    let labeled = format!("{SOURCE}labels:\n  zone: mine # z\n  x: z\n");
    for (domains, source, wanted) in [
        (1, SOURCE, json!(null)),
        (1, &labeled, json!({"zone": "mine", "x": "z"})),
        (2, SOURCE, json!({"zone": "openshift-zone", "region": "openshift-region"})),
        (2, &labeled, json!({"zone": "openshift-zone", "region": "openshift-region", "x": "z"})),
    ] {
        let mut spec = spec();
        spec.failure_domains = vec![domain("vc.example.com", "DC1"); domains];
        assert_eq!(completed_as(source, &context(spec))["labels"], wanted);
    }
    let mut spec = spec();
    spec.failure_domains = vec![domain("vc.example.com", "DC1"); 2];
    let text = transform(&labeled, &context(spec)).unwrap().text;
    assert!(text.ends_with("labels:\n  zone: openshift-zone # z\n  x: z\n  region: openshift-region\n"), "{text}");
}

#[test]
fn address_families_follow_the_service_networks() {
    let (v4, v6) = ("172.30.0.0/16", "fd02::/112");
    for (networks, source, wanted) in [
        (&[][..], None, json!(null)),
        (&[v4], None, json!(null)),
        (&[v4], Some("[ipv6]"), json!(["ipv6"])),
        (&[v6], None, json!(["ipv6"])),
        (&[v4, v6], None, json!(["ipv4", "ipv6"])),
        (&[v6, v4], Some("[ipv4]"), json!(["ipv6", "ipv4"])),
    ] {
        let line = source.map_or_else(String::new, |list| format!("  ipFamily: {list}\n"));
        let source = SOURCE.replace("global:\n", &format!("global:\n{line}"));
        let context = Facts { service_networks: strings(networks), ..context(spec()) };
        assert_eq!(completed_as(&source, &context)["global"]["ipFamily"], wanted, "{networks:?}");
    }
}

#[test]
fn virtual_addresses_are_excluded_once_there_is_ipv6() {
    let mut spec = spec();
    spec.node_networking = NodeNetworking {
        internal: network("in", &["192.0.3.0/24", "fe80::4/128"], &["192.0.2.0/24", "fd69::2/128"]),
        external: network("", &[], &[]),
    };
    let vips = strings(&["192.168.96.3", "fd65::200", "192.168.96.4", "192.168.96.3"]);
    let networks = strings(&["172.30.0.0/16", "fd02::/112"]);
    let mut context = Facts { vips, ..context(spec) };
    assert_eq!(
        completed_as(&format!("{SOURCE}nodes:\n  externalVmNetworkName: gone\n"), &context)["nodes"],
        json!({
            "internalVmNetworkName": "in",
            "internalNetworkSubnetCidr": "192.0.3.0/24,fe80::4/128",
            "excludeInternalNetworkSubnetCidr": "192.0.2.0/24,fd69::2/128",
        })
    );
    context.service_networks = networks;
    let document = completed_as(SOURCE, &context);
    let added = "192.168.96.3/32,fd65::200/128,192.168.96.4/32";
    assert_eq!(document["nodes"]["excludeInternalNetworkSubnetCidr"], format!("192.0.2.0/24,fd69::2/128,{added}"));
    assert_eq!(document["nodes"]["excludeExternalNetworkSubnetCidr"], format!("{added},fd69::2/128"));
}

#[test]
fn values_missing_in_the_infrastructure_are_removed() {
    let source = format!("{SOURCE}nodes:\n  internalVmNetworkName: a\n");
    let output = transform(&source, &context(VSphere::default())).unwrap();
    let after = document(&output.text);
    assert_eq!((&after["vcenter"], &after["nodes"]), (&json!({}), &json!({})));
    assert!(output.text.contains("vcenter: {}\n\n# Kept."), "{}", output.text);
    assert!(output.warnings.iter().any(|warning| warning.message.starts_with("no vCenter is listed")));
}

#[test]
fn the_minimal_configuration_is_completed() {
    let output = transform(MINIMAL, &context(spec())).unwrap();
    assert_eq!(output.warnings, []);
    assert_eq!(document(&output.text)["vcenter"]["vc.example.com"]["server"], "vc.example.com");
}

#[test]
fn every_layout_is_edited_correctly() {
    let wanted = json!({"vc.example.com": {"server": "vc.example.com", "port": 443, "datacenters": ["DC1"]}});
    let network = "fd02::/112".to_owned();
    let context = Facts { service_networks: vec![network], ..context(spec()) };
    for source in [
        "{global: {user: a, password: b}, x: {y: [z]}}",
        "{\"global\":{\"user\":\"a\",\"password\":\"b\"},\n  \"vcenter\": {}, \"x\": {\"y\":[\"z\"]}}\n",
        "---\nglobal: {user: a, password: b}\nx: {y: [z]}\n...\n",
        "---\r\nglobal:\r\n    user: a\r\n    password: b # p\r\nx:\r\n  y: [z]\r\n",
        "global:\n  user: a\n  password: b\nvcenter:\nx:\n  y:\n  - z",
        "global:\n  user: a\n  password: b\nvcenter: {old: {server: old}}\nx: {y: [z]}\n---\nother: 1\n",
        "base: &b {user: a, password: b}\nglobal:\n  <<: *b\nvcenter: &v {}\nx: {y: [z]}\n",
        "{global: {user: a, password: b,}, vcenter, x: {y: [z]},}",
        "\u{feff}global: {user: a, password: b}\nx: {y: [z]}\n",
        "\u{feff}vcenter: {}\nglobal: {user: a, password: b, ipFamily: }\nx: {y: [z]}\n",
        "vcenter: *v\nglobal: {user: a, password: b}\nx: {y: [z]}\n"
            .replacen("vcenter", "v: &v {}\nvcenter", 1)
            .as_str(),
    ] {
        let output = transform(source, &context).unwrap_or_else(|error| panic!("{source:?}: {error}"));
        let (after, _) = read(&output.text).unwrap();
        assert_eq!(after["vcenter"], wanted, "{source:?}: {}", output.text);
        assert_eq!(after["global"], json!({"user": "a", "password": "b", "ipFamily": ["ipv6"]}), "{source:?}");
        assert_eq!(after["x"], json!({"y": ["z"]}), "{source:?}: {}", output.text);
        assert_eq!(transform(&output.text, &context).unwrap().changes, [], "{source:?}: {}", output.text);
        assert_eq!(output.text.contains("\r\n"), source.contains("\r\n"));
        assert_eq!(output.text.starts_with('\u{feff}'), source.starts_with('\u{feff}'));
    }
    for source in [
        "vcenter: &a\n  old: {server: o}\nglobal: {user: a, password: b}\nz: *a\n",
        "vcenter: &a {old: {server: o}}\nglobal: {user: a, password: b}\nz: *a\n",
        "? global\n: {user: a, password: b}\n",
    ] {
        let error = transform(source, &context).unwrap_err();
        assert!(error.message.contains("layout"), "{error}");
    }
}

const INI: &str = "\
; of the installer
[Global]
secret-name = \"vsphere-creds\"
secret-namespace = \"kube-system\"
insecure-flag = \"1\"
ip-family = ipv6
ca-bundle = x

[Workspace]
server = \"vc.example.com\"
folder = \"/DC1/vm/F1\"

[VirtualCenter \"vc.example.com\"]
datacenters = \"DC1, DC2,\"
port = 8443

[Nodes]
internal-vm-network-name = \"VM Network\"

[Labels]
region = r
zone =

[LoadBalancer]
ip-pool-name = pool
tags = {\\\"a\\\": \\\"b\\\"}
snat-disabled

[Unknown]
a = b

[LoadBalancerClass]
";

#[test]
fn the_legacy_ini_is_converted_to_yaml() {
    let output = transform(INI, &Facts::default()).unwrap();
    assert_eq!(
        document(&output.text),
        json!({
            "global": {"secretName": "vsphere-creds", "secretNamespace": "kube-system", "insecureFlag": true,
                       "ipFamily": ["ipv6"]},
            "vcenter": {"vc.example.com": {"server": "vc.example.com", "port": 8443, "datacenters": ["DC1", "DC2"]}},
            "nodes": {"internalVmNetworkName": "VM Network"},
            "labels": {"region": "r"},
            "loadBalancer": {"ipPoolName": "pool", "tags": {"a": "b"}, "snatDisabled": true},
        })
    );
    let changes: Vec<_> = output.changes.iter().map(|change| change.key.as_str()).collect();
    assert_eq!(changes, ["format", "[Workspace] server", "[Workspace] folder"]);
    let lines: Vec<_> = output.warnings.iter().map(|warning| warning.place.map(|place| place.line)).collect();
    assert_eq!(lines, [Some(7), Some(29), Some(32)]);
    assert_eq!(transform(&output.text, &Facts::default()).unwrap().changes, []);
    let with_spec = completed_as(INI, &context(spec()));
    assert_eq!(with_spec["vcenter"]["vc.example.com"]["port"], 443);
    assert_eq!(with_spec["nodes"], json!({}));
}

#[test]
fn values_that_the_ccm_refuses_are_errors_with_a_line() {
    let head = "global: {user: a, password: b}\n";
    for (source, line, words) in [
        ("", None, "empty"),
        ("# only\n", None, "empty"),
        ("---\n", None, "neither"),
        (":", Some(1), ""),
        ("just text", None, "neither"),
        ("[a, b", Some(1), "`]` is missing"),
        ("global: {}\nglobal: {}\n", Some(2), "a key stands twice, remove one"),
        ("global: {}\n  a: [\n", Some(2), ""),
        ("global:\n\tuser: a\n", Some(2), ""),
        (head, None, "no vCenter"),
        (&format!("{head}vcenter:\n  a:\n    port: 1\n"), Some(3), "names no `server`"),
        (&format!("{head}vcenter:\n  a:\n"), Some(3), "`vcenter.a` must be a mapping"),
        (&format!("{head}vcenter: {{a: {{server: a, port: \"1\"}}}}\n"), Some(2), "`vcenter.a.port` must be a whole"),
        (&format!("{head}vcenter: {{a: {{server: a, datacenters: DC}}}}\n"), Some(2), "must be a list"),
        ("global:\n  insecureFlag: \"true\"\n", Some(2), "`global.insecureFlag` must be `true` or `false`"),
        ("labels: x\n", Some(1), "`labels` must be a mapping"),
        ("vcenter:\n  a: {server: a}\n", Some(2), "no credentials"),
        ("[Global]\nport = x\n", Some(2), "a whole number"),
        ("[VirtualCenter]\n", Some(1), "needs a name"),
        ("[Global]\nip-family = ipv5\n", Some(2), "`ipv4`, `ipv6` or both"),
        ("[Global]\nuser = \"x\n", Some(2), "closing quote"),
    ] {
        let error = transform(source, &Facts::default()).unwrap_err();
        assert!(error.message.to_lowercase().contains(&words.to_lowercase()), "{source:?}: {error}");
        assert_eq!(error.place.map(|place| place.line), line, "{source:?}: {error}");
    }
}

#[test]
fn keys_that_the_ccm_ignores_are_warnings_with_a_line() {
    let head = "vcenter:\n  a: {server: a}\nglobal:\n  user: a\n  password: b\n";
    for (source, line, words) in [
        ("  ca-file: x\n", 6, "`global.ca-file` is unknown and has no effect (did you mean `caFile`?)"),
        ("  insecure-flag: true\n", 6, "did you mean `insecureFlag`?"),
        ("  zone: x\n", 6, "(it belongs in `labels`)"),
        ("Labels: {}\n", 6, "`Labels` is unknown and has no effect (did you mean `labels`?)"),
        ("VirtualCenter: {}\n", 6, "did you mean `vcenter`?"),
        ("x-mine: 1\n", 6, "this key is unknown and has no effect"),
        ("labels: {password:hunter2}\n", 6, "`labels.password` is unknown and has no effect (is a space missing after"),
        ("loadBalancer:\n  snatDisabled: \"x\"\n", 7, "until then section `loadBalancer` has no effect"),
        ("---\na: 1\n", 6, "another document begins here"),
    ] {
        let output = transform(&format!("{head}{source}"), &Facts::default()).unwrap();
        let [warning] = &output.warnings[..] else { panic!("{source:?}: {:?}", output.warnings) };
        assert!(warning.message.contains(words), "{warning}");
        assert_eq!(warning.place.map(|place| place.line), Some(line), "{warning}");
    }
}

#[test]
fn messages_contain_no_secrets() {
    let source = "global: {user: hunter1, password: hunter2}\nvcenter:\n  a: {server: a, user: hunter3, password: \
                  hunter4, pasword: hunter5}\n";
    let output = transform(source, &context(spec())).unwrap();
    assert_eq!(output.changes.len(), 7, "{:?}", output.changes);
    assert!(!format!("{:?}{:?}", output.changes, output.warnings).contains("hunter"), "{:?}", output.changes);
    for source in ["global: {password: [hunter]}", "[Global]\npassword = hunter2\\x", "global: {password: hunter2"] {
        let error = transform(source, &Facts::default()).unwrap_err();
        assert!(!error.message.contains("hunter"), "{error}");
    }
}

#[test]
fn exponential_and_deeply_nested_documents_are_refused() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb.extend([format!("a{level}: &a{level} [{}]\n", vec![alias; 9].join(","))]);
    }
    for source in [bomb, "[".repeat(100_000), "a: ".to_owned() + &"{a: ".repeat(100_000), "- ".repeat(100_000)] {
        assert!(transform(&source, &context(spec())).is_err());
    }
}
