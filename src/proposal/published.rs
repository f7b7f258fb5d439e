//! The parts of a new provider that stand in the manifest that its cloud publishes (pure).
//!
//! Only the program and its settings are taken over. What the operator sets by itself is left out, and everything else is named.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    error::brief,
    nodes::observed::{container, flag},
    object::{items, permissions},
    provider::{
        CCM, is_file, is_variable,
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

/// The flags among them whose values the manifest may have chosen.
const KEPT_BY_OTHERS: [&str; 6] =
    ["bind-address", "cluster-cidr", "cluster-name", "controllers", "feature-gates", "leader-elect-resource-name"];

/// The longest value that is taken over, in bytes.
const LONGEST: usize = 1000;

const NONE: &str = "it has no Deployment, DaemonSet, StatefulSet or Pod with a container that has --cloud-provider, or the name or an \
                    image of a cloud-controller-manager";

/// The program of a published manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// Its image, or why it cannot be taken over.
    pub(crate) image: Option<Result<ImageReference, String>>,
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
        [] => return Err(NONE.to_owned()),
        _ => {
            let names: Vec<_> = found.iter().map(|one| title(one)).collect();
            return Err(format!("several of its objects may be the cloud-controller-manager: {}", names.join(", ")));
        }
    };
    let (pod, ccm) = (pod(workload), container(pod(workload)));
    let command = ccm["command"][0].as_str().map(ToOwned::to_owned);
    if command.as_deref().is_some_and(is_shell) {
        return Err(format!(
            "{} runs a shell: write its program into `command`, and its flags into `args`, one each",
            title(workload)
        ));
    }
    let image = text(&ccm["image"]);
    let mut published = Published {
        image: Some(image.parse().map_err(|problem| format!("its image {image:?}: {problem}"))),
        command,
        ..Published::default()
    };
    published.flags(ccm);
    let volume = published.cloud_config(pod, ccm);
    published.environment(ccm)?;
    published.rest(pod, ccm, volume);
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

fn is_shell(command: &str) -> bool {
    let program = command.rsplit('/').next().unwrap_or_default();
    ["sh", "ash", "bash", "dash", "busybox"].contains(&program)
}

/// Whether a text can stand in a manifest as it is: no control characters, and nothing that looks like a placeholder.
fn is_plain(text: &str) -> bool {
    text.len() <= LONGEST && text.chars().all(|one| (' '..='~').contains(&one)) && !text.contains(['<', '>', '{', '}'])
}

/// Returns the flags of the command line, without hyphens, each with its value; other arguments have no name. Unlike in a shell, one
/// argument is one word.
fn words(container: &Value) -> Vec<(Option<String>, Option<String>)> {
    let all = items(&container["command"]).iter().skip(1).chain(items(&container["args"]));
    let mut given = all.filter_map(Value::as_str).peekable();
    let mut found = Vec::new();
    while let Some(argument) = given.next() {
        let bare = argument.trim_start_matches('-');
        if bare.len() == argument.len() || bare.is_empty() {
            found.push((None, Some(argument.to_owned())));
            continue;
        }
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (bare, given.next_if(|next| !next.starts_with('-'))),
        };
        found.push((Some(name.to_owned()), value.map(ToOwned::to_owned)));
    }
    found
}

impl Published {
    fn left(&mut self, what: impl AsRef<str>, why: &str) {
        // A line break would look like a line of its own.
        let what: String = what.as_ref().chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        self.left.push(format!("{what} -> {why}"));
    }

