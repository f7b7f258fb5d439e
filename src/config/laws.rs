//! What holds of every cloud's configuration, whatever stands in it (tests, pure).

use proptest::prelude::*;

use crate::config::{
    Facts, Transform,
    samples::{ini, soup, value},
};

/// What a transformation may change, by name and ignoring case: keys by section, and whole sections.
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

/// The lines of a text that are not owned, found by an own, simple reading of it.
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
            section = header.split(']').next().unwrap_or_default().trim().to_owned();
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
        // A last line may get an end. Comments of a section that goes may go with it.
        if !dropping {
            kept.push(whole.trim_end_matches(['\r', '\n']).to_owned());
        }
    }
    kept
}

/// Whether all of one list stand in another, in order; and what of the other is more.
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
        // What stands below a section that went now stands in the section before it.
        let of_a_section_that_went = source.contains(line.as_str());
        prop_assert!(new || of_a_section_that_went, "{:?} was added to {:?}", line, source);
    }
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn aws_changes_what_it_owns_and_only_once(source in ini()) {
        obeys(Transform::Aws, &AWS, &Facts::default(), &source)?;
        obeys(Transform::Aws, &AWS, &gate(), &source)?;
    }

    #[test]
    fn openstack_changes_what_it_owns_and_only_once(source in ini()) {
        obeys(Transform::OpenStack, &OPENSTACK, &Facts::default(), &source)?;
    }

    #[test]
    fn nothing_makes_them_panic(
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

#[test]
fn most_texts_that_are_made_are_read() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let read = (0..300).filter(|_| {
        let source = ini().new_tree(&mut runner).unwrap().current();
        Transform::Aws.apply(&source, &Facts::default()).is_ok()
    });
    assert!(read.count() > 100);
}
