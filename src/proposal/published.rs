//! The parts of a new provider that stand in the manifest that its cloud publishes (pure).
//!
//! Only the program and its settings are taken over. What the operator sets by itself is left out, and everything else is named.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    nodes::observed::{container, flag, flags},
    object::{items, permissions},
    provider::{
        CCM,
        scaffold::{CloudConfig, ImageReference},
    },
    text::{boolean, mask},
};

/// The kinds of workloads in which a cloud-controller-manager may run.
const WORKLOADS: [&str; 4] = ["Deployment", "DaemonSet", "StatefulSet", "Pod"];

/// Flags that the manifests of a new provider or its descriptor set, or that are only for a program outside of a pod.
const OWN_FLAGS: [&str; 22] = [
    "allocate-node-cidrs",
    "allow-untagged-cloud",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "configure-cloud-routes",
    "controllers",
    "feature-gates",
    "kubeconfig",
    "leader-elect",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "port",
    "secure-port",
    "use-service-account-credentials",
    "v",
    "webhook-secure-port",
];

/// The program of a published manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// Its image.
    pub(crate) image: Option<ImageReference>,
    /// The program; absent if the image decides.
    pub(crate) command: Option<String>,
    /// The name in `--cloud-provider`.
    pub(crate) cloud_provider: Option<String>,
    /// The file of `--cloud-config`.
    pub(crate) cloud_config: Option<CloudConfig>,
    /// The variables with the value of a key of a Secret, with that key.
    pub(crate) credentials: BTreeMap<String, String>,
    /// The other variables.
    pub(crate) environment: BTreeMap<String, String>,
    /// The flags that nobody else sets.
    pub(crate) arguments: Vec<String>,
    /// Whether it creates routes.
    pub(crate) routes: bool,
    /// What is not taken over, each with the reason.
    pub(crate) left: Vec<String>,
}

/// Reads the documents of a manifest. Fails with a human-readable reason if there is not exactly one cloud-controller-manager.
pub(crate) fn read(documents: &[Value]) -> Result<Published, String> {
    let objects: Vec<_> = documents.iter().flat_map(members).collect();
    let is_ccm = |object: &&&Value| WORKLOADS.contains(&kind(object)) && runs_ccm(container(pod(object)));
    let found: Vec<_> = objects.iter().filter(is_ccm).copied().collect();
    let workload = match found[..] {
        [one] => one,
        [] => return Err("it has no Deployment, DaemonSet or Pod whose container has --cloud-provider".to_owned()),
        _ => {
            let names: Vec<_> = found.iter().map(|one| title(one)).collect();
            return Err(format!("several of its objects may be the cloud-controller-manager: {}", names.join(", ")));
        }
    };
    let (pod, ccm) = (pod(workload), container(pod(workload)));
    let mut published = Published {
        command: ccm["command"][0].as_str().map(ToOwned::to_owned),
        cloud_provider: flag(ccm, "cloud-provider").filter(|name| !name.is_empty()),
        ..Published::default()
    };
    published.image(ccm)?;
    published.flags(ccm);
    published.cloud_config(pod, ccm);
    published.environment(ccm);
    published.rest(pod, ccm);
    for object in objects.into_iter().filter(|object| !std::ptr::eq(*object, workload)) {
        published.object(object);
    }
    Ok(published)
}

