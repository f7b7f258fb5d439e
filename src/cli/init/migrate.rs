//! A proposal that replaces the cloud-controller-manager of a chart or a manifest.

use anyhow::bail;

use super::{InitArgs, Proposal, Seen, ask, fresh, put};
use crate::{
    facts::ccm::ONLY,
    plan::Plan,
    proposal::{
        existing::Existing,
        keep, keep_node_manager, keep_place, keep_pod, lost_permissions,
        proposed::Input,
        provider::{Detected, of_existing},
        read,
    },
    provider::kubernetes::KubernetesProvider,
};

pub(super) async fn proposal(args: &InitArgs, seen: &Seen) -> anyhow::Result<Proposal> {
    let (provider, sign, migrated) = chosen(args, seen)?;
    let Some(main) = migrated.first() else { bail!("there is nothing to migrate") };
    main.check().map_err(anyhow::Error::msg)?;
    let found = read::referenced(&seen.client, main).await?;
    let taken_ports: Vec<_> = seen.snapshot.pods.iter().flat_map(|pod| pod.ports.iter().copied()).collect();
    let descriptor = &provider.descriptor;
    let namespace = main.lease().map_or(main.namespace.as_str(), |(namespace, _)| namespace);
    let secret_name = seen.secret_name(namespace, &descriptor.name).await?;
    // Flags provide the values that the API does not show.
    let config = match (&args.cloud_config, &descriptor.cloud_config) {
        (Some(path), Some(file)) => Some((ask::text(path)?, file)),
        _ => None,
    };
    let kept = |name: &str| {
        let input = Input {
            found: &found,
            taken_ports: &taken_ports,
            minor: seen.overview.cluster.minor,
            name,
            secret_name: &secret_name,
            cloud_config: config.as_ref().map(|(text, _)| text.as_str()),
            has_credentials: args.credentials.is_some(),
        };
        keep::proposal(main, provider, &input)
    };
    let mut proposed = kept(&descriptor.name);
    for name in [ONLY, "main"] {
        let one = kept(name);
        if !seen.is_taken(provider, &one).await? {
            proposed = one;
            break;
        }
    }
    if let Some((text, file)) = &config {
        fresh::cloud_config(text, file, descriptor.credentials.is_some(), &secret_name, &mut proposed);
    }
    if let Some((path, needed)) = args.credentials.as_ref().zip(descriptor.credentials.as_ref()) {
        put(&mut proposed, &secret_name, ask::credentials(path, needed)?);
    }
    seen.leave_out_what_it_lacks(&mut proposed)?;
    let is_of_windows = |one: &Existing| one.is_beside(provider) && one.is_for_windows();
    for manager in migrated.iter().filter(|one| one.is_beside(provider)) {
        if manager.is_for_windows() {
            keep_place::windows(&mut proposed, manager);
        } else {
            keep_node_manager::settings(&mut proposed, manager, provider);
        }
    }
    // Helm deletes a release as a whole.
    let migrated: Vec<_> = migrated.into_iter().filter(|one| !is_of_windows(one) || one.helm.is_some()).collect();
    let permissions = read::permissions(&seen.client, &migrated).await?;
    if let Some(account) = &permissions.account {
        keep_pod::account(&mut proposed, account);
    }
    if let Ok(plan) = Plan::of_ccm(&seen.catalog, &proposed.ccm(seen.overview.cluster)?) {
        lost_permissions::note(&mut proposed, &permissions, plan.objects());
    }
    Ok(Proposal { proposed, sign, migrated, permissions })
}

/// Selects the cloud-controller-manager to migrate, and the workloads that belong to it.
fn chosen<'a>(args: &InitArgs, seen: &'a Seen) -> anyhow::Result<(&'a KubernetesProvider, Detected, Vec<Existing>)> {
    let Some(first) = seen.existing.first() else {
        bail!(
            "the API shows no cloud-controller-manager: neither a Deployment, a DaemonSet nor a static pod with an image or a name of \
             one; without --from-existing init proposes one from the nodes"
        );
    };
    let all: Vec<_> = seen.existing.iter().map(Existing::key).collect();
    let is_asked =
        |known: &KubernetesProvider| args.provider.as_ref().is_none_or(|name| known.descriptor.name == *name);
    let is_it = |one: &&Existing| of_existing(&seen.catalog, one).is_none_or(is_asked);
    let of_provider: Vec<_> = seen.existing.iter().filter(is_it).collect();
    let (provider, sign) = match of_provider.iter().find_map(|one| Some((one, of_existing(&seen.catalog, one)?))) {
        Some((one, provider)) => {
            let because = format!("{} runs {}", one.key(), one.image);
            (provider, Detected { provider: provider.descriptor.name.clone(), because })
        }
        None if args.provider.is_some() => seen.provider(args, &[])?,
        None => bail!(
            "no provider has the image of {} ({}): give --provider, or bring this cloud: see `ccm-operator provider new --help`",
            first.key(),
            first.image
        ),
    };
    let is_of_it = |one: &&Existing| {
        let known = of_existing(&seen.catalog, one);
        known.map_or(args.provider.is_some(), |known| known.descriptor.name == provider.descriptor.name)
            || one.is_beside(provider)
    };
    let mut chosen: Vec<_> = of_provider.into_iter().filter(is_of_it).cloned().collect();
    // A node manager has no lease and no controllers.
    chosen.sort_by_key(|one| one.is_beside(provider));
    let ccms: Vec<_> = chosen.iter().filter(|one| !one.is_beside(provider)).map(Existing::key).collect();
    match &ccms[..] {
        [_] => Ok((provider, sign, chosen)),
        [] => {
            bail!("none of {} is the cloud-controller-manager of provider {}", all.join(", "), provider.descriptor.name)
        }
        several => bail!(
            "there are several cloud-controller-managers of provider {}: {}; remove all but one, or write a CloudControllerManager for each",
            provider.descriptor.name,
            several.join(", ")
        ),
    }
}
