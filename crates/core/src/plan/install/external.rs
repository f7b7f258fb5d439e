//! The external providers of an installation (pure): `ConfigMap`s with their packages, and arguments with their
//! digests.

use serde_json::{Value, json};

use crate::{
    object::Object,
    plan::substitute::mount,
    provider::{
        self,
        package::{Package, digest},
    },
};

/// The volume with external providers, and its mount path.
const PROVIDERS: &str = "providers";
const PROVIDERS_PATH: &str = "/etc/ccm-operator/providers";

/// The `ConfigMap` with the policy for external providers, and its key.
const POLICY: &str = "provider-policy";
const POLICY_FILE: &str = "policy.yaml";

/// The external providers that an installation contains.
#[derive(Clone, Debug, Default)]
pub struct CarriedProviders {
    /// Their packages.
    pub packages: Vec<Package>,
    /// The text of the policy for them.
    pub policy: Option<String>,
    /// The names of the built-in providers that they may replace.
    pub replace: Vec<String>,
    /// The names of the removed providers whose objects must be deleted.
    pub remove: Vec<String>,
}

impl CarriedProviders {
    /// Returns the `ConfigMap`s with the packages and the policy, as (file, object). Their digests are in the operator's arguments.
    pub fn config_maps(&self, namespace: &str) -> Result<Vec<(String, Value)>, provider::Error> {
        let of_package = |package: &Package| {
            Ok((format!("04_provider_{}.configmap.yaml", package.name()), package.config_map(namespace)?))
        };
        let mut config_maps = self.packages.iter().map(of_package).collect::<Result<Vec<_>, _>>()?;
        config_maps.extend(self.policy.as_ref().map(|policy| {
            let config_map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": POLICY, "namespace": namespace},
                "data": {POLICY_FILE: policy},
            });
            ("04_provider-policy.configmap.yaml".to_owned(), config_map)
        }));
        Ok(config_maps)
    }

    /// Mounts the `ConfigMap`s in the operator's Deployment.
    pub(super) fn mount(&self, deployment: &mut Object) {
        let of_package = |package: &Package| json!({"configMap": {"name": format!("provider-{}", package.name())}});
        let policy = self.policy.as_ref().map(|_| json!({"configMap": {"name": POLICY}}));
        let sources: Vec<_> = self.packages.iter().map(of_package).chain(policy).collect();
        if !self.packages.is_empty() {
            mount(deployment, PROVIDERS_PATH, json!({"name": PROVIDERS, "projected": {"sources": sources}}));
        }
    }

    /// Returns the operator's arguments for the providers.
    pub(super) fn arguments(&self) -> Vec<String> {
        let of_package =
            |package: &Package| format!("--provider={PROVIDERS_PATH}/{}.tar@{}", package.name(), package.digest());
        let mut arguments: Vec<_> = self.packages.iter().map(of_package).collect();
        let replace = if self.packages.is_empty() { &[][..] } else { &self.replace };
        let of_policy =
            |policy: &String| format!("--provider-policy={PROVIDERS_PATH}/{POLICY_FILE}@{}", digest(policy.as_bytes()));
        arguments.extend(self.policy.as_ref().filter(|_| !self.packages.is_empty()).map(of_policy));
        for (flag, names) in [("--replace-built-in", replace), ("--remove-provider", &self.remove)] {
            if !names.is_empty() {
                arguments.push(format!("{flag}={}", names.join(",")));
            }
        }
        arguments
    }
}
