//! Disagreements between the descriptor of a provider and its manifests (pure).
//!
//! An external author writes both, so the work must not grow with the product of their sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::{ParsedProvider, arguments};
use crate::{
    error::brief,
    object,
    provider::{
        CCM, Common, DescriptorFields, Error, FactOrText, Flavor, Phase, Sources, ValueSource, kubernetes, patterns,
    },
    text::{suggest::Hints, work, yaml::outline::child},
};

/// The most bytes that the descriptor's arguments and variables may take in all containers together, each with [`EACH`] more. A
/// cloud-controller-manager has about twenty of them.
const MAX_SET: usize = 1 << 20;

/// The bytes that each one takes in addition to its texts.
const EACH: usize = 64;

/// The bytes of a value outside the descriptor: the value of a fact, or the reference to a key of a Secret.
const ELSEWHERE: usize = 256;

impl ParsedProvider {
    /// Returns the disagreements between the descriptor and the manifests. Checks only a folder without [`ParsedProvider::defects`],
    /// because a container may be in an unreadable file.
    pub fn misfits(&self) -> Vec<Error> {
        let Some(descriptor) = self.descriptor.as_ref().filter(|_| self.defects.is_empty()) else { return Vec::new() };
        let set = descriptor.common();
        let mut misfits = self.unknown_containers(&set);
        misfits.extend(self.facts_of_ccms(&set));
        misfits.extend(self.repeated_arguments(&set));
        misfits.extend(self.fixed_variables());
        misfits.extend(self.too_much(&set));
        let own = self.of_kubernetes().into_iter().flat_map(|one| one.misfits().into_iter().chain(of_patterns(one)));
        misfits.extend(own.map(|(pointer, problem)| self.descriptor_error(&pointer, problem)));
        misfits
    }

    /// Finds containers that are only in the descriptor, or only in the manifests.
    fn unknown_containers(&self, set: &Common) -> Vec<Error> {
        let names = |phase| self.containers(phase).map(object::container_name).collect::<BTreeSet<_>>();
        let of_cluster = names(Phase::Cluster);
        let all = &of_cluster | &names(Phase::Bootstrap);
        let in_images = set.images.iter().map(|name| ("images", *name, &all));
        let in_arguments = set.arguments.keys().map(|name| ("arguments", name.as_str(), &of_cluster));
        let in_environment = set.environment.keys().map(|name| ("environment", name.as_str(), &of_cluster));
        let (mut found, hints) = (Vec::new(), Hints::default());
        for (field, name, known) in in_images.chain(in_arguments).chain(in_environment) {
            work::add(1);
            if !known.contains(name) {
                let hint = hints.of(name, known.iter().copied());
                let problem = format!("no manifest has a container {:?}{hint}", brief(name));
                found.push(self.descriptor_error(&child(&format!("/{field}"), name), problem));
            }
        }
        for name in all.difference(&set.images) {
            let what = if self.flavor == Flavor::Kubernetes { "repository and versions" } else { "key and tag" };
            let problem = format!("`images` has no entry for container {:?}: add its {what}", brief(name));
            found.push(self.descriptor_error("/images", problem));
        }
        found
    }

    /// Finds facts that do not exist on OpenShift.
    fn facts_of_ccms(&self, set: &Common) -> Vec<Error> {
        let mut found = Vec::new();
        for (field, sources) in [("arguments", set.arguments), ("environment", set.environment)] {
            for (container, target, source) in each(sources) {
                if let FactOrText::Fact(fact) = source.value
                    && fact.is_of_ccm()
                    && self.flavor == Flavor::OpenShift
                {
                    let problem = format!("the fact {} is not known on OpenShift", fact.name());
                    found.push(self.descriptor_error(&at(field, container, target), problem));
                }
            }
        }
        found
    }

    /// Finds arguments that the manifests also have.
    fn repeated_arguments(&self, set: &Common) -> Vec<Error> {
        let mut written = BTreeSet::new();
        for container in self.containers(Phase::Cluster) {
            let name = object::container_name(container);
            written.extend(arguments(container).map(|argument| {
                work::add(1);
                (name, flag_of(argument))
            }));
        }
        let repeated = each(set.arguments).filter(|(container, flag, _)| {
            work::add(1);
            written.contains(&(*container, flag_of(flag)))
        });
        let problem = |(container, flag, _): (&str, &str, &ValueSource)| {
            let problem = format!("container {:?} already has {} in its manifest", brief(container), brief(flag));
            self.descriptor_error(&at("arguments", container, flag), problem)
        };
        repeated.map(problem).collect()
    }

