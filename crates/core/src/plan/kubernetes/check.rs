//! Requests of a `CloudControllerManager` that its provider cannot fulfill, and input that is missing (pure).

use std::collections::BTreeMap;

use super::flags;
use crate::{
    facts::ccm::{Ccm, Controller},
    plan::Error,
    provider::kubernetes::{Credentials, Descriptor, KubernetesProvider},
    text::{Problem, located, mask, suggest::did_you_mean},
};

/// Returns the error for a field of a `CloudControllerManager`.
pub(in crate::plan) fn asked(ccm: &Ccm, field: &str, problem: impl Into<String>) -> Error {
    Error::InvalidSpec { ccm: ccm.name.clone(), field: field.to_owned(), problem: problem.into() }
}

/// A field with an unsupported request, and its problem.
pub(super) type Unfit = (String, String);

#[allow(clippy::unnecessary_wraps, reason = "rules end with it")]
pub(super) fn unfit(field: &str, problem: impl Into<String>) -> Option<Unfit> {
    Some((field.to_owned(), problem.into()))
}

pub(super) fn api(_: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    ccm.spec.check().err().and_then(|(field, problem)| unfit(field, problem))
}

pub(super) fn arguments(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let (given, allowed) = (&ccm.spec.arguments, &descriptor.allowed_arguments);
    let unknown = || given.keys().find(|flag| !allowed.contains(flag));
    let problem = referring(given).or_else(|| Some(not_allowed(descriptor, unknown()?, allowed)));
    unfit("arguments", problem.or_else(|| flags::problem(&descriptor.name, given))?)
}

pub(super) fn feature_gates(_: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let referring = ccm.spec.feature_gates.keys().find(|gate| gate.contains(VARIABLE));
    let problem = referring.map(|gate| format!("the name {gate} refers to a variable by $(): write the text itself"));
    unfit("featureGates", problem.or_else(|| flags::unfit_gate(&ccm.spec.feature_gates))?)
}

/// The beginning of a reference to a variable of the container. Kubernetes replaces it, even by a credential.
const VARIABLE: &str = "$(";

/// Returns the problem of the first value that refers to a variable.
fn referring(values: &BTreeMap<String, String>) -> Option<String> {
    let (name, _) = values.iter().find(|(_, value)| value.contains(VARIABLE))?;
    Some(format!("the value of {name} refers to a variable by $(): write the text itself"))
}

fn not_allowed(descriptor: &Descriptor, unknown: &str, allowed: &[String]) -> String {
    let hint = did_you_mean(unknown, allowed.iter().map(String::as_str));
    format!("provider {} does not allow {unknown}{hint}; it allows {}", descriptor.name, allowed.join(", "))
}

pub(super) fn proxy(_: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let proxy = ccm.spec.proxy.as_ref()?;
    let urls = [("httpProxy", &proxy.http_proxy), ("httpsProxy", &proxy.https_proxy)];
    let all = urls.into_iter().chain([("noProxy", &proxy.no_proxy)]);
    if let Some((field, _)) = all.into_iter().find(|(_, value)| value.contains(VARIABLE)) {
        return unfit(&format!("proxy.{field}"), "it refers to a variable by $(): write the text itself");
    }
    let (field, _) = urls.into_iter().find(|(_, url)| !url.is_empty() && !is_proxy(url))?;
    // It may have a password.
    unfit(&format!("proxy.{field}"), "it is not the URL of a proxy, such as http://proxy.example.com:3128")
}

/// Whether Go takes a text for the URL of a proxy (`golang.org/x/net/http/httpproxy`): without a scheme it is one of HTTP.
fn is_proxy(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "80"),
    };
    ["http", "https", "socks5", "socks5h"].contains(&scheme.to_ascii_lowercase().as_str())
        && !name.is_empty()
        && port.parse::<u16>().is_ok()
        && !url.contains(|one: char| one.is_whitespace() || one.is_control())
}

pub(super) fn environment(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let allowed = &descriptor.allowed_environment;
    if let Some(problem) = referring(&ccm.spec.environment) {
        return unfit("environment", problem);
    }
    if let Some((name, _)) = ccm.spec.environment.iter().find(|(_, value)| value.chars().any(char::is_control)) {
        return unfit("environment", format!("the value of {name} has a control character, such as a line break"));
    }
    let unknown = ccm.spec.environment.keys().find(|variable| !allowed.contains(variable))?;
    let key = descriptor.credentials.as_ref().and_then(|credentials| credentials.environment.get(unknown));
    let problem = match key {
        Some(key) => format!("{unknown} is secret: it is the key {key} of the Secret in credentials.secretRef"),
        None if allowed.is_empty() => {
            format!("provider {} does not allow {unknown}; it allows no variable", descriptor.name)
        }
        None => not_allowed(descriptor, unknown, allowed),
    };
    unfit("environment", problem)
}

