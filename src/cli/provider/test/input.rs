//! The input of a test: the provider, the configuration and the credentials.

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use serde_json::Value;

use super::TestArgs;
use crate::{
    cli::{flags::wrong_usage, init::ask, provider::target::load},
    cluster::read,
    object::reference::SECRET,
    proposal::credentials::{Values, fits},
    provider::KubernetesProvider,
    text::Problem,
};

/// Returns the flavor kubernetes of the given provider, if the operator would accept it. Otherwise the test would create objects that break
/// the rules, with the permissions of the user.
pub(super) fn provider(args: &TestArgs) -> anyhow::Result<KubernetesProvider> {
    let target = &args.target;
    let provider = args.policy.accept(target, load(target)?)?;
    let Some(provider) = provider.kubernetes else {
        return Err(wrong_usage(&format!("{target} has no flavor for any Kubernetes: there is no assets/kubernetes/")));
    };
    Ok(provider)
}

/// Returns the data of the test's Secret: the file of `--cloud-config` and the credentials.
pub(super) async fn values(args: &TestArgs, provider: &KubernetesProvider, client: &Client) -> anyhow::Result<Values> {
    let descriptor = &provider.descriptor;
    let (name, mut values) = (&descriptor.name, Values::new());
    match (&descriptor.cloud_config, &args.cloud_config) {
        (None, Some(_)) => return Err(wrong_usage(&format!("--cloud-config: provider {name} reads no configuration"))),
        (Some(file), Some(path)) => {
            let text = ask::text(path)?;
            let refused = |Problem { place, message }: Problem| {
                let place = place.map(|place| format!(":{place}")).unwrap_or_default();
                anyhow::anyhow!("{}{place}: {message}", path.display())
            };
            file.check(&text).map_err(refused)?;
            values.insert(file.file.clone(), text.into_bytes());
        }
        _ => {}
    }
    if let Some(path) = &args.credentials {
        let Some(needed) = &descriptor.credentials else {
            return Err(wrong_usage(&format!("--credentials: provider {name} takes no Secret")));
        };
        values.extend(ask::credentials(path, needed)?);
    }
    if let Some(secret) = &args.secret {
        let Some((namespace, secret)) = secret.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty()) else {
            return Err(wrong_usage("--secret must be NAMESPACE/NAME"));
        };
        let live = read::get(client, &SECRET, namespace, secret).await?;
        let live = live.with_context(|| format!("there is no Secret {namespace}/{secret}"))?;
        copy(provider, &live, &mut values);
    }
    if descriptor.cloud_config.as_ref().is_some_and(|file| file.required && !values.contains_key(&file.file)) {
        return Err(wrong_usage(&format!("provider {name} needs a configuration: give it with --cloud-config")));
    }
    let missing = descriptor
        .credentials
        .as_ref()
        .filter(|needed| !needed.optional)
        .and_then(|needed| needed.keys.iter().find(|pattern| !values.keys().any(|key| fits(pattern, key))));
    if let Some(key) = missing {
        return Err(wrong_usage(&format!("provider {name} needs the key {key} in --credentials or --secret")));
    }
    Ok(values)
}

/// Copies the keys of a Secret that the provider reads.
fn copy(provider: &KubernetesProvider, secret: &Value, values: &mut Values) {
    let descriptor = &provider.descriptor;
    let keys = descriptor.credentials.iter().flat_map(|needed| needed.keys.iter().chain(&needed.optional_keys));
    let patterns: Vec<_> = keys.chain(descriptor.cloud_config.iter().map(|config| &config.file)).collect();
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        if patterns.iter().any(|pattern| fits(pattern, key)) && !values.contains_key(key) {
            values.insert(key.clone(), STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default());
        }
    }
}