    /// Finds variables that an administrator may set although the manifests set them.
    fn fixed_variables(&self) -> Vec<Error> {
        let Some(descriptor) = self.of_kubernetes() else { return Vec::new() };
        let ccms = self.containers(Phase::Cluster).filter(|container| object::container_name(container) == CCM);
        let set = ccms.flat_map(|ccm| object::items(&ccm["env"])).inspect(|_| work::add(1));
        let set: BTreeSet<_> = set.filter_map(|variable| variable["name"].as_str()).collect();
        let allowed = descriptor.allowed_environment.iter().enumerate();
        let fixed = allowed.filter(|(_, name)| set.contains(name.as_str()));
        let problem = |(index, name): (usize, &String)| {
            let problem = format!("the variable {:?} is set in the manifest already", brief(name));
            self.descriptor_error(&format!("/allowedEnvironment/{index}"), problem)
        };
        fixed.map(problem).collect()
    }

    /// Reports too many arguments and variables. Each is set in every container of its name; a variable with credentials is set in every
    /// container except init containers.
    fn too_much(&self, set: &Common) -> Option<Error> {
        let mut containers = BTreeMap::<&str, usize>::new();
        for container in self.containers(Phase::Cluster) {
            *containers.entry(object::container_name(container)).or_default() += 1;
        }
        let mut sum = 0_usize;
        let mut add = |bytes: usize, times: usize| sum = sum.saturating_add((EACH + bytes).saturating_mul(times));
        for (container, target, source) in each(set.arguments).chain(each(set.environment)) {
            let value = if let FactOrText::Text(text) = &source.value { text.len() } else { ELSEWHERE };
            add(target.len() + value, containers.get(container).copied().unwrap_or_default());
        }
        let running = self.pods(Phase::Cluster).filter_map(|pod| pod["containers"].as_array()).map(Vec::len).sum();
        let credentials = self.of_kubernetes().into_iter().filter_map(|one| one.credentials.as_ref());
        for (variable, key) in credentials.flat_map(|one| &one.environment) {
            add(variable.len() + key.len() + ELSEWHERE, running);
        }
        let problem = || {
            format!(
                "the arguments and variables of all containers have {sum} bytes, each counted with {EACH} more, and what comes from a fact or a \
                 Secret with {ELSEWHERE}; they may have {MAX_SET}"
            )
        };
        (sum > MAX_SET).then(|| self.descriptor_error("", problem()))
    }
}

fn at(field: &str, container: &str, target: &str) -> String {
    child(&child(&format!("/{field}"), container), target)
}

/// Returns each source with its container and its target.
fn each(sources: &Sources) -> impl Iterator<Item = (&str, &str, &ValueSource)> {
    sources
        .iter()
        .flat_map(|(name, all)| all.iter().map(move |(target, source)| (name.as_str(), target.as_str(), source)))
}

/// Returns the name of an argument's flag.
fn flag_of(argument: &str) -> &str {
    let flag = argument.trim_start_matches('-');
    flag.split_once('=').map_or(flag, |(flag, _)| flag)
}

