//! Requests of a `CloudControllerManager` that its provider cannot fulfill, and input that is missing (pure).

use crate::{
    facts::ccm::{Ccm, Controller},
    plan::Error,
    provider::kubernetes::{Credentials, Descriptor, Kubernetes},
    text::{Problem, located, mask, suggest::did_you_mean},
};

/// An error in what a `CloudControllerManager` asks for.
pub(in crate::plan) fn asked(ccm: &Ccm, field: &str, problem: impl Into<String>) -> Error {
    Error::Asked { ccm: ccm.name.clone(), field: field.to_owned(), problem: problem.into() }
}

/// The first thing that cannot be done.
pub(super) fn check(provider: &Kubernetes, ccm: &Ccm) -> Result<(), Error> {
    let refuse = |field: &str, problem: String| Err(asked(ccm, field, problem));
    ccm.spec.check().or_else(|(field, problem)| refuse(field, problem.to_owned()))?;
    let (spec, descriptor) = (&ccm.spec, &provider.descriptor);
    let name = &descriptor.name;
    if let Some(unknown) = spec.arguments.keys().find(|flag| !descriptor.allowed_arguments.contains(flag)) {
        let hint = did_you_mean(unknown, descriptor.allowed_arguments.iter().map(String::as_str));
        let known = descriptor.allowed_arguments.join(", ");
        return refuse("arguments", format!("provider {name} does not allow {unknown}{hint}; it allows {known}"));
    }
    load_balancers(descriptor, ccm)?;
    routes(descriptor, ccm)?;
    placement(provider, ccm)?;
    configuration(descriptor, ccm)?;
    if let Some(words) = descriptor.namespaces.words().filter(|_| !descriptor.namespaces.include(&spec.namespace)) {
        return refuse("namespace", format!("the cloud-controller-manager of provider {name}: {words}"));
    }
    node_manager(descriptor, ccm)?;
    match (&descriptor.credentials, &spec.credentials) {
        (None, Some(_)) => {
            refuse("credentials", format!("provider {name} takes no Secret: it uses the identity of the machine"))
        }
        (Some(needed), None) if !needed.optional => {
            let keys = needed.keys.join(", ");
            refuse("credentials", format!("provider {name} needs a Secret with the keys {keys}"))
        }
        (Some(Credentials { only_with: Some(words), .. }), Some(_)) if spec.cloud_config.is_none() => refuse(
            "credentials",
            format!("provider {name} uses the Secret only with a configuration that says {words}"),
        ),
        _ => Ok(()),
    }
}

/// Without a controller of its own the cloud-controller-manager would run all.
fn node_manager(descriptor: &Descriptor, ccm: &Ccm) -> Result<(), Error> {
    let Some(name) = &descriptor.node_manager else { return Ok(()) };
    if descriptor.own(ccm).controllers().next().is_some() {
        return Ok(());
    }
    let problem = format!(
        "{name} initializes nodes, so the cloud-controller-manager itself would run nothing: enable another one"
    );
    Err(asked(ccm, "controllers", problem))
}

fn load_balancers(descriptor: &Descriptor, ccm: &Ccm) -> Result<(), Error> {
    if descriptor.load_balancers || ccm.controllers().all(|controller| controller != Controller::Service) {
        return Ok(());
    }
    let name = &descriptor.name;
    let problem = format!("the cloud-controller-manager of provider {name} has no load balancers: set it to Disabled");
    Err(asked(ccm, "controllers.service", problem))
}

fn routes(descriptor: &Descriptor, ccm: &Ccm) -> Result<(), Error> {
    if ccm.controllers().all(|controller| controller != Controller::Route) {
        return Ok(());
    }
    let name = &descriptor.name;
    let Some(routes) = &descriptor.routes else {
        let problem = format!("the cloud-controller-manager of provider {name} has no routes");
        return Err(asked(ccm, "controllers.route", problem));
    };
    let subnets = ccm.spec.network.as_ref().map_or(0, |network| network.pod_cidrs.len());
    if subnets > routes.max_pod_cidrs {
        let problem = format!("the route controller of provider {name} takes {} of them", routes.max_pod_cidrs);
        return Err(asked(ccm, "network.podCIDRs", problem));
    }
    let needed = &routes.needs_one_of;
    if !needed.is_empty() && !needed.iter().any(|flag| ccm.spec.arguments.contains_key(flag)) {
        let problem = format!("the route controller of provider {name} needs {}", needed.join(" or "));
        return Err(asked(ccm, "arguments", problem));
    }
    Ok(())
}

fn placement(provider: &Kubernetes, ccm: &Ccm) -> Result<(), Error> {
    let name = &provider.descriptor.name;
    let placement = &ccm.spec.placement;
    if provider.workload().is_none_or(|(workload, _)| workload.kind().kind != "DaemonSet") {
        return Ok(());
    }
    if placement.replicas.is_some() {
        let problem =
            format!("the cloud-controller-manager of provider {name} is a DaemonSet: it runs on each node that fits");
        return Err(asked(ccm, "placement.replicas", problem));
    }
    if ccm.cluster.control_plane_nodes == 0 && placement.node_selector.is_empty() {
        let problem = format!(
            "no node has the label of the control plane, and the cloud-controller-manager of provider {name} would run on all: \
             say on which"
        );
        return Err(asked(ccm, "placement.nodeSelector", problem));
    }
    Ok(())
}

/// The configuration: whether there may or must be one, and its text where it stands in the object itself.
fn configuration(descriptor: &Descriptor, ccm: &Ccm) -> Result<(), Error> {
    let name = &descriptor.name;
    let (file, config) = match (&descriptor.cloud_config, &ccm.spec.cloud_config) {
        (None, Some(_)) => {
            return Err(asked(ccm, "cloudConfig", format!("provider {name} reads no configuration")));
        }
        (Some(file), None) if file.required => {
            return Err(asked(ccm, "cloudConfig", format!("provider {name} needs a configuration")));
        }
        (Some(file), Some(config)) => (file, config),
        _ => return Ok(()),
    };
    let Some(text) = &config.inline else { return Ok(()) };
    if mask::text(text) != *text {
        let problem = "it holds a password or another secret, readable by everyone who can read the object: put the \
                       configuration in a Secret and name it in cloudConfig.secretRef";
        return Err(asked(ccm, "cloudConfig.inline", problem));
    }
    file.check(text).map(drop).map_err(|Problem { place, message }| {
        let place = place.map(|place| format!(":{place}")).unwrap_or_default();
        asked(ccm, &format!("cloudConfig.inline{place}"), message)
    })
}

/// What the cloud-controller-manager would ignore in a configuration that stands in the object itself, for people.
pub fn ignored(descriptor: &Descriptor, ccm: &Ccm) -> Vec<String> {
    let text = ccm.spec.cloud_config.as_ref().and_then(|config| config.inline.as_deref());
    let warnings = descriptor.cloud_config.as_ref().zip(text).and_then(|(file, text)| file.check(text).ok());
    let warnings = warnings.into_iter().flatten();
    warnings.map(|Problem { place, message }| located("spec.cloudConfig.inline", place, &message)).collect()
}