pub(super) fn namespace(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let words = descriptor.namespaces.words().filter(|_| !descriptor.namespaces.include(&ccm.spec.namespace))?;
    unfit("namespace", format!("the cloud-controller-manager of provider {}: {words}", descriptor.name))
}

pub(super) fn credentials(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let (name, spec) = (&descriptor.name, &ccm.spec);
    let problem = match (&descriptor.credentials, &spec.credentials) {
        (None, Some(_)) => format!("provider {name} takes no Secret: it uses the identity of the machine"),
        (Some(needed), None) if !needed.optional => {
            format!("provider {name} needs a Secret with the keys {}", needed.keys.join(", "))
        }
        (Some(Credentials { only_with: Some(words), .. }), Some(_)) if spec.cloud_config.is_none() => {
            format!("provider {name} uses the Secret only with a configuration that says {words}")
        }
        _ => return None,
    };
    unfit("credentials", problem)
}

/// Without an enabled controller of its own, the cloud-controller-manager would run all of them.
pub(super) fn node_manager(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let name = descriptor.node_manager.as_ref().filter(|_| descriptor.own(ccm).controllers().next().is_none())?;
    let problem = "initializes nodes, so the cloud-controller-manager itself would run nothing: enable another one";
    unfit("controllers", format!("{name} {problem}"))
}

pub(super) fn load_balancers(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    if descriptor.load_balancers || ccm.controllers().all(|controller| controller != Controller::Service) {
        return None;
    }
    let name = &descriptor.name;
    let problem = format!("the cloud-controller-manager of provider {name} has no load balancers: set it to Disabled");
    unfit("controllers.service", problem)
}

pub(super) fn routes(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    if ccm.controllers().all(|controller| controller != Controller::Route) {
        return None;
    }
    let name = &descriptor.name;
    let Some(routes) = &descriptor.routes else {
        return unfit("controllers.route", format!("the cloud-controller-manager of provider {name} has no routes"));
    };
    let subnets = ccm.spec.network.as_ref().map_or(0, |network| network.pod_cidrs.len());
    if subnets > routes.max_pod_cidrs {
        let problem = format!("the route controller of provider {name} takes {} of them", routes.max_pod_cidrs);
        return unfit("network.podCIDRs", problem);
    }
    let needed = &routes.needs_one_of;
    let is_unmet = !needed.is_empty() && !needed.iter().any(|flag| ccm.spec.arguments.contains_key(flag));
    let problem = || format!("the route controller of provider {name} needs {}", needed.join(" or "));
    is_unmet.then(problem).and_then(|problem| unfit("arguments", problem))
}

pub(super) fn placement(provider: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let (name, placement) = (&provider.descriptor.name, &ccm.spec.placement);
    provider.workload().filter(|(workload, _)| workload.kind().kind == "DaemonSet")?;
    if placement.replicas.is_some() {
        let problem =
            format!("the cloud-controller-manager of provider {name} is a DaemonSet: it runs on each node that fits");
        return unfit("placement.replicas", problem);
    }
    if ccm.cluster.control_plane_nodes > 0 || !placement.node_selector.is_empty() {
        return None;
    }
    let problem = format!(
        "no node has the label of the control plane, and the cloud-controller-manager of provider {name} would run on all: say on \
         which"
    );
    unfit("placement.nodeSelector", problem)
}

/// Checks whether a configuration is allowed or required, and the text of an inline configuration.
pub(super) fn configuration(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let name = &descriptor.name;
    let (file, config) = match (&descriptor.cloud_config, &ccm.spec.cloud_config) {
        (None, Some(_)) => return unfit("cloudConfig", format!("provider {name} reads no configuration")),
        (Some(file), None) if file.required => {
            return unfit("cloudConfig", format!("provider {name} needs a configuration"));
        }
        (file, config) => (file.as_ref()?, config.as_ref()?),
    };
    let text = config.inline.as_ref()?;
    if mask::text(text) != *text {
        let problem = "it holds a password or another secret, readable by everyone who can read the object: put the \
                       configuration in a Secret and name it in cloudConfig.secretRef";
        return unfit("cloudConfig.inline", problem);
    }
    let Problem { place, message } = file.check(text).err()?;
    let place = place.map(|place| format!(":{place}")).unwrap_or_default();
    unfit(&format!("cloudConfig.inline{place}"), message)
}

/// Returns human-readable warnings about settings of an inline configuration that the cloud-controller-manager would
/// ignore, and about feature gates that it may not know.
pub fn ignored(descriptor: &Descriptor, ccm: &Ccm) -> Vec<String> {
    let text = ccm.spec.cloud_config.as_ref().and_then(|config| config.inline.as_deref());
    let warnings = descriptor.cloud_config.as_ref().zip(text).and_then(|(file, text)| file.check(text).ok());
    let warnings = warnings.into_iter().flatten();
    let warnings = warnings.map(|Problem { place, message }| located("spec.cloudConfig.inline", place, &message));
    warnings.chain(flags::unknown_gates(&ccm.spec.feature_gates)).collect()
}
