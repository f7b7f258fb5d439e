//! Properties that hold for every vSphere configuration.

use proptest::prelude::*;

use super::*;

/// A document with lines that are not owned, around and inside blocks that are owned.
fn layout() -> impl Strategy<Value = String> {
    let filler = prop_oneof![
        Just(String::new()),
        Just("# a comment: with {signs} [in it]\n".to_owned()),
        Just("\n".to_owned()),
        "[a-f]{1,4}".prop_map(|word| format!("x-{word}: \"{word}\" # c\n")),
        "[a-f]{1,4}".prop_map(|word| format!("y-{word}:\n    # in\n  - {word}: {{k: 'v'}}\n\n  - |\n    text\n")),
    ];
    let vcenter = prop_oneof![
        Just(String::new()),
        Just("vcenter:\n".to_owned()),
        Just("vcenter: {} # none\n".to_owned()),
        Just("\"vcenter\":\n   old:\n      server: old\n      # of old\n   # below\n".to_owned()),
        Just("vcenter: {old: {server: old,\n  port: 1}}\n".to_owned()),
    ];
    let nodes = prop_oneof![
        Just(String::new()),
        Just("nodes: # n\n  internalVmNetworkName: x\n".to_owned()),
        Just("nodes: {internalVmNetworkName: x, other: 1}\n".to_owned()),
    ];
    let global = prop_oneof![
        Just("global:\n  secretName: a # s\n  x: y\n  secretNamespace: 'b'\n".to_owned()),
        Just("global: {secretName: a, x: y, secretNamespace: b}\n".to_owned()),
        Just("global:\n  ipFamily: [ipv4]\n  # f\n  x: y\n".to_owned()),
    ];
    let fillers = || prop::collection::vec(filler.clone(), 0..3).prop_map(|lines| lines.concat());
    let blocks = (vcenter, nodes, global).prop_flat_map(|(a, b, c)| Just(vec![a, b, c]).prop_shuffle());
    (blocks, fillers(), fillers(), fillers(), fillers())
        .prop_map(|(blocks, a, b, c, d)| format!("{a}{}{b}{}{c}{}{d}", blocks[0], blocks[1], blocks[2]))
}

fn any_context() -> impl Strategy<Value = Facts> {
    let names = prop::sample::subsequence(vec!["a.example.com", "b.example.com", "fd00::1"], 0..=3);
    let networks = prop::sample::subsequence(vec!["172.30.0.0/16", "fd02::/112"], 0..=2);
    (names, 0..3_usize, networks, "[ -~]{0,8}").prop_map(|(names, domains, networks, network_name)| {
        let vcenter = |name: &&str| VCenter { server: (*name).into(), port: 1, datacenters: strings(&["D"]) };
        Facts {
            service_networks: strings(&networks),
            vips: strings(&["192.0.2.1", "fd65::1"]),
            ..context(VSphere {
                vcenters: names.iter().map(vcenter).collect(),
                failure_domains: vec![domain("b.example.com", "E"); domains],
                node_networking: NodeNetworking {
                    internal: network(&network_name, &["192.0.2.0/24"], &[]),
                    ..NodeNetworking::default()
                },
            })
        }
    })
}

proptest! {
    #[test]
    fn values_that_are_not_owned_are_kept(source in layout(), context in any_context()) {
        // Another test covers repeated keys.
        prop_assume!(read(&source).is_ok());
        let (before, _) = read(&source).unwrap();
        let output = transform(&source, &context).unwrap();
        let (mut after, _) = read(&output.text).unwrap();
        let spec = context.vsphere.as_ref().unwrap();
        prop_assert_eq!(effective(&after["vcenter"]), effective(&vcenters(spec)));
        prop_assert_eq!(effective(&after["nodes"]), effective(&nodes(spec, &context)));
        let mut before = before;
        for document in [&mut before, &mut after] {
            for key in ["vcenter", "nodes", "labels"] {
                document.as_object_mut().unwrap().remove(key);
            }
            document["global"].as_object_mut().unwrap().remove("ipFamily");
        }
        prop_assert_eq!(before, after);
        // Every line outside of owned blocks is still there, in its order.
        let mut left = output.text.lines();
        let owned = |line: &&str| line.starts_with(['#', 'x', 'y']) || line.starts_with("  x: ") || line.is_empty();
        for line in source.lines().filter(owned) {
            prop_assert!(left.any(|kept| kept == line), "{} is gone from\n{}", line, output.text);
        }
        let again = transform(&output.text, &context).unwrap();
        prop_assert_eq!(again.text, output.text);
        prop_assert_eq!(again.changes, vec![]);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), context in any_context()) {
        let _ = transform(&String::from_utf8_lossy(&bytes), &context);
    }

    #[test]
    fn no_yaml_or_ini_syntax_causes_a_panic(
        text in "([a-c\\[\\]{}:,#&*!|>'\"?\\-= \\t\\r\\n\\\\;é]|global|vcenter|nodes|labels|: |\n  ){0,40}",
        context in any_context(),
    ) {
        for source in [text.clone(), format!("global: {text}"), format!("[Global]\n{text}"), format!("{{global: {{{text}")] {
            if let Ok(output) = transform(&source, &context) {
                let again = transform(&output.text, &context);
                prop_assert_eq!(again.map(|again| again.text), Ok(output.text));
            }
        }
    }
}
