//! The known differences between our cloud-controller-manager and k8s.io/cloud-provider, each with its reason.

/// A difference that is meant.
pub(super) struct Known {
    pub(super) title: &'static str,
    pub(super) reason: &'static str,
    /// The names of Nodes, where `*` stands for all that begin with it, and the fields that differ.
    of: &'static [(&'static str, &'static [&'static str])],
}

impl Known {
    /// Each pair of Nodes and of a field that it lists.
    pub(super) fn listed(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.of.iter().flat_map(|(rows, fields)| fields.iter().map(move |field| (*rows, *field)))
    }

    /// Whether it explains a difference.
    pub(super) fn is_of(&self, row: &str, field: &str) -> bool {
        self.listed().any(|(rows, listed)| listed == field && fits(rows, row))
    }
}

/// Whether a name is one of these.
pub(super) fn fits(rows: &str, row: &str) -> bool {
    rows.strip_suffix('*').map_or(rows == row, |beginning| row.starts_with(beginning))
}

/// The reasons of Events by which ours explains why nothing is done. The library has none for it.
pub(super) const EXPLANATIONS: [&str; 8] = [
    "AccountChanged",
    "AccountIsEmpty",
    "CloudRequestFailed",
    "CredentialsRejected",
    "InstanceNotFound",
    "NodeUpdateRefused",
    "ProvidedNodeIPNotFound",
    "ProviderIDOfOtherCloud",
];

const KEPT: &[&str] = &["deletion", "fewer events", "requests"];

/// All of them. The first one that explains a difference counts.
pub(super) const DIFFERENCES: &[Known] = &[
    Known {
        title: "Nodes of other clouds stay",
        reason: "The library asks the provider of the cloud, and most providers report that an instance of another cloud does not \
                 exist. In clusters that span clouds the Nodes of the others were deleted (hcloud-cloud-controller-manager #7, #9 \
                 and #753). Ours does nothing with a Node whose `spec.providerID` is not of its own cloud.",
        of: &[("new-of-other-cloud-unknown", KEPT), ("gone-of-other-cloud", KEPT)],
    },
    Known {
        title: "An empty account deletes nothing",
        reason: "An account without any instance is more often a wrong account, region or endpoint than an empty cluster. Ours deletes \
                 a Node only after the cloud reported twice that its instance does not exist, the second time with a list of all \
                 instances that succeeded, is not empty, and does not have it.",
        of: &[("empty-running", KEPT), ("empty-stopped", KEPT)],
    },
    Known {
        title: "With another account nothing is done",
        reason: "The library does not know accounts. With the credentials of another one it deletes the Nodes that are not ready, and \
                 initializes Nodes with instances of the same name, whose providerID cannot be changed any more. Ours keeps the id \
                 of the first account with its lease, and changes nothing with those of another one.",
        of: &[
            ("another-running", KEPT),
            ("another-stopped", KEPT),
            ("another-new", &["providerID", "taints", "labels", "addresses", "fewer events", "requests"]),
        ],
    },
    Known {
        title: "Addresses are compared as a list",
        reason: "The library compares one address of each type. With two addresses of a type it sees a change each time, and writes the \
                 status of the Node in every period without a need. It does not see a change of the order, which decides the first \
                 address of a Pod with host network.",
        of: &[
            ("known-address-order", &["addresses", "requests"]),
            ("known-dual*", &["requests", "requests at rest"]),
            ("new-dual", &["requests at rest"]),
            ("ip-dual*", &["requests at rest"]),
        ],
    },
    Known {
        title: "Each address is written once",
        reason: "The API server refuses a Node that has an address twice. If the cloud lists one twice, the library leaves the Node \
                 without the addresses of the cloud.",
        of: &[("new-with-same-address", &["addresses"])],
    },
    Known {
        title: "Nodes are initialized by a patch",
        reason: "The library replaces the whole Node (`update`), from its cache. Ours sends only what it changes, with the UID and \
                 the resource version of the Node that it has seen, so that both fail in the same cases. It needs no permission to \
                 update Nodes.",
        of: &[
            ("new*", &["requests"]),
            ("ip*", &["requests"]),
            ("0123456789", &["requests"]),
            ("then-made (2)", &["requests"]),
            ("then-one-of-two (2)", &["requests"]),
        ],
    },
    Known {
        title: "Ours explains",
        reason: "Where the library only writes to its log, ours creates an Event on the Node, with the error of the cloud and with what \
                 to do. [Our cloud-controller-manager](cloud-controller-manager.md) lists the reasons.",
        of: &[("*", &["explanations"])],
    },
];
