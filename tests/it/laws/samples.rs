//! Generators of configurations.

use proptest::prelude::*;

/// A line of INI, with keys of both clouds.
fn line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "Region",
        "VPC",
        "NodeIPFamilies",
        "nodeipfamilies",
        "DisableSecurityGroupIngress",
        "ClusterServiceLoadBalancerHealthProbeMode",
        "NLBSecurityGroupMode",
        "nlbsecuritygroupmode",
        "secret-name",
        "Secret-Namespace",
        "kubeconfig-path",
        "use-clouds",
        "USE-CLOUDS",
        "cloud",
        "clouds-file",
        "use-octavia",
        "max-shared-lb",
        "manage-security-groups",
        "lb-provider",
        "monitor-delay",
        "monitor-max-retries",
        "os-endpoint-type",
        "ClusterServiceSharedLoadBalancerHealthProbePort",
        "public-network-name",
        "made-up",
    ]);
    let value = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "true",
            "1",
            "ipv4",
            "openstack-credentials",
            "kube-system",
            "\"\"",
            "a=b",
            "\"a;b # c\"",
            "\"\\\\ \\\"\"",
            "x \\\n  y",
            "Shared",
            "Managed",
            "https://example.com/?a=b",
            "größe",
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec![
            "-1",
            "+5",
            "0x1F",
            "-0x1",
            "0X1",
            "+0x1",
            "1_0",
            "0x1_0",
            "007",
            "3000000000",
            "99999999999999999999",
            "1 2",
            "0",
            "60",
            "5s",
            "1m30s",
            "1.5h",
            "-2ms",
            ".5s",
            "5 s",
            "on",
            "OFF",
            "Yes",
            "internal",
            "two words",
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z0-9 ./:=-]{0,12}",
    ];
    let comment = prop::sample::select(vec!["", " ; c", " # c \"", "\t"]);
    let equals = prop::sample::select(vec!["=", " = ", " =", "\t=\t"]);
    let indent = prop::sample::select(vec!["", "  ", "\t"]);
    let section = prop::sample::select(vec![
        "[Global]",
        "[global] ; c",
        "[ GLOBAL ]",
        "[LoadBalancer]",
        "[BlockStorage]",
        "[Networking]",
        "[Made-Up]",
        "[LoadBalancerClass \"a ]\"]",
        "[Global \"x\"]",
    ]);
    prop_oneof![
        8 => (indent, key.clone(), equals, value, comment)
            .prop_map(|(indent, key, equals, value, comment)| format!("{indent}{key}{equals}{value}{comment}")),
        1 => key.prop_map(str::to_owned),
        2 => section.prop_map(str::to_owned),
        2 => prop::sample::select(vec!["", " ", "; comment = [x]", "# \"", "\t; a \\"]).prop_map(str::to_owned),
    ]
}

/// An INI text that resembles a cloud's configuration.
pub(crate) fn ini() -> impl Strategy<Value = String> {
    let ends = (any::<bool>(), any::<bool>(), any::<bool>());
    (prop::collection::vec(line(), 0..14), ends).prop_map(|(lines, (header, crlf, last))| {
        let mut text = if header { "[Global]\n".to_owned() } else { String::new() };
        text += &lines.join("\n");
        text += if last { "\n" } else { "" };
        if crlf { text.replace('\n', "\r\n") } else { text }
    })
}

/// Characters with a meaning in INI, in any order.
pub(crate) fn soup() -> impl Strategy<Value = String> {
    "((\\[[Aa]( \"[a\\\\]{0,3}\")?\\]?|\\[Global\\]\n|region *=?)?([a-c_]|[=;#\"\\\\\r\n \t\u{feff}nt])?){0,20}"
}

/// One value of any type, with the characters that have a meaning in values.
pub(crate) fn value() -> impl Strategy<Value = String> {
    let text = "(\\[Global\\]\nregion|\\[Global\\]\r\nregion=)[ =]{0,2}([a-b\"\\\\ ;\r\n=#]|\\\\[nt\"\\\\]){0,8}";
    let key = prop::sample::select(vec![
        "monitor-delay",
        "monitor-max-retries",
        "max-shared-lb",
        "create-monitor",
        "internal-lb",
    ]);
    let typed = (key, "(-|\\+)?(0|0x|0X)?[0-9A-F_.]{0,3}(s|ms|h|m1s|x| )?|true|ON|no|truE|\"\"");
    prop_oneof![2 => text, 1 => typed.prop_map(|(key, value)| format!("[LoadBalancer]\n{key} = {value}\n"))]
}
