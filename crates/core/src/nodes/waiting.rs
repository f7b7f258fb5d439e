//! The waiting nodes as the operator reports them, without untrusted text (pure).

use std::collections::BTreeMap;

use crate::nodes::{
    diagnosis::{Diagnosis, Finding, State},
    reason::Reason,
};

/// A waiting node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The name.
    pub node: String,
    /// The unique id.
    pub uid: String,
    /// The time when the wait began, RFC 3339.
    pub since: String,
    /// The reason for the wait.
    pub reason: Reason,
    /// The recognized cause.
    pub cause: String,
}

/// Returns the waiting nodes, the longest wait first.
pub fn waiting(diagnoses: &[Diagnosis]) -> Vec<Waiting> {
    let is_open = |diagnosis: &&Diagnosis| match diagnosis.state {
        State::Uninitialized => true,
        State::NotManaged => diagnosis.findings.iter().any(|one| one.reason == Reason::KubeletNotExternal),
        State::Initialized | State::NoCloud | State::Deleted => false,
    };
    let of = |diagnosis: &Diagnosis| {
        let Finding { reason, cause, .. } = diagnosis.findings.first()?;
        Some(Waiting {
            node: diagnosis.node.clone(),
            uid: diagnosis.uid.clone(),
            since: diagnosis.since.clone().unwrap_or_default(),
            reason: *reason,
            cause: cause.clone(),
        })
    };
    let mut waiting: Vec<_> = diagnoses.iter().filter(is_open).filter_map(of).collect();
    waiting.sort_by(|one, other| (&one.since, &one.node).cmp(&(&other.since, &other.node)));
    waiting
}

/// Returns the number of waiting nodes for each reason, the most common reason first and ties by id.
pub fn by_reason(waiting: &[Waiting]) -> Vec<(Reason, usize)> {
    let mut counts: BTreeMap<Reason, usize> = BTreeMap::new();
    for one in waiting {
        *counts.entry(one.reason).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(node: &str, state: State, since: &str, reasons: &[Reason]) -> Diagnosis {
        let finding = |reason: &Reason| Finding {
            reason: *reason,
            evidence: String::new(),
            cause: format!("{reason}"),
            fix: String::new(),
        };
        Diagnosis {
            node: node.into(),
            uid: String::new(),
            state,
            provider: String::new(),
            provider_id: String::new(),
            since: Some(since.into()),
            findings: reasons.iter().map(finding).collect(),
            observations: Vec::new(),
        }
    }

    #[test]
    fn those_that_wait_longest_come_first_and_the_commonest_reason_counts() {
        use Reason::{CredentialsRefused, InstanceNotFound, InstanceStopped, KubeletNotExternal, NoZone};
        let all = waiting(&[
            diagnosis("a", State::Uninitialized, "3", &[InstanceNotFound, NoZone]),
            diagnosis("b", State::Uninitialized, "1", &[CredentialsRefused]),
            diagnosis("c", State::Uninitialized, "2", &[CredentialsRefused]),
            diagnosis("d", State::Uninitialized, "0", &[]),
            diagnosis("e", State::Initialized, "0", &[InstanceStopped]),
            diagnosis("f", State::NotManaged, "4", &[KubeletNotExternal]),
        ]);
        assert_eq!(all.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["b", "c", "a", "f"]);
        let counts = by_reason(&all);
        assert_eq!(counts, [(CredentialsRefused, 2), (InstanceNotFound, 1), (KubeletNotExternal, 1)]);
    }
}
