//! The cases of the controller cloud-node.

use super::{ADDRESS, ADDRESS_V6, Case, Instance, UNINITIALIZED};

const BETA_TYPE: &str = "beta.kubernetes.io/instance-type";
const TYPE: &str = "node.kubernetes.io/instance-type";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const REGION: &str = "topology.kubernetes.io/region";

/// Nodes that wait.
pub(super) fn initialization() -> Vec<Case> {
    let other_instance = || Instance { addresses: vec!["10.1.0.9"], ..Instance::named("another-name") };
    vec![
        Case::waits("new", "a running instance"),
        Case::waits("new-not-ready", "the kubelet reports Ready=False").ready("False"),
        Case::waits("new-unknown", "Ready=Unknown").ready("Unknown"),
        Case::waits("new-without-ready", "no condition Ready").ready(""),
        Case::waits("new-pending", "an instance that was never started").state("created"),
        Case::waits("new-stopped", "a stopped instance, Ready=True").state("stopped"),
        Case::waits("new-stopped-unknown", "a stopped instance, Ready=Unknown").state("stopped").ready("Unknown"),
        Case::waits("new-odd-state", "an instance in a state that nobody knows").state("rebuilding"),
        Case::waits("new-absent", "no instance, Ready=True").without_instance(),
        Case::waits("new-absent-unknown", "no instance, Ready=Unknown").without_instance().ready("Unknown"),
        Case::waits("new-twice", "two instances with the name, Ready=True")
            .another_instance(Instance::named("new-twice")),
        Case::waits("new-twice-unknown", "two instances with the name, Ready=Unknown")
            .another_instance(Instance::named("new-twice-unknown"))
            .ready("Unknown"),
        Case::waits("new-with-id", "the kubelet has set the providerID").provider_id("fake:///north-1/ID"),
        Case::waits("new-with-id-of-other-name", "the instance of the providerID has another name")
            .provider_id("fake:///north-1/ID")
            .instance(|instance| *instance = other_instance()),
        Case::waits("new-with-other-id", "the providerID is of one instance, the name of another one")
            .provider_id("fake:///north-1/ID")
            .instance(|instance| *instance = other_instance())
            .another_instance(Instance::named("new-with-other-id")),
        Case::waits("new-with-lost-id", "no instance has the providerID, one has the name")
            .provider_id("fake:///north-1/i-ffffffffffffffff"),
        Case::waits("new-with-other-zone", "the providerID has the instance's id and another zone")
            .provider_id("fake:///south-1/ID"),
        Case::waits("new-of-other-cloud", "the providerID is of another cloud, Ready=True")
            .provider_id("other:///north-1/ID"),
        Case::waits("new-of-other-cloud-unknown", "the providerID is of another cloud, Ready=Unknown")
            .provider_id("other:///north-1/ID")
            .ready("Unknown"),
        Case::waits("new-without-zone", "an instance without a zone").instance(|instance| instance.zone = ""),
        Case::waits("new-without-region", "an instance without a region").instance(|instance| instance.region = ""),
        Case::waits("new-without-type", "an instance without a type").instance(|instance| instance.type_name = ""),
        Case::waits("new-without-address", "an instance without addresses").addresses_of_instance(&[]),
        Case::waits("new-dual", "two addresses of the same type").addresses_of_instance(&[ADDRESS, ADDRESS_V6]),
        Case::waits("new-with-same-address", "the same address twice").addresses_of_instance(&[ADDRESS, ADDRESS]),
        Case::waits("new-other-taints", "other taints").taints(&[
            ("example.com/a", "b", "NoExecute"),
            (UNINITIALIZED, "true", "NoSchedule"),
            ("example.com/b", "", "PreferNoSchedule"),
        ]),
        Case::waits("new-two-taints", "the taint with two effects")
            .taints(&[(UNINITIALIZED, "true", "NoSchedule"), (UNINITIALIZED, "true", "NoExecute")]),
        Case::waits("new-empty-taint", "the taint without a value").taints(&[(UNINITIALIZED, "", "NoSchedule")]),
        Case::waits("new-labels", "labels of another zone, region and type")
            .label(ZONE, "south-1")
            .label(REGION, "south")
            .label(TYPE, "large"),
        Case::waits("new.dots.example.com", "a name with dots"),
        Case::waits("0123456789", "a name of digits"),
        Case::waits("new-with-a-name-that-is-as-long-as-the-value-of-a-label-may-be1", "a long name"),
    ]
}