fn members(document: &Value) -> &[Value] {
    if kind(document).ends_with("List") { items(&document["items"]) } else { std::slice::from_ref(document) }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn title(object: &Value) -> String {
    format!("{} {}", kind(object), text(&object["metadata"]["name"]))
}

fn pod(workload: &Value) -> &Value {
    if kind(workload) == "Pod" { &workload["spec"] } else { &workload["spec"]["template"]["spec"] }
}

fn runs_ccm(container: &Value) -> bool {
    let image = text(&container["image"]);
    flag(container, "cloud-provider").is_some() || image.contains(CCM) || text(&container["name"]) == CCM
}

impl Published {
    fn image(&mut self, ccm: &Value) -> Result<(), String> {
        let image = text(&ccm["image"]);
        self.image = Some(image.parse().map_err(|problem| format!("its image {image:?}: {problem}"))?);
        Ok(())
    }

    fn left(&mut self, what: impl AsRef<str>, why: &str) {
        self.left.push(format!("{} -> {why}", what.as_ref()));
    }

    fn flags(&mut self, ccm: &Value) {
        let is_on = |name: &str| flag(ccm, name).and_then(|value| boolean(&value)) == Some(true);
        self.routes =
            is_on("configure-cloud-routes") || (is_on("allocate-node-cidrs") && flag(ccm, "cluster-cidr").is_some());
        for (name, value) in flags(ccm) {
            if OWN_FLAGS.contains(&name.as_str()) || name.len() == 1 {
                continue;
            }
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            self.arguments.push(format!("--{name}{value}"));
        }
    }

    /// Takes over the file of `--cloud-config` with the kind of its volume.
    fn cloud_config(&mut self, pod: &Value, ccm: &Value) {
        let Some(path) = flag(ccm, "cloud-config").filter(|path| !path.is_empty()) else { return };
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", &path));
        let is_mount = |mount: &&Value| {
            let at = text(&mount["mountPath"]).trim_end_matches('/');
            at == folder || at == path
        };
        let mount = items(&ccm["volumeMounts"]).iter().find(is_mount);
        let volume = mount.and_then(|mount| items(&pod["volumes"]).iter().find(|one| one["name"] == mount["name"]));
        let Some(volume) = volume.filter(|one| one["secret"].is_object() || one["configMap"].is_object()) else {
            return self
                .left(format!("--cloud-config={path}"), "no Secret or ConfigMap holds the file: give --cloud-config");
        };
        self.cloud_config =
            Some(CloudConfig { file: file.to_owned(), holds_credentials: volume["secret"].is_object() });
    }

    fn environment(&mut self, ccm: &Value) {
        for variable in items(&ccm["env"]) {
            let (name, from) = (text(&variable["name"]), &variable["valueFrom"]);
            if let Some(key) = from["secretKeyRef"]["key"].as_str() {
                self.credentials.insert(name.to_owned(), key.to_owned());
            } else if from.is_object() || name.starts_with("KUBERNETES_SERVICE_") {
                self.left(format!("variable {name}"), "write it into deployment.yaml if the program needs it");
            } else if mask::is_secret_key(name) {
                self.left(format!("variable {name}"), "it is secret: give --credentials with a key for it");
            } else {
                self.environment.insert(name.to_owned(), text(&variable["value"]).to_owned());
            }
        }
        for source in items(&ccm["envFrom"]) {
            let name = ["secretRef", "configMapRef"].iter().find_map(|kind| source[*kind]["name"].as_str());
            let what = format!("the variables of {}", name.unwrap_or_default());
            self.left(
                what,
                "name those that the program reads: credentials in --credentials, others in deployment.yaml",
            );
        }
    }

    fn rest(&mut self, pod: &Value, ccm: &Value) {
        let config = self.cloud_config.as_ref().map(|_| flag(ccm, "cloud-config").unwrap_or_default());
        let of_config = |volume: &Value| {
            let mounts = items(&ccm["volumeMounts"]).iter().filter(|mount| mount["name"] == volume["name"]);
            mounts
                .into_iter()
                .any(|mount| config.as_ref().is_some_and(|path| path.starts_with(text(&mount["mountPath"]))))
        };
        for volume in items(&pod["volumes"]).iter().filter(|volume| !of_config(volume)) {
            self.left(
                format!("volume {}", text(&volume["name"])),
                "the pods mount the configuration and certificates only",
            );
        }
        for other in items(&pod["containers"]).iter().filter(|other| other["name"] != ccm["name"]) {
            self.left(format!("container {}", text(&other["name"])), "the pods have one container");
        }
    }

    /// Names an object beside the workload.
    fn object(&mut self, object: &Value) {
        let what = title(object);
        match kind(object) {
            "ServiceAccount" | "ClusterRoleBinding" | "RoleBinding" => {}
            "ClusterRole" | "Role" => {
                let rules = permissions::rules(object).unwrap_or_default();
                let word =
                    |rule: &permissions::PolicyRule| format!("{} {}", rule.resources.join(","), rule.verbs.join(","));
                let all: Vec<_> = rules.iter().map(word).collect();
                let how = "only what the controllers need is granted: put further permissions, with their reasons, into `permissions` of \
                           provider.yaml";
                self.left(format!("{what} ({})", all.join("; ")), how);
            }
            kind if WORKLOADS.contains(&kind) => self.left(what, "it is not the cloud-controller-manager"),
            _ => self.left(what, "the folder holds the cloud-controller-manager only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::yaml;

    const MANIFEST: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: acme}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: acme}
rules:
- {apiGroups: [\"\"], resources: [pods, nodes], verbs: [get, list]}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: acme}
  spec:
    template:
      spec:
        containers:
        - name: manager
          image: acme/ccm:v1.2.3
          command: [/app/acme]
          args: [--cloud-provider=external-acme, --leader-elect=true, --cloud-config=/config/acme.conf, --acme-zone, a, --v=4]
          env:
          - {name: ACME_TOKEN, valueFrom: {secretKeyRef: {name: acme, key: token}}}
          - {name: ACME_PASSWORD, value: s3cret}
          - {name: ACME_REGION, value: west}
          - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          envFrom:
          - secretRef: {name: more}
          volumeMounts: [{name: config, mountPath: /config}, {name: certs, mountPath: /etc/ssl}]
        - {name: side, image: acme/side:1}
        volumes: [{name: config, secret: {secretName: acme}}, {name: certs, hostPath: {path: /etc/ssl}}]
";

    fn of(text: &str) -> Result<Published, String> {
        read(&yaml::documents(text).unwrap())
    }

    #[test]
    fn the_program_is_taken_over_and_the_rest_is_named() {
        let published = of(MANIFEST).unwrap();
        assert_eq!(published.image.as_ref().unwrap().to_string(), "acme/ccm:v1.2.3");
        assert_eq!(published.command.as_deref(), Some("/app/acme"));
        assert_eq!(published.cloud_provider.as_deref(), Some("external-acme"));
        assert_eq!(published.cloud_config, Some(CloudConfig { file: "acme.conf".into(), holds_credentials: true }));
        assert_eq!(published.credentials, [("ACME_TOKEN".to_owned(), "token".to_owned())].into());
        assert_eq!(published.environment, [("ACME_REGION".to_owned(), "west".to_owned())].into());
        assert_eq!(published.arguments, ["--acme-zone=a"]);
        assert!(!published.routes);
        let left = published.left.join("\n");
        for part in [
            "variable ACME_PASSWORD -> it is secret",
            "variable NODE -> ",
            "the variables of more -> ",
            "volume certs -> ",
            "container side -> ",
            "ClusterRole acme (pods,nodes get,list) -> ",
        ] {
            assert!(left.contains(part), "{part}: {left}");
        }
        assert!(!left.contains("s3cret") && !left.contains("volume config"), "{left}");
    }

    #[test]
    fn what_has_none_or_two_is_refused() {
        assert!(of("kind: ConfigMap\n").unwrap_err().starts_with("it has no Deployment"));
        let second = MANIFEST.replace("name: acme}\n  spec:", "name: other}\n  spec:");
        let error = of(&format!("{MANIFEST}---\n{second}")).unwrap_err();
        assert!(error.ends_with("Deployment acme, Deployment other"), "{error}");
        let error = of(&MANIFEST.replace("v1.2.3", "latest")).unwrap_err();
        assert!(error.contains("latest changes by itself"), "{error}");
    }
}
