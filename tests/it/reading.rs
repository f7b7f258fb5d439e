//! The API server stores a package exactly as the rules for it have read it.
//!
//! Each value in the manifests is replaced by null and by a value of each other type. Either the rules refuse the package, or the API
//! server refuses the object, or it stores the value as it is.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use ccm_operator::{
    cluster::request,
    object::Object,
    provider::{
        embedded,
        folder::{ParsedProvider, parsed_providers_of},
        verify::{Policy, check_external},
    },
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::repository,
    support::{
        objects::{self, Workloads},
        openshift, pool,
    },
};

/// The number of requests that run at once.
const AT_ONCE: usize = 16;

/// A value that is replaced: the bundle, its manifest, the JSON pointer, and by what.
type Change = (usize, usize, String, Value);

/// The scaffold is the package: it has a value in nearly every field that one needs. Besides, roles with names.
fn package() -> Vec<ParsedProvider> {
    let files = embedded::scaffold().into_iter().map(|(path, text)| {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let text = text
            .replace(": v1.0.0", &format!(": {{tag: v1.0.0, digest: \"{digest}\"}}"))
            .replace("manager:v1.0.0", &format!("manager:v1.0.0@{digest}"));
        (path.clone(), text.into_bytes())
    });
    parsed_providers_of("example", files.collect::<Vec<_>>())
}

fn each<'v>(value: &'v Value, at: &str, see: &mut impl FnMut(String, &'v Value)) {
    see(at.to_owned(), value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, one)| {
            each(one, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), see);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, one)| each(one, &format!("{at}/{index}"), see));
        }
        _ => {}
    }
}

fn changes(parsed_providers: &[ParsedProvider]) -> Vec<Change> {
    let values = [json!(null), json!("x"), json!(7), json!(true), json!([]), json!({})];
    let is_of_type = |one: &Value, other: &Value| std::mem::discriminant(one) == std::mem::discriminant(other);
    let mut changes = Vec::new();
    for (number, parsed) in parsed_providers.iter().enumerate() {
        for (index, manifest) in parsed.manifests.iter().enumerate() {
            each(manifest.object.value(), "", &mut |pointer, old| {
                let others = values.iter().filter(|value| !is_of_type(value, old));
                changes.extend(others.map(|value| (number, index, pointer.clone(), value.clone())));
            });
        }
    }
    changes
}

/// The object with the value, if it is still an object that the rules accept.
fn accepted(parsed_providers: &[ParsedProvider], (number, index, pointer, value): &Change) -> Option<Object> {
    let mut parsed = parsed_providers[*number].clone();
    let mut changed = parsed.manifests[*index].object.value().clone();
    *changed.pointer_mut(pointer)? = value.clone();
    let object = Object::new(changed).ok()?;
    parsed.manifests[*index].object = object.clone();
    check_external(&[parsed], &Policy::default()).findings.is_empty().then_some(object)
}

/// The first value that is stored otherwise than it stands in the manifest. What is empty there may have a default.
fn differs(ours: &Value, stored: &Value, at: &str) -> Option<String> {
    let is_empty = |value: &Value| {
        *value == json!("")
            || *value == json!(0)
            || *value == json!(false)
            || *value == json!([])
            || *value == json!({})
    };
    match (ours, stored) {
        (Value::Object(ours), Value::Object(stored)) => ours
            .iter()
            .find_map(|(key, one)| differs(one, stored.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"))),
        // Admission appends the two that every pod gets (DefaultTolerationSeconds).
        (Value::Array(ours), Value::Array(stored))
            if ours.len() == stored.len() || (at == "/spec/tolerations" && ours.len() < stored.len()) =>
        {
            ours.iter()
                .zip(stored)
                .enumerate()
                .find_map(|(index, (one, other))| differs(one, other, &format!("{at}/{index}")))
        }
        // A quantity may be a number.
        (Value::Number(number), Value::String(text)) if number.to_string() == *text => None,
        (ours, stored) if ours == stored || is_empty(ours) => None,
        (ours, stored) => Some(format!("{at}: {ours} is stored as {stored}")),
    }
}

/// The object as the API server would store it; `None` if the API server refuses it.
async fn stored(client: &Client, object: &Object) -> Result<Option<Value>> {
    let params = PatchParams::apply("test").force().dry_run();
    let api = request::api(client, object.kind(), object.namespace());
    match api.patch(object.name(), &params, &Patch::Apply(object.value())).await {
        Ok(stored) => Ok(Some(serde_json::to_value(stored)?)),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn stored_objects_equal_those_that_the_rules_have_read() -> Result<()> {
    let parsed_providers = package();
    let found = check_external(&parsed_providers, &Policy::default()).findings;
    ensure!(found.is_empty(), "{found:#?}");
    let plane = pool::lease().await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let (changes, kept) = (changes(&parsed_providers), AtomicUsize::new(0));
    ensure!(changes.len() > 5_000, "{} changes", changes.len());
    let objects = changes.iter().filter_map(|change| Some((change, accepted(&parsed_providers, change)?)));
    let asked = stream::iter(objects).map(async |(change, object)| {
        let Some(stored) = stored(&client, &object).await? else { return Ok(None) };
        kept.fetch_add(1, Ordering::Relaxed);
        anyhow::Ok(differs(object.value(), &stored, "").map(|what| format!("{} {}: {what}", object.key(), change.2)))
    });
    let wrong: Vec<Option<String>> = asked.buffer_unordered(AT_ONCE).try_collect().await?;
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), changes.len());
    // A port may be a text, and a quantity a number.
    let kept = kept.into_inner();
    ensure!(kept >= 4, "only {kept} variants are accepted: too few to tell anything");
    Ok(())
}
