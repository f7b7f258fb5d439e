//! Rules about containers: their images and their confinement (pure).

use std::collections::BTreeMap;

use serde_json::Value;

use super::pods::fields;
use crate::{
    object::reference::is_digest,
    provider::{
        Flavor, Phase,
        kubernetes::ProviderImage,
        verify::parts::{Defects, Part, RuleInput, items},
    },
    text::yaml::outline::child,
};

/// The fields of a pod's or container's security context that disable no protection. [`loosened`] checks other fields by
/// their value.
const FIELDS: [&str; 9] = [
    "capabilities",
    "fsGroup",
    "fsGroupChangePolicy",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];

/// The annotation of a pod that selected a container's profile before Kubernetes had a field for it.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn privileged(input: RuleInput, defects: &mut Defects) {
    for part in input.pods().chain(input.containers()) {
        let context = &part.value["securityContext"];
        if context["privileged"] == true {
            defects.add(part.defect("/securityContext/privileged", "the container is privileged"));
        }
        if context["windowsOptions"]["hostProcess"] == true {
            defects.add(part.defect("/securityContext/windowsOptions", "the container is a process of the host"));
        }
    }
}

pub(super) fn capabilities(container: &Part, defects: &mut Defects) {
    let added = items(&container.value["securityContext"]["capabilities"]["add"]).iter().enumerate();
    for (index, name) in added.map(|(index, name)| (index, name.as_str().unwrap_or_default())) {
        let pointer = format!("/securityContext/capabilities/add/{index}");
        defects.add_unless(name, container.defect(&pointer, format!("adds {name}")));
    }
}

pub(super) fn security_contexts(input: RuleInput, defects: &mut Defects) {
    input.pods().for_each(|pod| loosened(&pod, defects));
    input.pods().for_each(|pod| app_armor(&pod, defects));
    for container in input.containers() {
        loosened(&container, defects);
        let context = &container.value["securityContext"];
        let mut missing = |pointer: &str, what: &str, field: &str| {
            defects.add_unless(field, container.defect(&format!("/securityContext/{pointer}"), what));
        };
        if context["allowPrivilegeEscalation"] != false {
            let field = "allowPrivilegeEscalation";
            missing(field, "allowPrivilegeEscalation is not false", field);
        }
        if !items(&context["capabilities"]["drop"]).iter().any(|name| name == "ALL") {
            missing("capabilities/drop", "capabilities are not dropped: drop has not ALL, in capitals", "capabilities");
        }
        if [container.value, container.pod].iter().all(|one| !one["securityContext"]["seccompProfile"].is_object()) {
            missing("seccompProfile", "seccompProfile is missing", "seccompProfile");
        }
    }
}

/// Reports a container that may run as root. The bootstrap pod may, because it reads a file that only root may read.
pub(super) fn root(container: &Part, defects: &mut Defects) {
    if container.manifest.phase != Phase::Cluster {
        return;
    }
    let field = |name: &str| {
        let own = &container.value["securityContext"][name];
        if own.is_null() { &container.pod["securityContext"][name] } else { own }
    };
    if let Some(user) = field("runAsUser").as_f64().filter(|user| *user <= 0.0) {
        let value = format!("runAsUser {user}");
        defects.add_unless(&value, container.defect("/securityContext/runAsUser", &value));
    }
    if field("runAsNonRoot") != true {
        let problem = "runAsNonRoot is not true";
        defects.add_unless("runAsNonRoot", container.defect("/securityContext/runAsNonRoot", problem));
    }
}

/// Reports fields of a security context that loosen the cluster's defaults.
fn loosened(part: &Part, defects: &mut Defects) {
    let context = &part.value["securityContext"];
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    for field in fields(context) {
        let value = match (field, &context[field]) {
            // Other rules, or checks for containers only, cover these.
            ("privileged" | "allowPrivilegeEscalation", _) => continue,
            ("windowsOptions", options) if options["hostProcess"] == true => continue,
            (field, _) if FIELDS.contains(&field) => continue,
            ("procMount", kind) if kind == "Default" => continue,
            ("procMount", kind) => format!("procMount {}", text(kind)),
            ("seccompProfile" | "appArmorProfile", profile) if profile["type"] == "RuntimeDefault" => continue,
            ("seccompProfile" | "appArmorProfile", profile) => {
                let words = [field.to_owned(), text(&profile["type"]), text(&profile["localhostProfile"])];
                words.join(" ").trim_end().to_owned()
            }
            _ => field.to_owned(),
        };
        defects.add_unless(&value, part.defect(&format!("/securityContext/{field}"), &value));
    }
}

