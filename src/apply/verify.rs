//! Sends manifests to a live API server as a server-side dry run: nothing is written (IO).

use kube::{
    Client,
    api::{Patch, PatchParams},
};

use crate::{
    cluster::request,
    object::Key,
    provider::{
        folder::{Bundle, Manifest},
        verify::Refusal,
    },
    text::place::Place,
};

/// The field manager of the dry run. It owns nothing, so that ownership is never the reason for a refusal.
const FIELD_MANAGER: &str = "ccm-operator-verify";

/// The API server did not answer about a manifest.
#[derive(Debug, thiserror::Error)]
#[error("failed to dry-run {object}")]
pub struct Error {
    object: Key,
    source: kube::Error,
}

/// Applies each manifest of each provider, unchanged, as a dry run. Returns the refusals.
pub async fn dry_run(client: &Client, bundles: &[Bundle]) -> Result<Vec<Refusal>, Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict().dry_run();
    let mut refusals = Vec::new();
    for bundle in bundles {
        for manifest in &bundle.manifests {
            let object = &manifest.object;
            let api = request::api(client, object.kind(), object.namespace());
            let patch = Patch::Apply(object.value());
            match api.patch(object.name(), &params, &patch).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if is_refusal(status.code) => refusals.push(Refusal {
                    provider: bundle.name.clone(),
                    file: manifest.file.clone(),
                    place: Place::line(line(manifest, &status)),
                    what: format!("{}: {}", object.key(), status.message.replace('\n', " ")),
                }),
                Err(source) => return Err(Error { object: object.key(), source }),
            }
        }
    }
    Ok(refusals)
}

/// Whether the answer is about the manifest, not about the client or the API server's health. A schema error is a 500.
fn is_refusal(code: u16) -> bool {
    matches!(code, 400 | 404 | 409 | 422 | 500)
}

fn line(manifest: &Manifest, status: &kube::core::Status) -> usize {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let field = causes.iter().map(|cause| cause.field.as_str()).find(|field| !field.is_empty());
    manifest.lines.of(&pointer(field.unwrap_or_default()))
}

/// The JSON pointer of a field as the API server writes it, such as `spec.ports[0].port`.
fn pointer(field: &str) -> String {
    let parts = field.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.map(|part| format!("/{part}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_name_becomes_a_pointer() {
        assert_eq!(pointer("spec.ports[0].port"), "/spec/ports/0/port");
        assert_eq!(pointer(""), "");
    }
}
