//! A proposal for a cluster without a cloud-controller-manager.

use anyhow::bail;
use serde_json::json;

use super::{InitArgs, Proposal, Seen, ask, put};
use crate::{
    cluster::read::get,
    facts::ccm::{Controller, ONLY},
    object::SECRET,
    proposal::{
        credentials::fits,
        proposed::{Handling, ProposedCcm},
        steps::Permissions,
    },
    provider::kubernetes::{ConfigFile, Credentials, KubernetesProvider},
    text::mask,
};

/// The default name of a cluster.
const CLUSTER_NAME: &str = "kubernetes";

pub(super) async fn proposal(args: &InitArgs, seen: &Seen) -> anyhow::Result<Proposal> {
    let (provider, sign) = seen.provider(args, &seen.existing)?;
    let name = &provider.descriptor.name;
    let namespace = provider.descriptor.home();
    let mut proposed = ProposedCcm::new(ONLY, name, namespace);
    let cluster_name = match &args.cluster_name {
        Some(given) => given.clone(),
        None => ask::value("--cluster-name", "the cluster's name in the cloud", Some(CLUSTER_NAME))?,
    };
    if args.cluster_name.is_none() && !ask::is_terminal() {
        proposed.note(
            Handling::ToDo,
            format!("spec.clusterName: {CLUSTER_NAME}"),
            "no cluster name was given, by which load balancers are found in the cloud: if the cluster has another name, or another \
             cluster in this cloud uses this one, run the command again with --cluster-name",
        );
    }
    proposed.set("clusterName", cluster_name);
    controllers(args, seen, provider, &mut proposed)?;
    let secret_name = seen.secret_name(namespace, name).await?;
    if let Some(file) = &provider.descriptor.cloud_config {
        if let Some(text) = configuration(args, file)? {
            cloud_config(&text, file, provider.descriptor.credentials.is_some(), &secret_name, &mut proposed);
        }
    } else if args.cloud_config.is_some() {
        bail!("--cloud-config: provider {name} reads no configuration");
    }
    match &provider.descriptor.credentials {
        Some(needed) => credentials(args, seen, provider, needed, &secret_name, &mut proposed).await?,
        None if args.credentials.is_some() => {
            bail!("--credentials: provider {name} takes no Secret: it uses the identity of the machine")
        }
        None => {}
    }
    seen.leave_out_what_it_lacks(&mut proposed)?;
    if seen.is_taken(provider, &proposed).await? {
        // Only one `CloudControllerManager` can have objects with plain names.
        proposed.name.clone_from(name);
    }
    Ok(Proposal { proposed, sign, migrated: Vec::new(), permissions: Permissions::default() })
}

fn controllers(
    args: &InitArgs,
    seen: &Seen,
    provider: &KubernetesProvider,
    proposed: &mut ProposedCcm,
) -> anyhow::Result<()> {
    let default = Controller::ALL.into_iter().filter(|one| *one != Controller::Route).map(Controller::field);
    let default = default.collect::<Vec<_>>().join(",");
    let mut given = args.controllers.clone();
    while given.is_empty() {
        let all = if provider.descriptor.routes.is_some() { " (there is route, too)" } else { "" };
        let answer = ask::value("--controllers", &format!("the controllers{all}"), Some(&default))?;
        match answer.split(',').map(|name| super::controller(name.trim())).collect() {
            Ok(named) => given = named,
            Err(problem) => super::super::flags::say(&problem),
        }
    }
    for one in Controller::ALL {
        let is_on = given.contains(&one);
        match one {
            Controller::Route if is_on => proposed.set("controllers.route", "Enabled"),
            Controller::Route => {}
            _ if !is_on => proposed.set(&format!("controllers.{}", one.field()), "Disabled"),
            _ => {}
        }
    }
    if given.contains(&Controller::Route) {
        let subnets = if args.pod_cidrs.is_empty() {
            let of_pods = seen.snapshot.pods.iter().find_map(|pod| pod.subnets.clone()).unwrap_or_default();
            let known = Some(of_pods.join(",")).filter(|known| !known.is_empty());
            let answer = ask::value("--pod-cidrs", "the subnets of pods, such as 10.244.0.0/16", known.as_deref())?;
            answer.split(',').map(|subnet| subnet.trim().to_owned()).collect()
        } else {
            args.pod_cidrs.clone()
        };
        proposed.set("network.podCIDRs", subnets);
    } else if !args.pod_cidrs.is_empty() {
        bail!("--pod-cidrs is for the controller route, which --controllers does not name");
    }
    Ok(())
}

/// Returns the text of `--cloud-config`, or of the file that the user names if one is required.
fn configuration(args: &InitArgs, file: &ConfigFile) -> anyhow::Result<Option<String>> {
    let path = match &args.cloud_config {
        Some(path) => path.clone(),
        None if file.required => {
            let question = format!("the file with the cloud's configuration ({})", file.file);
            ask::value("--cloud-config", &question, None)?.into()
        }
        None => return Ok(None),
    };
    ask::text(&path).map(Some)
}

/// Puts a configuration into the object, or into the Secret if it contains a secret.
pub(super) fn cloud_config(
    text: &str,
    file: &ConfigFile,
    has_secret: bool,
    secret_name: &str,
    proposed: &mut ProposedCcm,
) {
    // A configuration that is the only input of the cloud-controller-manager also holds the credentials, whatever their keys.
    let is_all = file.required && !has_secret;
    if !is_all && mask::text(text) == text {
        proposed.set("cloudConfig", json!({"inline": text}));
    } else {
        proposed.secret(secret_name).put(&file.file, text.as_bytes());
        proposed.set("cloudConfig", json!({"secretRef": {"name": secret_name, "key": file.file}}));
    }
}

/// Refers to the existing Secret, or adds a new one with the given credentials.
async fn credentials(
    args: &InitArgs,
    seen: &Seen,
    provider: &KubernetesProvider,
    needed: &Credentials,
    secret_name: &str,
    proposed: &mut ProposedCcm,
) -> anyhow::Result<()> {
    let (name, namespace) = (&provider.descriptor.name, provider.descriptor.home());
    let there = if args.credentials.is_none() { get(&seen.client, &SECRET, namespace, name).await? } else { None };
    let data = there.as_ref().and_then(|secret| secret["data"].as_object());
    if data.is_some_and(|data| needed.keys.iter().all(|pattern| data.keys().any(|key| fits(pattern, key)))) {
        proposed.set("credentials", json!({"secretRef": {"name": name}}));
        proposed.note(Handling::Kept, format!("Secret {namespace}/{name}"), "spec.credentials.secretRef");
        return Ok(());
    }
    if needed.optional && args.credentials.is_none() {
        return Ok(());
    }
    put(proposed, secret_name, ask::asked_credentials(args.credentials.as_ref(), needed)?);
    Ok(())
}
