//! The operations and their arguments (pure).

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ccm_drivers::contract::{Filter, InstanceSpec, ResourceKind};
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;

use super::Place;

/// An operation with its arguments. Arguments that are not given are left out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, schemars::JsonSchema), serde(deny_unknown_fields))]
#[serde(tag = "operation", content = "arguments", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(crate) enum Call {
    /// What the driver is. It is called without context and settings, before all others.
    Describe,
    /// Where the driver connects to, without a request to the cloud.
    Endpoint {
        /// A place by which the same cloud is reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        through: Option<Place>,
    },
    /// Who the credentials belong to.
    AccountShow {},
    /// Whether what only `instance-create` needs exists, such as the default image.
    VerifySettings {},
    /// All regions.
    RegionList {},
    /// The zones of a region, or of all.
    ZoneList {
        /// The id of the region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// All instances that fit. All that is given has to fit.
    InstanceList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// The id of a zone.
        #[serde(skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        /// The whole name.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The owner.
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Labels with these values.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
    },
    /// One instance.
    InstanceShow(Asked),
    /// Makes an instance and starts it.
    InstanceCreate(Box<Made>),
    /// Deletes an instance and what was made with it. One that is gone is a success.
    InstanceDelete {
        /// The id of the instance.
        id: String,
    },
    /// Starts an instance. One that runs is a success.
    InstanceStart {
        /// The id of the instance.
        id: String,
    },
    /// Stops an instance. One that is stopped is a success.
    InstanceStop {
        /// The id of the instance.
        id: String,
    },
    /// Networks.
    NetworkList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// Machines that instances run on.
    HostList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// Places for disks.
    StorageList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// Images.
    ImageList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// Instance types.
    InstanceTypeList {
        /// The id of a region.
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// What an instance has used.
    InstanceMetrics {
        /// The id of the instance.
        id: String,
    },
    /// Runs a command inside of an instance, and waits for its end.
    InstanceRun {
        /// The id of the instance.
        id: String,
        /// The command and its arguments.
        command: Vec<String>,
    },
}

/// How an instance is named.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, schemars::JsonSchema))]
pub(crate) enum Asked {
    /// By its id.
    #[serde(rename = "id")]
    Id(String),
    /// By the `spec.providerID` of its Node.
    #[serde(rename = "providerID")]
    ProviderId(String),
}

/// What an instance is made of.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(Deserialize, schemars::JsonSchema), serde(deny_unknown_fields))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Made {
    /// The UID of the owner. There is one instance with a key: repeated with the same key and digest, the same one is answered.
    key: String,
    /// The id of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// The name.
    name: String,
    /// The id of the region.
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    /// The id of the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// The image.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// The instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    /// What the instance reads at its first start, in base64. It may have secrets.
    user_data: String,
    /// The networks.
    networks: Vec<String>,
    /// Labels. None begins with `ccm-operator.dev/`.
    labels: BTreeMap<String, String>,
    /// The options, also those that are defaults.
    options: BTreeMap<String, String>,
    /// The digest of all this but the cluster. It is kept with the instance, as the label or tag `ccm-operator.dev/spec`.
    digest: String,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // User data and options may have secrets.
        f.debug_struct("Made").field("key", &self.key).field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<&InstanceSpec> for Made {
    fn from(spec: &InstanceSpec) -> Self {
        let InstanceSpec {
            key,
            cluster,
            name,
            region,
            zone,
            image,
            instance_type,
            user_data,
            networks,
            labels,
            options,
        } = spec;
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self {
            key: key.clone(),
            cluster: given(cluster),
            name: name.clone(),
            region: given(region),
            zone: given(zone),
            image: given(image),
            instance_type: given(instance_type),
            user_data: STANDARD.encode(user_data.bytes()),
            networks: networks.clone(),
            labels: labels.clone(),
            options: options.all().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
            digest: spec.digest(),
        }
    }
}

impl Call {
    /// The instances that fit a filter.
    pub(crate) fn list(filter: &Filter) -> Self {
        let Filter { region, zone, name, owner, labels } = filter.clone();
        Self::InstanceList { region, zone, name, owner, labels }
    }

    /// The inventory of a kind.
    pub(crate) fn inventory(kind: ResourceKind, region: Option<&str>) -> Self {
        let region = region.map(str::to_owned);
        match kind {
            ResourceKind::Network => Self::NetworkList { region },
            ResourceKind::Host => Self::HostList { region },
            ResourceKind::Storage => Self::StorageList { region },
            ResourceKind::Image => Self::ImageList { region },
            ResourceKind::InstanceType => Self::InstanceTypeList { region },
        }
    }

    /// The name of the operation in the protocol.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Endpoint { .. } => "endpoint",
            Self::AccountShow {} => "account-show",
            Self::VerifySettings {} => "verify-settings",
            Self::RegionList {} => "region-list",
            Self::ZoneList { .. } => "zone-list",
            Self::InstanceList { .. } => "instance-list",
            Self::InstanceShow(_) => "instance-show",
            Self::InstanceCreate(_) => "instance-create",
            Self::InstanceDelete { .. } => "instance-delete",
            Self::InstanceStart { .. } => "instance-start",
            Self::InstanceStop { .. } => "instance-stop",
            Self::NetworkList { .. } => "network-list",
            Self::HostList { .. } => "host-list",
            Self::StorageList { .. } => "storage-list",
            Self::ImageList { .. } => "image-list",
            Self::InstanceTypeList { .. } => "instance-type-list",
            Self::InstanceMetrics { .. } => "instance-metrics",
            Self::InstanceRun { .. } => "instance-run",
        }
    }

    /// Whether it may take ten times as long as others.
    pub(crate) const fn is_long(&self) -> bool {
        matches!(self, Self::InstanceCreate(_) | Self::InstanceRun { .. })
    }

    /// The ids that may be answered as not found: what was asked for, and nothing else.
    pub(crate) fn asked(&self) -> Vec<&str> {
        let all = match self {
            Self::Describe
            | Self::Endpoint { .. }
            | Self::AccountShow {}
            | Self::VerifySettings {}
            | Self::RegionList {}
            | Self::InstanceCreate(_) => [None, None],
            Self::ZoneList { region }
            | Self::NetworkList { region }
            | Self::HostList { region }
            | Self::StorageList { region }
            | Self::ImageList { region }
            | Self::InstanceTypeList { region } => [region.as_ref(), None],
            Self::InstanceList { region, zone, .. } => [region.as_ref(), zone.as_ref()],
            Self::InstanceShow(Asked::Id(id) | Asked::ProviderId(id))
            | Self::InstanceDelete { id }
            | Self::InstanceStart { id }
            | Self::InstanceStop { id }
            | Self::InstanceMetrics { id }
            | Self::InstanceRun { id, .. } => [Some(id), None],
        };
        all.into_iter().flatten().map(String::as_str).collect()
    }
}