/// Reports the `AppArmor` profiles that annotations of a pod select.
fn app_armor(pod: &Part, defects: &mut Defects) {
    let template = pod.manifest.object.pod_spec_pointer().and_then(|pointer| pointer.strip_suffix("/spec"));
    let at = format!("{}/metadata/annotations", template.unwrap_or_default());
    let annotations = pod.manifest.object.value().pointer(&at).and_then(Value::as_object).into_iter().flatten();
    for (name, profile) in annotations.filter(|(name, _)| name.starts_with(APP_ARMOR)) {
        if profile != "runtime/default" {
            let value = format!("appArmorProfile {}", profile.as_str().unwrap_or_default());
            let problem = format!("the annotation {name} sets {value}");
            defects.add_unless(value, pod.manifest.defect(&child(&at, name), problem));
        }
    }
}

pub(super) fn images(container: &Part, defects: &mut Defects) {
    let image = container.value["image"].as_str().unwrap_or_default();
    if let Some(what) = image_problem(container.input, container.name(), image) {
        defects.add_unless(image, container.defect("/image", format!("image {image}: {what}")));
    }
}

fn image_problem(input: RuleInput, container: &str, image: &str) -> Option<String> {
    let undeclared = || Some("the container has no entry in `images` of provider.yaml".to_owned());
    match input.parsed.flavor {
        Flavor::Kubernetes => {
            let declared = input.parsed.of_kubernetes()?.images.get(container);
            let Some(declared) = declared else { return undeclared() };
            if repository(image) != declared.repository {
                return Some(format!("not from the repository {} of provider.yaml", declared.repository));
            }
            // The operator sets the digest of the descriptor: another digest here would look like the running one.
            let (tagged, digest) = image.split_once('@')?;
            let tag =
                tagged.strip_prefix(&declared.repository).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default();
            let is_declared = declared.versions.digest_of(tag) == Some(digest);
            (!is_declared).then(|| "`images` of provider.yaml does not have this digest for this tag".to_owned())
        }
        Flavor::OpenShift => {
            if !input.parsed.of_openshift()?.images.contains_key(container) {
                return undeclared();
            }
            (!has_digest(image)).then(|| "not pinned by a digest (@sha256:…)".to_owned())
        }
    }
}

/// Reports each tag without a digest in `images` of the descriptor of the flavor kubernetes, because its image may change.
pub(super) fn image_digests(input: RuleInput, defects: &mut Defects) {
    let images = input.parsed.of_kubernetes().into_iter().flat_map(|descriptor| &descriptor.images);
    for (container, ProviderImage { repository, versions, .. }) in images {
        let mut places = BTreeMap::<&str, String>::new();
        for (place, tag) in versions.places().filter(|(_, tag)| versions.digest_of(tag).is_none()) {
            places.entry(tag).or_insert(place);
        }
        for (tag, place) in places {
            let (image, pointer) = (format!("{repository}:{tag}"), format!("/images/{container}/versions/{place}"));
            let problem = format!("{container}: {image} has no digest");
            defects.add_unless(image, input.parsed.descriptor_error(&pointer, problem));
        }
    }
}

/// Returns an image without its tag and digest.
fn repository(image: &str) -> &str {
    let tagged = image.split('@').next().unwrap_or_default();
    let name = tagged.rfind('/').map_or(0, |slash| slash + 1);
    tagged[name..].find(':').map_or(tagged, |colon| &tagged[..name + colon])
}

fn has_digest(image: &str) -> bool {
    image.split_once('@').is_some_and(|(_, digest)| is_digest(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_an_image_without_tag_and_digest() {
        for (image, expected) in [
            ("ccm", "ccm"),
            ("ccm:1", "ccm"),
            ("docker.io/a/ccm:1", "docker.io/a/ccm"),
            ("lab:5000/a/ccm", "lab:5000/a/ccm"),
            ("lab:5000/a/ccm:1@sha256:00", "lab:5000/a/ccm"),
            ("", ""),
        ] {
            assert_eq!(repository(image), expected, "{image}");
        }
    }

    #[test]
    fn a_digest_is_whole() {
        let digest = "0123456789abcdef".repeat(4);
        assert!(has_digest(&format!("a/ccm@sha256:{digest}")) && has_digest(&format!("a/ccm:1@sha256:{digest}")));
        for image in [
            "a/ccm:1",
            "a/ccm@sha256:0",
            &format!("a/ccm@sha256:{}", digest.to_uppercase()),
            &format!("a/ccm@sha512:{digest}"),
        ] {
            assert!(!has_digest(image), "{image}");
        }
    }
}
