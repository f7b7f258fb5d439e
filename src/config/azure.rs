//! Azure's cloud.conf, JSON (pure).
//!
//! The cloud-controller-manager reads it with a YAML decoder and would take YAML too; installers and the contract say JSON, so
//! that anything else is an error. Names are matched ignoring case and blank counts as unset, as there. A member that is
//! repeated counts by its last value, and where a rule sets it, all of them are set, so that every reader finds the same.

pub mod credentials;
pub mod read;

use serde_json::json;

use crate::facts::Facts;
use crate::text::suggest::did_you_mean;
use crate::{
    config::{Change, Error, Output, Warning, hint},
    text::json::{self, BYTE_ORDER_MARK, Document, Member, is_named},
};

/// `platformStatus.azure.cloudName` as the API defines it.
const CLOUD_NAMES: [&str; 5] =
    ["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", "AzureStackCloud"];

const CLOUD: &str = "cloud";
const VM_TYPE: &str = "vmType";
const PROBE_MODE: &str = "clusterServiceLoadBalancerHealthProbeMode";

/// What a member's value must be for the cloud-controller-manager. Null is always taken, and means unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A string; its YAML decoder makes one of a number or a boolean.
    Text,
    Bool,
    Number,
    Object,
    List,
}

/// The members of the cloud-controller-manager's configuration (cloud-provider-azure v1.36.5).
const KNOWN: [(Kind, &[&str]); 5] = [
    (
        Kind::Text,
        &[
            CLOUD,
            VM_TYPE,
            PROBE_MODE,
            "aadClientCertPassword",
            "aadClientCertPath",
            "aadClientId",
            "aadClientSecret",
            "aadFederatedTokenFile",
            "aadMSIDataPlaneIdentityPath",
            "cloudConfigType",
            "clusterServiceSharedLoadBalancerHealthProbePath",
            "extendedLocationName",
            "extendedLocationType",
            "identitySystem",
            "loadBalancerBackendPoolConfigurationType",
            "loadBalancerName",
            "loadBalancerResourceGroup",
            "loadBalancerSku",
            "location",
            "networkResourceSubscriptionID",
            "networkResourceTenantID",
            "preConfiguredBackendPoolLoadBalancerTypes",
            "primaryAvailabilitySetName",
            "primaryScaleSetName",
            "privateLinkServiceResourceGroup",
            "resourceGroup",
            "resourceManagerEndpoint",
            "routeTableName",
            "routeTableResourceGroup",
            "securityGroupName",
            "securityGroupResourceGroup",
            "subnetName",
            "subscriptionId",
            "systemTags",
            "tags",
            "tenantId",
            "userAgent",
            "userAssignedIdentityID",
            "vnetName",
            "vnetResourceGroup",
        ],
    ),
    (
        Kind::Bool,
        &[
            "cloudProviderBackoff",
            "cloudProviderRateLimit",
            "disableAPICallCache",
            "disableAvailabilitySetNodes",
            "disableAzureStackCloud",
            "disableOutboundSNAT",
            "enableIPTagMutationForExistingPublicIP",
            "enableMigrateToIPBasedBackendPoolAPI",
            "enableMinimumRetryAfter",
            "enableVmssFlexNodes",
            "excludeMasterFromStandardLB",
            "listVmssVirtualMachinesWithoutInstanceView",
            "serviceGatewayEnabled",
            "useFederatedWorkloadIdentityExtension",
            "useInstanceMetadata",
            "useManagedIdentityExtension",
        ],
    ),
    (
        Kind::Number,
        &[
            "availabilitySetsCacheTTLInSeconds",
            "cloudProviderBackoffDuration",
            "cloudProviderBackoffExponent",
            "cloudProviderBackoffJitter",
            "cloudProviderBackoffRetries",
            "cloudProviderRateLimitBucket",
            "cloudProviderRateLimitBucketWrite",
            "cloudProviderRateLimitQPS",
            "cloudProviderRateLimitQPSWrite",
            "clusterServiceSharedLoadBalancerHealthProbePort",
            "loadBalancerBackendPoolUpdateIntervalInSeconds",
            "loadBalancerCacheTTLInSeconds",
            "maximumLoadBalancerRuleCount",
            "nodeInstanceNotFoundGracePeriodInSeconds",
            "nonVmssUniformNodesCacheTTLInSeconds",
            "nsgCacheTTLInSeconds",
            "plsCacheTTLInSeconds",
            "publicIPCacheTTLInSeconds",
            "putVMSSVMBatchSize",
            "routeTableCacheTTLInSeconds",
            "routeUpdateIntervalInSeconds",
            "routeUpdateWaitingInSeconds",
            "vmCacheTTLInSeconds",
            "vmssCacheTTLInSeconds",
            "vmssFlexCacheTTLInSeconds",
            "vmssFlexVMCacheTTLInSeconds",
            "vmssVirtualMachinesCacheTTLInSeconds",
        ],
    ),
    // `Entries` has no name of its own in the Go type, so that it goes by the field's.
    (Kind::Object, &["Entries", "auxiliaryTokenProvider", "tagsMap"]),
    (Kind::List, &["multipleStandardLoadBalancerConfigurations"]),
];

