//! Properties that hold for every configuration in INI, and for every message about a configuration.

pub(crate) mod samples;
#[path = "../../crates/base/src/text/mask/tests/samples.rs"]
mod secrets;

use ccm_operator::{config::Transform, facts::Facts};
use proptest::prelude::*;
use samples::{ini, soup, value};
use secrets::{JSON, YAML, planted};

/// The keys, by section, and the whole sections that a transform may change. Names in lower case.
struct Owned {
    keys: &'static [(&'static str, &'static str)],
    sections: &'static [&'static str],
}

const AWS: Owned = Owned {
    keys: &[("global", "clusterserviceloadbalancerhealthprobemode"), ("global", "nlbsecuritygroupmode")],
    sections: &[],
};

const OPENSTACK: Owned = Owned {
    keys: &[
        ("global", "secret-name"),
        ("global", "secret-namespace"),
        ("global", "kubeconfig-path"),
        ("global", "use-clouds"),
        ("global", "clouds-file"),
        ("global", "cloud"),
        ("loadbalancer", "use-octavia"),
        ("loadbalancer", "max-shared-lb"),
        ("loadbalancer", "manage-security-groups"),
    ],
    sections: &["blockstorage"],
};

fn gate() -> Facts {
    Facts { feature_gates: vec!["AWSServiceLBNetworkSecurityGroup".to_owned()], ..Facts::default() }
}

/// The lines of a text that are not owned, found by an independent, simple parser.
fn not_owned(text: &str, owned: &Owned) -> Vec<String> {
    let (mut kept, mut section, mut dropping) = (Vec::new(), String::new(), false);
    let mut lines = text.split_inclusive('\n');
    while let Some(first) = lines.next() {
        let mut whole = first.to_owned();
        while whole.trim_end_matches(['\r', '\n']).ends_with('\\') && !whole.trim_start().starts_with([';', '#']) {
            let Some(next) = lines.next() else { break };
            whole += next;
        }
        let start = whole.trim().to_lowercase();
        if let Some(header) = start.strip_prefix('[') {
            header.split(']').next().unwrap_or_default().trim().clone_into(&mut section);
            dropping = owned.sections.contains(&section.as_str());
            if dropping {
                continue;
            }
        } else if !start.is_empty() && !start.starts_with([';', '#']) {
            let key = start.split(['=', ' ', '\t']).next().unwrap_or_default();
            if dropping || owned.keys.contains(&(section.as_str(), key)) {
                continue;
            }
        }
        // A line break may be added to the last line. Comments in a removed section may be removed with it.
        if !dropping {
            kept.push(whole.trim_end_matches(['\r', '\n']).to_owned());
        }
    }
    kept
}

/// The additional lines of `after`, if it contains all of `before` in order.
fn more<'a>(before: &[String], after: &'a [String]) -> Option<Vec<&'a String>> {
    let mut wanted = before.iter().peekable();
    let rest = after.iter().filter(|line| wanted.next_if_eq(line).is_none()).collect();
    wanted.peek().is_none().then_some(rest)
}

fn obeys(transform: Transform, owned: &Owned, facts: &Facts, source: &str) -> Result<bool, TestCaseError> {
    let Ok(output) = transform.apply(source, facts) else { return Ok(false) };
    prop_assert_eq!(output.changes.is_empty(), output.text == source, "{:?}", output.changes);

    let again = transform.apply(&output.text, facts);
    prop_assert!(again.is_ok(), "{:?} of {:?}", again, output.text);
    let again = again.unwrap();
    prop_assert_eq!(&again.text, &output.text);
    prop_assert_eq!(again.changes, []);
    prop_assert_eq!(again.warnings.len(), output.warnings.len());

    let (before, after) = (not_owned(source, owned), not_owned(&output.text, owned));
    let Some(added) = more(&before, &after) else {
        return Err(TestCaseError::fail(format!("{source:?} became {:?}", output.text)));
    };
    for line in added {
        let new = line.trim().is_empty() || matches!(line.as_str(), "[Global]" | "[LoadBalancer]");
        // Lines below a removed section now belong to the section before it.
        let of_a_section_that_went = source.contains(line.as_str());
        prop_assert!(new || of_a_section_that_went, "{:?} was added to {:?}", line, source);
    }
    Ok(true)
}

proptest! {
    #[test]
    fn aws_changes_only_owned_keys_and_is_idempotent(source in ini()) {
        obeys(Transform::Aws, &AWS, &Facts::default(), &source)?;
        obeys(Transform::Aws, &AWS, &gate(), &source)?;
    }

    #[test]
    fn openstack_changes_only_owned_keys_and_is_idempotent(source in ini()) {
        obeys(Transform::OpenStack, &OPENSTACK, &Facts::default(), &source)?;
    }

    #[test]
    fn no_input_causes_a_panic(
        bytes in any::<Vec<u8>>(),
        soup in soup(),
        value in value(),
    ) {
        for source in [String::from_utf8_lossy(&bytes).into_owned(), soup, value] {
            for transform in [Transform::Aws, Transform::OpenStack] {
                let _ = transform.apply(&source, &gate());
            }
        }
    }
}

/// A text with a secret, in any layout and with a line that belongs to none, below a section or a mapping.
fn with_a_secret() -> impl Strategy<Value = String> {
    let layouts: Vec<_> = [YAML, secrets::INI, JSON].concat();
    let stray = prop::sample::select(vec![
        "",
        "  ",
        "\nZqMIIEowIBAAKCAQEA0",
        "\nZq one two\n",
        "\nZq=\n",
        "\nx: *Zq\n",
        "\nx: %Zq\n",
        "\nx: !Zq!y z\n",
        "\nZq: 1\nZq: 2\n",
        "\nx: \"Zq\\q\"\n",
        "\n%Zq\n---\n",
        "\nx: !!int Zq\n",
        "\n- Zq\n",
        "\nZq:\n",
    ]);
    let around = prop::sample::select(vec![
        ("", ""),
        ("[Global]\n", ""),
        ("global:\n  user: a\n", ""),
        ("{", "}"),
        ("{\"cloud\": \"a\",", ",\n\"b\": {}}"),
        ("labels:\n", "\nvcenter: {a: 1}"),
        ("vcenter: {password:Zq}\n", ""),
        ("[VirtualCenter \"a\"]\n", "\n[Zq]\n"),
    ]);
    (prop::sample::select(layouts), secrets::key(), "[0-9A-Za-z]{6,12}", stray, around).prop_map(
        |(layout, key, secret, stray, (before, after))| {
            format!("{before}{}{}{after}", planted(layout, &key, &secret), stray.replace("Zq", &format!("Zq{secret}")))
        },
    )
}

proptest! {
    #[test]
    fn no_error_and_no_warning_holds_a_secret(source in with_a_secret(), indent in any::<bool>()) {
        let source = if indent { source.replace('\n', "\n  ") } else { source };
        for transform in [Transform::Aws, Transform::Azure, Transform::AzureStack, Transform::OpenStack, Transform::VSphere] {
            let said = match transform.apply(&source, &gate()) {
                Ok(output) => output.warnings.iter().map(ToString::to_string).collect(),
                Err(error) => vec![error.to_string()],
            };
            prop_assert!(!said.iter().any(|said| said.contains("Zq")), "{:?} about\n{}", said, source);
        }
    }
}

#[test]
fn most_generated_texts_are_valid() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let read = (0..300).filter(|_| {
        let source = ini().new_tree(&mut runner).unwrap().current();
        Transform::Aws.apply(&source, &Facts::default()).is_ok()
    });
    assert!(read.count() > 100);
}