    fn flags(&mut self, ccm: &Value) {
        let is_on = |name: &str| flag(ccm, name).and_then(|value| boolean(&value)) == Some(true);
        self.routes =
            is_on("configure-cloud-routes") || (is_on("allocate-node-cidrs") && flag(ccm, "cluster-cidr").is_some());
        for (name, value) in words(ccm) {
            let Some(name) = name else {
                self.left(
                    format!("argument {:?}", brief(&value.unwrap_or_default())),
                    "it is no flag: write it into deployment.yaml",
                );
                continue;
            };
            let (flag, given) = (format!("--{name}"), value.unwrap_or_default());
            if name == "cloud-provider" {
                let is_word = !given.is_empty()
                    && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
                if is_word {
                    self.cloud_provider = Some(given);
                } else {
                    self.left(flag, "its value is no name: give --cloud-provider");
                }
            } else if OWN_FLAGS.contains(&name.as_str()) {
                if KEPT_BY_OTHERS.contains(&name.as_str()) {
                    self.left(format!("{flag}={given}"), "the operator sets it from the CloudControllerManager");
                }
            } else if mask::is_secret_key(&name) || mask::text(&given) != given {
                self.left(flag, "its value looks secret: put it into a Secret, and give --credentials");
            } else if !is_plain(&name) || !is_plain(&given) || given.contains("$(") {
                self.left(flag, "its value is not plain text, or refers to a variable: write it into deployment.yaml");
            } else if given.is_empty() {
                self.arguments.push(flag);
            } else {
                self.arguments.push(format!("{flag}={given}"));
            }
        }
    }

    /// Takes over the file of `--cloud-config` with the kind of its volume, which it returns.
    fn cloud_config<'a>(&mut self, pod: &'a Value, ccm: &Value) -> Option<&'a Value> {
        let path = flag(ccm, "cloud-config").filter(|path| !path.is_empty())?;
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", &path));
        if !is_file(file) {
            self.left(format!("--cloud-config={path}"), "it is no path of a file: give --cloud-config");
            return None;
        }
        let is_mount = |mount: &&Value| {
            let at = text(&mount["mountPath"]).trim_end_matches('/');
            at == folder || at == path
        };
        let mount = items(&ccm["volumeMounts"]).iter().find(is_mount);
        let volume = mount.and_then(|mount| items(&pod["volumes"]).iter().find(|one| one["name"] == mount["name"]));
        let volume = volume.filter(|one| one["secret"].is_object() || one["configMap"].is_object());
        if let Some(volume) = volume {
            let holds_credentials = volume["secret"].is_object();
            self.cloud_config = Some(CloudConfig { file: file.to_owned(), holds_credentials });
        } else {
            let why = "no Secret or ConfigMap holds the file: give --cloud-config";
            self.left(format!("--cloud-config={path}"), why);
        }
        volume
    }

    fn environment(&mut self, ccm: &Value) -> Result<(), String> {
        let mut secrets = BTreeMap::<String, String>::new();
        for variable in items(&ccm["env"]) {
            let (name, from) = (text(&variable["name"]), &variable["valueFrom"]);
            let (what, value) = (format!("variable {name}"), text(&variable["value"]));
            if !is_variable(name) {
                self.left(what, "it is no name of a variable");
            } else if let Some(key) = from["secretKeyRef"]["key"].as_str() {
                let secret = text(&from["secretKeyRef"]["name"]);
                if !is_file(key) {
                    self.left(what, "its key is no key of a Secret");
                } else if secrets.insert(key.to_owned(), secret.to_owned()).is_some_and(|other| other != secret) {
                    return Err(format!(
                        "two variables have the key {key} of different Secrets: give one of them another key"
                    ));
                } else {
                    self.credentials.insert(name.to_owned(), key.to_owned());
                }
            } else if from.is_object()
                || name.starts_with("KUBERNETES_SERVICE_")
                || name.to_uppercase().ends_with("_PROXY")
            {
                self.left(what, "write it into deployment.yaml if the program needs it");
            } else if mask::is_secret_key(name) || mask::text(value) != value {
                self.left(what, "it looks secret: give --credentials with a key for it");
            } else if !is_plain(value) || value.contains("$(") {
                self.left(what, "its value is not plain text, or refers to a variable: write it into deployment.yaml");
            } else {
                self.environment.insert(name.to_owned(), value.to_owned());
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
        Ok(())
    }

    /// Names what the pods have besides the volume of the configuration.
    fn rest(&mut self, pod: &Value, ccm: &Value, config: Option<&Value>) {
        let is_config = |volume: &&Value| config.is_some_and(|config| std::ptr::eq(config, *volume));
        for volume in items(&pod["volumes"]).iter().filter(|volume| !is_config(volume)) {
            self.left(
                format!("volume {}", text(&volume["name"])),
                "the pods mount the configuration and certificates only",
            );
        }
        for other in items(&pod["initContainers"]) {
            self.left(format!("init container {}", text(&other["name"])), "the pods have one container");
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
mod tests;
