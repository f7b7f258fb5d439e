//! Rules about containers: their images and their confinement (pure).

use std::collections::BTreeMap;

use serde_json::Value;

use super::pods::{each, fields};
use crate::{
    object::reference::is_digest,
    provider::{
        Error, Flavor, Phase,
        kubernetes::Image,
        verify::{
            Values,
            parts::{Input, Part, items, report},
        },
    },
    text::yaml::outline::child,
};

/// The fields of a security context that switch nothing off, of a pod or of a container. [`loosened`] checks others by their
/// value.
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

/// Before Kubernetes had a field, an annotation of the pod selected the profile of a container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn privileged(input: Input) -> Vec<Error> {
    report(input.pods().chain(input.containers()), |part| {
        let context = &part.value["securityContext"];
        let privileged =
            (context["privileged"] == true).then_some(("/securityContext/privileged", "the container is privileged"));
        let process = (context["windowsOptions"]["hostProcess"] == true)
            .then_some(("/securityContext/windowsOptions", "the container is a process of the host"));
        privileged.into_iter().chain(process)
    })
}

pub(super) fn capabilities(input: Input) -> Values {
    each(input.containers(), |container| {
        let added = items(&container.value["securityContext"]["capabilities"]["add"]).iter().enumerate();
        let added = added.map(|(index, name)| (index, name.as_str().unwrap_or_default()));
        let found = added.map(|(index, name)| {
            (format!("/securityContext/capabilities/add/{index}"), format!("adds {name}"), name.to_owned())
        });
        found.collect()
    })
}

pub(super) fn security_contexts(input: Input) -> Values {
    let of_pods = each(input.pods(), |pod| loosened(&pod.value["securityContext"]));
    let by_annotation = input.pods().flat_map(|pod| app_armor(&pod));
    let of_containers = each(input.containers(), |container| {
        let context = &container.value["securityContext"];
        let mut found = loosened(context);
        let mut missing = |pointer: &str, what: &str, field: &str| {
            found.push((format!("/securityContext/{pointer}"), what.to_owned(), field.to_owned()));
        };
        if context["allowPrivilegeEscalation"] != false {
            let field = "allowPrivilegeEscalation";
            missing(field, "allowPrivilegeEscalation is not false", field);
        }
        if !items(&context["capabilities"]["drop"]).iter().any(|name| name == "ALL") {
            missing("capabilities/drop", "capabilities are not dropped: drop has not ALL, in capitals", "capabilities");
        }
        let has_profile =
            [container.value, container.pod].iter().any(|one| one["securityContext"]["seccompProfile"].is_object());
        if !has_profile {
            missing("seccompProfile", "seccompProfile is missing", "seccompProfile");
        }
        found
    });
    of_pods.into_iter().chain(by_annotation).chain(of_containers).collect()
}

/// Whether a container may run as root. The bootstrap pod reads a file that only root may read.
pub(super) fn root(input: Input) -> Values {
    let containers = input.containers().filter(|container| container.manifest.phase == Phase::Cluster);
    each(containers, |container| {
        let field = |name: &str| {
            let own = &container.value["securityContext"][name];
            if own.is_null() { &container.pod["securityContext"][name] } else { own }
        };
        let user = field("runAsUser").as_f64().filter(|user| *user <= 0.0);
        let user = user.map(|user| ("runAsUser", format!("runAsUser {user}")));
        let non_root = (field("runAsNonRoot") != true).then(|| ("runAsNonRoot", "runAsNonRoot".to_owned()));
        let found = user.into_iter().chain(non_root);
        found
            .map(|(name, value)| {
                let problem = if name == "runAsUser" { value.clone() } else { "runAsNonRoot is not true".to_owned() };
                (format!("/securityContext/{name}"), problem, value)
            })
            .collect()
    })
}

