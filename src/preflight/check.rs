//! The checks and their results (pure).

use serde::Serialize;

use crate::text::list::first;

/// Declares the checks: name, id, title.
macro_rules! checks {
    ($($name:ident $id:literal $title:literal)+) => {
        /// A check. Its id is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Check {
            $(
                #[doc = $title]
                #[serde(rename = $id)]
                $name,
            )+
        }

        impl Check {
            /// Every check, in the order of the output.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the id, such as `other-ccm`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }

            /// Returns the name as one word, for the reason of a condition.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Returns the human-readable title.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }
        }
    };
}

checks! {
    Configuration "configuration" "what the object asks for is possible, and the configuration of the cloud is valid"
    Credentials "credentials" "the Secret exists and has the keys that are needed"
    Version "version" "there is an image for this version of Kubernetes"
    AdditionalCcms "additional-ccms" "no other CloudControllerManager runs the same controllers"
    OtherCcm "other-ccm" "no cloud-controller-manager that the operator has not installed runs the same controllers"
    Ports "ports" "the ports on the network of the host are free"
    Kubelets "kubelets" "the kubelets run with --cloud-provider=external"
    ProviderIds "provider-ids" "the providerIDs are of this cloud"
    Region "region" "the nodes of this cloud are in the region of the configuration"
    NodeNames "node-names" "the nodes have the names by which the cloud finds their instances"
    NodeIps "node-ips" "the cloud knows the addresses that the kubelets ask for"
    NotReadyNodes "not-ready-nodes" "the nodes are ready"
    Distribution "distribution" "the distribution of Kubernetes, by which the pods reach the API server"
    ControlPlane "control-plane" "there are nodes of the control plane, with their label"
    Taints "taints" "the pods tolerate the taints of the nodes that they would run on"
    Architecture "architecture" "the image is built for the nodes that it would run on"
    Network "network" "the network plugin is ready"
    PodCidrs "pod-cidrs" "the nodes have the subnets for which routes are created"
    PodSecurity "pod-security" "the namespace exists and allows pods on the network of the host"
    Permissions "permissions" "the operator may create the objects and grant their permissions"
    DeletionPermission "deletion-permission" "nobody has given its ServiceAccount the permission to delete nodes"
    AtCloud "at-cloud" "the machines meet the cloud-controller-manager's requirements in the cloud"
    ImagePull "image-pull" "the nodes can pull the image"
    CredentialsAccepted "credentials-accepted" "the cloud accepts the credentials"
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CheckResult {
    /// No problem was found.
    Passed,
    /// A possible problem, which does not stop the installation.
    Warned,
    /// A problem that stops the installation until it is fixed.
    Refused,
    /// The check cannot run from here, so its result is unknown.
    NotChecked,
}

impl CheckResult {
    /// Returns the result in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warned => "warning",
            Self::Refused => "REFUSED",
            Self::NotChecked => "not checked",
        }
    }
}

/// A check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The check.
    pub check: Check,
    /// The result of the check.
    pub result: CheckResult,
    /// The one-word reason, for programs.
    pub reason: &'static str,
    /// The facts found by the check; empty if the title describes them.
    pub message: String,
    /// The fix, or the instructions for a manual check.
    pub fix: String,
}

impl Check {
    fn row(self, result: CheckResult, message: impl Into<String>, fix: impl Into<String>) -> Row {
        Row { check: self, result, reason: self.name(), message: message.into(), fix: fix.into() }
    }

    /// Returns a passed check, with the relevant facts, if any.
    pub(super) fn passed(self, message: impl Into<String>) -> Row {
        self.row(CheckResult::Passed, message, "")
    }

    pub(super) fn warned(self, message: impl Into<String>, fix: impl Into<String>) -> Row {
        self.row(CheckResult::Warned, message, fix)
    }

    pub(super) fn refused(self, message: impl Into<String>, fix: impl Into<String>) -> Row {
        self.row(CheckResult::Refused, message, fix)
    }

    /// Returns a check that could not run, with the reason and the manual check.
    pub(super) fn not_checked(self, why: impl Into<String>, how: impl Into<String>) -> Row {
        self.row(CheckResult::NotChecked, why, how)
    }
}

impl Row {
    /// Returns the row of a skipped check, which warns instead of refusing.
    pub(super) fn skipped(self) -> Self {
        let result = if self.result == CheckResult::Refused { CheckResult::Warned } else { self.result };
        Self { result, ..self }
    }
}

/// Returns the rows with this result in one line, each as `id: message`; a refusal includes its fix.
pub fn line(rows: &[Row], result: CheckResult) -> String {
    let text = |row: &Row| {
        let fix = if result == CheckResult::Refused && !row.fix.is_empty() {
            format!(": {}", row.fix)
        } else {
            String::new()
        };
        format!("{}: {}{fix}", row.check.id(), row.message)
    };
    rows.iter().filter(|row| row.result == result).map(text).collect::<Vec<_>>().join("; ")
}

/// Returns the first row that refuses.
pub fn refusal(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|row| row.result == CheckResult::Refused)
}

/// Returns the status, reason and message of the condition `PreflightPassed`.
pub fn summary(rows: &[Row]) -> (&'static str, &'static str, String) {
    if let Some(row) = refusal(rows) {
        return ("False", row.check.name(), line(rows, CheckResult::Refused));
    }
    let warnings = line(rows, CheckResult::Warned);
    let not_checked = rows.iter().filter(|row| row.result == CheckResult::NotChecked).map(|row| row.check.id());
    let not_checked = format!("not checked: {}", not_checked.collect::<Vec<_>>().join(", "));
    // The operator does not read every namespace, so this check covers less than its title says.
    let is_partial = |row: &&Row| row.check == Check::OtherCcm && row.result == CheckResult::Passed;
    let partial = rows.iter().find(is_partial).map(|row| format!("{}: {}", row.check.id(), row.message));
    let rest = std::iter::once(not_checked).chain(partial).collect::<Vec<_>>().join("; ");
    if warnings.is_empty() {
        ("True", "Passed", rest)
    } else {
        ("True", "Warnings", format!("warnings: {warnings}; {rest}"))
    }
}

/// The maximum number of listed names.
const MOST_NAMES: usize = 5;

/// Returns the names in one line, limited to the first `MOST_NAMES`.
pub(super) fn names<T: AsRef<str>>(all: impl IntoIterator<Item = T>) -> String {
    first(MOST_NAMES, all)
}