/// Nodes whose kubelet has `--node-ip`.
pub(super) fn provided_addresses() -> Vec<Case> {
    let dual = |name, what| Case::waits(name, what).addresses_of_instance(&[ADDRESS, ADDRESS_V6]);
    vec![
        Case::waits("ip", "--node-ip is the instance's address").provided_ip(ADDRESS),
        Case::waits("ip-of-three", "--node-ip is the second of three addresses")
            .addresses_of_instance(&["10.1.0.7", ADDRESS, "10.1.0.8"])
            .provided_ip(ADDRESS),
        Case::waits("ip-wrong", "--node-ip is no address of the instance").provided_ip("192.0.2.1"),
        Case::waits("ip-empty", "an empty --node-ip").provided_ip(""),
        Case::waits("ip-text", "--node-ip is no address").provided_ip("eth0"),
        Case::waits("ip-zeros", "--node-ip with leading zeros").provided_ip("010.001.000.002"),
        Case::waits("ip-without-address", "--node-ip, and an instance without addresses")
            .addresses_of_instance(&[])
            .provided_ip(ADDRESS),
        dual("ip-dual", "--node-ip with two addresses").provided_ip("10.1.0.2,fd00::2"),
        dual("ip-dual-v6-first", "--node-ip with IPv6 first").provided_ip("fd00::2,10.1.0.2"),
        dual("ip-v6-long", "--node-ip in another form of IPv6").provided_ip("fd00:0:0:0:0:0:0:2"),
        dual("ip-v6-mapped", "--node-ip as IPv6 that stands for IPv4").provided_ip("::ffff:10.1.0.2"),
        dual("ip-dual-one-wrong", "--node-ip of which one is wrong").provided_ip("10.1.0.2,fd00::9"),
        dual("ip-dual-spaces", "--node-ip with a space").provided_ip("10.1.0.2, fd00::2"),
        dual("ip-dual-one-family", "--node-ip twice of one family").provided_ip("10.1.0.2,10.1.0.3"),
        dual("ip-three", "--node-ip with three addresses").provided_ip("10.1.0.2,fd00::2,10.1.0.3"),
    ]
}

/// Nodes that are initialized: their labels and addresses.
pub(super) fn known() -> Vec<Case> {
    let kept = |name| [("Hostname", name), ("InternalIP", ADDRESS)];
    vec![
        Case::known("known", "nothing to do"),
        Case::known("known-address-changed", "the instance has another address").addresses_of_instance(&["10.1.0.5"]),
        Case::known("known-address-added", "the Node has one address more")
            .addresses_of_node(&[kept("known-address-added").as_slice(), &[("InternalIP", "10.1.0.3")]].concat()),
        Case::known("known-address-order", "the same addresses in another order")
            .addresses_of_node(&[("InternalIP", ADDRESS), ("Hostname", "known-address-order")]),
        Case::known("known-dual", "two addresses of the same type, as they are")
            .addresses_of_instance(&[ADDRESS, ADDRESS_V6])
            .addresses_of_node(&[kept("known-dual").as_slice(), &[("InternalIP", ADDRESS_V6)]].concat()),
        Case::known("known-dual-first-changed", "the first of two addresses has changed")
            .addresses_of_instance(&["10.1.0.5", ADDRESS_V6])
            .addresses_of_node(&[kept("known-dual-first-changed").as_slice(), &[("InternalIP", ADDRESS_V6)]].concat()),
        Case::known("known-without-address", "the instance has lost its address").addresses_of_instance(&[]),
        Case::known("known-ip-wrong", "--node-ip is no longer an address of the instance")
            .addresses_of_instance(&["10.1.0.5"])
            .provided_ip(ADDRESS),
        Case::known("known-absent", "no instance, Ready=True").without_instance(),
        Case::known("known-without-id", "no providerID").without_provider_id(),
        Case::known("known-beta-type", "only the old label of the type").without_labels(&[TYPE]),
        Case::known("known-beta-zone", "only the old labels of zone and region").without_labels(&[ZONE, REGION]),
        Case::known("known-new-labels", "only the new labels").without_labels(&[BETA_TYPE, BETA_ZONE, BETA_REGION]),
        Case::known("known-other-labels", "the new labels differ from the old ones")
            .label(TYPE, "large")
            .label(ZONE, "south-1")
            .label(REGION, "south"),
        Case::known("known-wrong-labels", "all labels differ from the instance")
            .label(ZONE, "south-1")
            .label(BETA_ZONE, "south-1"),
    ]
}
