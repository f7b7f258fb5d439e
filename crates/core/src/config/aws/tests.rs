use super::*;

fn context(gates: &[&str]) -> Facts {
    Facts { feature_gates: gates.iter().map(|&gate| gate.to_owned()).collect(), ..Facts::default() }
}

fn transformed(source: &str) -> Output {
    transform(source, &context(&[])).unwrap_or_else(|error| panic!("{source:?}: {error}"))
}

#[test]
fn health_probes_are_shared_unless_set() {
    let cases = [
        ("", "[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared\n"),
        (" \n", " \n[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared\n"),
        ("[Global]\n", "[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared\n"),
        ("[global]\nvpc=a\n", "[global]\nvpc=a\nClusterServiceLoadBalancerHealthProbeMode=Shared\n"),
        (
            "[Global]\nclusterserviceloadbalancerhealthprobemode = ServiceNodePort\n",
            "[Global]\nclusterserviceloadbalancerhealthprobemode = ServiceNodePort\n",
        ),
        (
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode\n",
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared\n",
        ),
        (
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = \"\" ; c\n",
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared ; c\n",
        ),
    ];
    for (source, expected) in cases {
        let output = transformed(source);
        assert_eq!(output.text, expected, "{source:?}");
        assert_eq!(output.warnings, [], "{source:?}");
        assert_eq!(output.changes.is_empty(), source == expected);
    }
    let change = &transformed("").changes[0];
    assert_eq!(change.key, "[Global] ClusterServiceLoadBalancerHealthProbeMode");
    assert_eq!((&change.before, change.after.as_deref()), (&None, Some("Shared")));
}

#[test]
fn the_feature_gate_overrides_the_security_group_mode() {
    let with_gate = |source: &str| transform(source, &context(&["Other", SECURITY_GROUPS_GATE])).unwrap();
    let probes = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";
    let expected = format!("[Global]\n{probes}NLBSecurityGroupMode = Managed\n");
    for source in ["", "[Global]\n", &format!("[Global]\n{probes}NLBSecurityGroupMode = Other\n")] {
        assert_eq!(with_gate(source).text, expected, "{source:?}");
        assert_eq!(with_gate(source).warnings, []);
    }
    assert_eq!(with_gate(&expected), Output { text: expected, ..Output::default() });
    let source = format!("[Global]\n{probes}NLBSecurityGroupMode = Other\n");
    let without_gate = transformed(&source);
    assert_eq!(without_gate.text, source);
    assert_eq!(without_gate.warnings[0].place.map(|place| place.line), Some(3));
}

#[test]
fn everything_else_is_kept() {
    let source = "# by the installer\n[Global]\nNodeIPFamilies=ipv4\nNodeIPFamilies=ipv6\nMadeUp = 1\n\n\
                  [ServiceOverride \"2\"]\nService = s3\nRegion = r\nURL = https://x?a=b\nSigningRegion = r ; why\n\
                  [ServiceOverride \"1\"]\nService = ec2\nRegion = r\nURL = https://y\nSigningRegion = r\n";
    let output = transformed(source);
    let expected = source.replace("MadeUp = 1\n", "MadeUp = 1\nClusterServiceLoadBalancerHealthProbeMode = Shared\n");
    assert_eq!(output.text, expected);
}

#[test]
fn ignored_keys_and_sections_are_warnings() {
    let cases = [
        ("[Global]\nRegionn = a\n", 2, "does not know [Global] Regionn and ignores it (did you mean `Region`?)"),
        ("[Global]\nSigningName = a\n", 2, "ignores SigningName in [Global]: it belongs in [ServiceOverride]"),
        (
            "[Glbal]\nRegion = a\n",
            1,
            "does not know the section [Glbal] and ignores all its keys (did you mean `Global`?)",
        ),
        ("[Global]\n[Global \"x\"]\nRegion = a\n", 2, "[Global] has no sub-sections"),
        (
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = shared\n",
            2,
            "takes `Shared` or `ServiceNodePort` only, spelled like this",
        ),
    ];
    for (source, line, words) in cases {
        let warnings = transformed(source).warnings;
        assert_eq!(warnings.len(), 1, "{source:?}: {warnings:?}");
        assert_eq!(warnings[0].place.map(|place| place.line), Some(line), "{source:?}");
        assert!(warnings[0].message.contains(words), "{source:?}: {}", warnings[0]);
    }
    assert_eq!(transformed("[Global]\nregion = a\nSUBNETID = b\n").warnings, []);
}

#[test]
fn refused_values_are_errors() {
    let override_1 = "[ServiceOverride \"1\"]\nService = s3\nRegion = r\nURL = u\nSigningRegion = r\n";
    let cases = [
        ("[Global]\nDisableSecurityGroupIngress = maybe\n".to_owned(), 2, "give `true` or `false`"),
        ("[Global]\nRegion\n".to_owned(), 2, "[Global] Region has no value; write `Region = TEXT`"),
        ("[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 3000000000\n".to_owned(), 2, "whole number"),
        ("[ServiceOverride \"1\"]\nService = s3\n".to_owned(), 1, "give Region a value"),
        ("[ServiceOverride]\n".to_owned(), 1, "give Service a value"),
        (override_1.to_owned() + &override_1.replace('1', "2"), 6, "remove one"),
        ("Region = a".to_owned(), 1, "first section"),
    ];
    for (source, line, words) in cases {
        let error = transform(&source, &context(&[])).unwrap_err();
        assert_eq!(error.place.map(|place| place.line), Some(line), "{source:?}: {error}");
        assert!(error.message.contains(words), "{source:?}: {error}");
    }
}
