//! The cases of the controller cloud-node-lifecycle.

use super::{Case, Instance, SHUTDOWN};

/// Nodes that are initialized: whether they are deleted, and the taint of stopped instances.
pub(super) fn cases() -> Vec<Case> {
    let tainted = |name, what| Case::known(name, what).taints(&[(SHUTDOWN, "", "NoSchedule")]);
    let by_name = |name, what| Case::known(name, what).without_provider_id().ready("Unknown");
    vec![
        Case::known("running-not-ready", "a running instance, Ready=False").ready("False"),
        Case::known("running-unknown", "a running instance, Ready=Unknown").ready("Unknown"),
        Case::known("running-without-ready", "a running instance, no condition Ready").ready(""),
        Case::known("stopped-ready", "a stopped instance, Ready=True").state("stopped"),
        Case::known("stopped-not-ready", "a stopped instance, Ready=False").state("stopped").ready("False"),
        Case::known("stopped-unknown", "a stopped instance, Ready=Unknown").state("stopped").ready("Unknown"),
        Case::known("stopped-without-ready", "a stopped instance, no condition Ready").state("stopped").ready(""),
        Case::known("pending-unknown", "an instance that was never started, Ready=Unknown")
            .state("created")
            .ready("Unknown"),
        Case::known("odd-state-unknown", "an instance in a state that nobody knows, Ready=Unknown")
            .state("rebuilding")
            .ready("Unknown"),
        Case::known("gone-not-ready", "no instance, Ready=False").without_instance().ready("False"),
        Case::known("gone-unknown", "no instance, Ready=Unknown").without_instance().ready("Unknown"),
        Case::known("gone-without-ready", "no instance, no condition Ready").without_instance().ready(""),
        Case::known("gone-name-taken", "the providerID of no instance, the name of another one")
            .provider_id("fake:///north-1/i-fffffffffffffffe")
            .ready("Unknown"),
        Case::known("gone-other-zone", "the instance's id with another zone")
            .provider_id("fake:///south-1/ID")
            .ready("Unknown"),
        Case::known("gone-of-other-cloud", "the providerID of another cloud")
            .provider_id("other:///north-1/ID")
            .ready("Unknown"),
        tainted("tainted-ready", "the taint of a stopped instance, Ready=True"),
        tainted("tainted-ready-stopped", "the taint, and the instance is stopped, Ready=True").state("stopped"),
        tainted("tainted-unknown", "the taint, and the instance runs, Ready=Unknown").ready("Unknown"),
        tainted("tainted-stopped", "the taint, and the instance is stopped, Ready=Unknown")
            .state("stopped")
            .ready("Unknown"),
        by_name("by-name-running", "no providerID, a running instance of the name"),
        by_name("by-name-stopped", "no providerID, a stopped instance of the name").state("stopped"),
        by_name("by-name-gone", "no providerID, no instance of the name").without_instance(),
        by_name("by-name-twice", "no providerID, two instances of the name")
            .another_instance(Instance::named("by-name-twice")),
        Case::known("then-deleted", "a running instance").then("the instance is deleted", Some("Unknown"), Vec::clear),
        Case::known("then-deleted-ready", "a running instance").then(
            "the instance is deleted, and the kubelet still reports",
            None,
            Vec::clear,
        ),
        Case::known("then-stopped", "a running instance").then(
            "the instance is stopped",
            Some("Unknown"),
            |instances| instances[0].state = "stopped",
        ),
        Case::known("then-started", "a stopped instance").state("stopped").ready("Unknown").then(
            "the instance runs again",
            Some("True"),
            |instances| instances[0].state = "running",
        ),
        Case::known("then-moved", "a running instance").then("its address changes", None, |instances| {
            instances[0].addresses = vec!["10.1.0.6"];
        }),
        Case::waits("then-made", "no instance, Ready=True").without_instance().then(
            "the instance is made",
            None,
            |instances| instances.push(Instance::named("then-made")),
        ),
        Case::waits("then-one-of-two", "two instances of the name")
            .another_instance(Instance::named("then-one-of-two"))
            .then("one of them is deleted", None, |instances| drop(instances.pop())),
    ]
}