/// The fields of a security context that loosen what the cluster sets by default.
fn loosened(context: &Value) -> Vec<(String, String, String)> {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let value = |field: &str| match (field, &context[field]) {
        // Rules of their own, or of containers only.
        ("privileged" | "allowPrivilegeEscalation", _) => None,
        ("windowsOptions", options) if options["hostProcess"] == true => None,
        (field, _) if FIELDS.contains(&field) => None,
        ("procMount", kind) if kind == "Default" => None,
        ("procMount", kind) => Some(format!("procMount {}", kind.as_str().unwrap_or_default())),
        ("seccompProfile" | "appArmorProfile", profile) if profile["type"] == "RuntimeDefault" => None,
        ("seccompProfile" | "appArmorProfile", profile) => {
            let words = [field.to_owned(), text(&profile["type"]), text(&profile["localhostProfile"])];
            Some(words.join(" ").trim_end().to_owned())
        }
        _ => Some(field.to_owned()),
    };
    let found = fields(context).filter_map(|field| Some((format!("/securityContext/{field}"), value(field)?)));
    found.map(|(pointer, value)| (pointer, value.clone(), value)).collect()
}

/// The profiles of `AppArmor` that annotations of a pod select.
fn app_armor(pod: &Part) -> Values {
    let template = pod.manifest.object.pod_spec_pointer().and_then(|pointer| pointer.strip_suffix("/spec"));
    let at = format!("{}/metadata/annotations", template.unwrap_or_default());
    let annotations = pod.manifest.object.value().pointer(&at).and_then(Value::as_object).into_iter().flatten();
    let profiles = annotations.filter(|(name, profile)| name.starts_with(APP_ARMOR) && *profile != "runtime/default");
    let found = profiles.map(|(name, profile)| {
        let value = format!("appArmorProfile {}", profile.as_str().unwrap_or_default());
        let pointer = child(&at, name);
        (pod.manifest.defect(&pointer, format!("the annotation {name} sets {value}")), value)
    });
    found.collect()
}

pub(super) fn images(input: Input) -> Values {
    each(input.containers(), |container| {
        let image = container.value["image"].as_str().unwrap_or_default();
        let what = image_problem(input, container.name(), image);
        what.into_iter().map(|what| ("/image".to_owned(), format!("image {image}: {what}"), image.to_owned())).collect()
    })
}

fn image_problem(input: Input, container: &str, image: &str) -> Option<String> {
    let undeclared = || Some("the container has no entry in `images` of provider.yaml".to_owned());
    match input.parsed.flavor {
        Flavor::Kubernetes => {
            let declared = input.parsed.of_kubernetes()?.images.get(container);
            let Some(declared) = declared else { return undeclared() };
            if repository(image) != declared.repository {
                return Some(format!("not from the repository {} of provider.yaml", declared.repository));
            }
            // The operator sets what the descriptor says: another digest here would look like the one that runs.
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

/// Each tag whose image may be another one tomorrow: those of `images` of the descriptor for any Kubernetes without a digest.
pub(super) fn image_digests(input: Input) -> Values {
    let images = input.parsed.of_kubernetes().into_iter().flat_map(|descriptor| &descriptor.images);
    let of_image = |(container, Image { repository, versions, .. }): (&String, &Image)| {
        let at = format!("/images/{container}/versions");
        let newest = versions.tags.iter().map(|(minor, tag)| (tag.name.as_str(), format!("{at}/tags/{minor}")));
        let verified = versions.verified.iter().enumerate();
        let all = newest.chain(verified.map(|(index, tag)| (tag.as_str(), format!("{at}/verified/{index}"))));
        let mut places = BTreeMap::<&str, String>::new();
        for (tag, place) in all.filter(|(tag, _)| versions.digest_of(tag).is_none()) {
            places.entry(tag).or_insert(place);
        }
        let defect = |(tag, place): (&str, String)| {
            let image = format!("{repository}:{tag}");
            (input.parsed.descriptor_error(&place, format!("{container}: {image} has no digest")), image)
        };
        places.into_iter().map(defect).collect::<Vec<_>>()
    };
    images.flat_map(of_image).collect()
}

/// An image without its tag and digest.
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