pub(super) fn transform(source: &str, facts: &Facts) -> Result<Output, Error> {
    let cloud = cloud_name(facts.platform_variant())?;
    let mut edit = Edit::of(source)?;
    if let Some((member, text)) = edit.text(CLOUD)?
        && !text.eq_ignore_ascii_case(cloud)
    {
        let message = format!(
            "`cloud` is another cloud than {cloud}, which Infrastructure cluster names \
             (status.platformStatus.azure.cloudName): correct it, or leave it out"
        );
        return Err(Error { line: Some(edit.document.line(member)), message });
    }
    edit.set("the cloud is the one that the Infrastructure names", CLOUD, cloud);
    edit.default_vm_type()?;
    edit.set("one health probe is shared by all Services with the traffic policy Cluster", PROBE_MODE, "shared");
    Ok(edit.finish())
}

pub(super) fn transform_stack(source: &str) -> Result<Output, Error> {
    let mut edit = Edit::of(source)?;
    edit.default_vm_type()?;
    Ok(edit.finish())
}

fn cloud_name(given: &str) -> Result<&'static str, Error> {
    if given.is_empty() {
        return Ok(CLOUD_NAMES[0]);
    }
    CLOUD_NAMES.into_iter().find(|name| *name == given).ok_or_else(|| {
        let hint = did_you_mean(given, CLOUD_NAMES);
        let message = format!(
            "Infrastructure cluster names the cloud {given:?} (status.platformStatus.azure.cloudName), which is none of {}{hint}",
            CLOUD_NAMES.join(", ")
        );
        Error { line: None, message }
    })
}

/// A configuration while rules are applied to it.
struct Edit<'a> {
    document: Document<'a>,
    changes: Vec<Change>,
    warnings: Vec<Warning>,
}

impl<'a> Edit<'a> {
    fn of(source: &'a str) -> Result<Self, Error> {
        let text = source.strip_prefix(BYTE_ORDER_MARK);
        let document = Document::parse(text.unwrap_or(source))?;
        let warnings = checked(&document)?;
        let changes = text.map(|_| rewritten("JSON begins without a byte order mark", "byte order mark"));
        Ok(Self { document, changes: changes.into_iter().collect(), warnings })
    }

    /// The value that counts, unless it is blank.
    fn text(&self, name: &str) -> Result<Option<(&Member<'a>, String)>, Error> {
        let Some(member) = self.document.last(name) else { return Ok(None) };
        let text = member.as_text().ok_or_else(|| Error {
            line: Some(self.document.line(member)),
            message: format!("`{}` must be a string", member.name),
        })?;
        Ok(Some((member, text)).filter(|(_, text)| !text.trim().is_empty()))
    }

    fn default_vm_type(&mut self) -> Result<(), Error> {
        let given = self.text(VM_TYPE)?.map(|(_, text)| text);
        self.set(
            "virtual machines are of the standard type unless another is named",
            VM_TYPE,
            given.as_deref().unwrap_or("standard"),
        );
        Ok(())
    }

    fn set(&mut self, rule: &'static str, name: &'static str, value: &str) {
        let found: Vec<_> = self.document.named(name).map(Member::as_text).collect();
        if !found.is_empty() && found.iter().all(|text| text.as_deref() == Some(value)) {
            return;
        }
        let before = self.document.last(name).map(|member| member.as_text().unwrap_or_else(|| member.value.to_owned()));
        self.document.set(name, &json!(value));
        self.changes.push(Change { rule, key: name.to_owned(), before, after: Some(value.to_owned()) });
    }

    fn finish(mut self) -> Output {
        let mut text = self.document.write();
        if let Some(readable) = json::readable_as_yaml(&text) {
            text = readable;
            let rule = "the cloud-controller-manager reads the file as YAML, which lacks some escapes of JSON";
            self.changes.push(rewritten(rule, "escapes"));
        }
        Output { text, changes: self.changes, warnings: self.warnings }
    }
}

/// The same in another writing.
fn rewritten(rule: &'static str, key: &str) -> Change {
    Change { rule, key: key.to_owned(), before: None, after: None }
}

/// Names what has no effect, and refuses what the cloud-controller-manager would.
fn checked(document: &Document<'_>) -> Result<Vec<Warning>, Error> {
    let mut warnings = Vec::new();
    for (line, member) in document.members() {
        let line = Some(line);
        let name = &member.name;
        let known = KNOWN.iter().find(|(_, names)| names.iter().any(|known| is_named(name, known)));
        let Some((kind, _)) = known else {
            let hint = hint(&warnings, name, KNOWN.iter().flat_map(|(_, names)| names.iter().copied()));
            let message = format!("`{name}` is unknown to the cloud-controller-manager and has no effect{hint}");
            warnings.push(Warning { line, message });
            continue;
        };
        if !kind.takes(member.value) {
            return Err(Error { line, message: format!("`{name}` must be {}", kind.described()) });
        }
        if !document.named(name).next_back().is_some_and(|last| std::ptr::eq(last, member)) {
            warnings
                .push(Warning { line, message: format!("`{name}` is given again further down: the last one counts") });
        }
    }
    Ok(warnings)
}

impl Kind {
    fn takes(self, value: &str) -> bool {
        match value.as_bytes().first() {
            Some(b'n') => true,
            Some(b'"') => self == Self::Text,
            Some(b't' | b'f') => matches!(self, Self::Text | Self::Bool),
            Some(b'{') => self == Self::Object,
            Some(b'[') => self == Self::List,
            _ => matches!(self, Self::Text | Self::Number),
        }
    }

    fn described(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Bool => "true or false, without quotes",
            Self::Number => "a number, without quotes",
            Self::Object => "an object",
            Self::List => "a list",
        }
    }
}

#[cfg(test)]
mod tests;