/// Finds values of a descriptor that are not a valid repository, tag or file name: JSON pointer and text.
fn of_patterns(descriptor: &kubernetes::Descriptor) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (container, image) in &descriptor.images {
        let at = child("/images", container);
        if !patterns::is_repository(&image.repository) {
            let problem = "no repository: it consists of lower-case letters, digits and the characters - . _ : /, and begins and ends with a \
                           letter or a digit";
            found.push((format!("{at}/repository"), problem.to_owned()));
        }
        for (place, _) in image.versions.places().filter(|(_, tag)| !patterns::is_tag(tag)) {
            let problem = "no tag: it consists of at most 128 letters, digits and the characters - . _, and does not begin with - or .";
            found.push((format!("{at}/versions/{place}"), problem.to_owned()));
        }
    }
    if descriptor.cloud_config.as_ref().is_some_and(|config| !patterns::is_file(&config.file)) {
        let problem =
            "no name of a file: it consists of letters, digits and the characters - . _, and does not begin with ..";
        found.push(("/cloudConfig/file".to_owned(), problem.to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::folder::parsed_providers_of;

    /// A descriptor for containers with the unique names `c` and `a/b`, followed by more text.
    fn descriptor(more: &str) -> String {
        let image = "{repository: docker.io/a/c, versions: {rule: OneLine, tags: {\"1.35\": v1}, asOf: 2026-01-01}, architectures: [amd64]}";
        format!(
            "name: a\nnodes: {{providerIDs: [\"abc://\"], zones: false, withoutProviderID: Exists, otherCloudProviderID: Exists, names: {{are: \
             x}}}}\nimages:\n  c: {image}\n  a/b: {image}\n{more}"
        )
    }

    fn misfits(descriptor: &str, init: usize, containers: usize) -> Vec<String> {
        let list = |count: usize| "{name: c, args: [--d/e=f]},".repeat(count);
        let spec = format!("{{initContainers: [{}{{name: a/b}}], containers: [{}]}}", list(init), list(containers));
        let deployment = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a, namespace: kube-system}}\nspec: {{template: {{spec: {spec}}}}}\n"
        );
        let files =
            [("assets/kubernetes/a.yaml", deployment.as_str()), ("assets/kubernetes/provider.yaml", descriptor)];
        let parsed = parsed_providers_of("a", files.map(|(path, text)| (path, text.as_bytes()))).remove(0);
        assert_eq!(parsed.defects, []);
        parsed.misfits().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_set_in_all_containers_has_a_limit() {
        let list =
            |count: usize, value: &str| (0..count).map(|n| format!("A{n:05}: {value}, ")).collect::<Vec<_>>().concat();
        let credentials = |count: usize| format!("credentials: {{keys: [k], environment: {{{}}}}}\n", list(count, "k"));
        let environment = |count: usize, value: &str| format!("environment: {{c: {{{}}}}}\n", list(count, value));
        let argument = |bytes: usize| format!("arguments: {{c: {{--a: {{value: \"{}\"}}}}}}\n", "x".repeat(bytes));
        for (more, init, containers, is_too_much) in [
            (credentials(2_000), 0, 1, false),
            (credentials(4_000), 0, 1, true),
            (credentials(12), 0, 255, false),
            (credentials(13), 0, 255, true),
            // Init containers get no credentials.
            (credentials(13), 250, 5, false),
            (environment(12, "clusterName"), 0, 255, false),
            (environment(13, "clusterName"), 250, 5, true),
            (environment(56, "{value: \"x\"}"), 0, 255, false),
            (environment(60, "{value: \"x\"}"), 0, 255, true),
            (argument(4_000), 0, 255, false),
            (argument(4_100), 0, 255, true),
            (argument(900_000), 0, 1, false),
            (argument(4_000) + &credentials(1), 0, 255, true),
        ] {
            let found = misfits(&descriptor(&more), init, containers);
            let expected = "assets/kubernetes/provider.yaml:1: the arguments and variables of all containers have ";
            assert_eq!(found.len(), usize::from(is_too_much), "{found:?}: {more:.60}");
            assert!(found.iter().all(|one| one.starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn a_misfit_has_the_line_of_its_key() {
        let more = "arguments:\n  c:\n    --g: namespace\n    --d/e: namespace\n  x/y~z: {}\ncredentials:\n  keys: [k]\n  environment:\n    A: k\n    B/C: l\n";
        let found = misfits(&descriptor(more), 0, 1);
        let expected = [
            "assets/kubernetes/provider.yaml:10: no manifest has a container \"x/y~z\"",
            "assets/kubernetes/provider.yaml:9: container \"c\" already has --d/e in its manifest",
            "assets/kubernetes/provider.yaml:15: the key \"l\" is neither in keys nor in optionalKeys",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
        let found = misfits(&descriptor("").replace("a/b: {repository: docker.io/a/c", "a/b: {repository: A"), 0, 1);
        assert!(
            found.len() == 1 && found[0].starts_with("assets/kubernetes/provider.yaml:5: no repository"),
            "{found:?}"
        );
    }

    #[test]
    fn the_work_for_keys_and_variables_grows_with_their_number() {
        let steps = |count: usize| {
            let variables = (0..count).map(|n| format!("A{n:05}: l{n:05}, ")).collect::<Vec<_>>().concat();
            let keys = (0..64).map(|n| format!("k{n:05}, ")).collect::<Vec<_>>().concat();
            let more = format!("credentials: {{keys: [{keys}], environment: {{{variables}}}}}\n");
            work::of(|| assert!(misfits(&descriptor(&more), 0, 1).len() >= count))
        };
        let (small, large) = (steps(400), steps(4_000));
        assert!(large < 15 * small, "{small} steps, and {large} for ten times the number");
    }
}
