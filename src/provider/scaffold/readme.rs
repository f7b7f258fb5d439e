//! The README.md of a new provider (pure).

use super::Options;
use crate::provider::Flavor;

/// Its text: the next commands, and the files with what there is to do in each.
pub(super) fn text(options: &Options) -> String {
    let Options { name, .. } = options;
    let commands: Vec<_> =
        commands(options).into_iter().map(|(command, why)| format!("# {why}\n{command}\n")).collect();
    let files: Vec<_> = files(options).into_iter().map(|(file, what)| format!("- `{file}`: {what}\n")).collect();
    format!(
        "# {name}\n\n\
         A provider of ccm-operator: the manifests of the cloud-controller-manager of {name}, and descriptors that say where facts of a \
         cluster enter them. It is data only: nothing has to be compiled.\n\n\
         ## Next\n\n\
         Read the comments that begin with \"Edit\", and correct what is not so. Then, in the folder that holds this one:\n\n\
         ```sh\n{}```\n\n{}\
         ## Files\n\n{}",
        commands.join("\n"),
        pin(options),
        files.concat()
    )
}

/// What there is to do about images without a digest; nothing if there are none.
fn pin(options: &Options) -> String {
    let open: Vec<_> = options.unpinned().map(ToString::to_string).collect();
    if open.is_empty() {
        return String::new();
    }
    let asked: Vec<_> =
        open.iter().map(|image| format!("skopeo inspect --format '{{{{.Digest}}}}' docker://{image}\n")).collect();
    let values: Vec<_> = open.iter().map(|image| format!("  - {image}\n")).collect();
    format!(
        "## The digests of the images\n\n\
         The operator runs what has been reviewed: it refuses a tag without a digest, because a registry can serve another image for it \
         tomorrow. Ask the registry, and write `{{tag: TAG, digest: \"sha256:…\"}}` in place of each tag in \
         `assets/kubernetes/provider.yaml`:\n\n\
         ```sh\n{}```\n\n\
         While you develop the provider, a file for `--provider-policy` allows the tags:\n\n\
         ```yaml\n{}:\n  external-image-digest:\n{}```\n\n",
        asked.concat(),
        options.name,
        values.concat()
    )
}

fn commands(options: &Options) -> [(String, &'static str); 3] {
    let name = &options.name;
    let mut test = format!("ccm-operator provider test ./{name}");
    if options.cloud_config.is_some() {
        test += " --cloud-config FILE";
    }
    if !options.credentials.is_empty() {
        test += " --credentials FILE";
    }
    [
        (format!("ccm-operator provider verify ./{name}"), "Check it against the rules; after each change."),
        if options.flavors.contains(&Flavor::Kubernetes) {
            (test, "Start it in the cluster of the kubeconfig, without any controller, and remove it again.")
        } else {
            (
                format!("ccm-operator provider show ./{name}"),
                "See what would be applied, and where each value comes from.",
            )
        },
        (format!("ccm-operator provider digest ./{name}"), "The digest that pins it: the operator loads nothing else."),
    ]
}

fn files(options: &Options) -> Vec<(&'static str, &'static str)> {
    let kubernetes = [
        (
            true,
            "assets/kubernetes/provider.yaml",
            "the images, and what the cloud needs and answers, for any Kubernetes",
        ),
        (true, "assets/kubernetes/deployment.yaml", "the cloud-controller-manager, with its arguments"),
        (
            true,
            "assets/kubernetes/rbac.yaml",
            "its account and its permissions; those of the ClusterRole the operator narrows to the controllers that are on",
        ),
        (true, "assets/kubernetes/poddisruptionbudget.yaml", "one replica stays while nodes are drained"),
        (
            options.node_manager.is_some(),
            "assets/kubernetes/node-manager.yaml",
            "the pods that initialize nodes, each its own",
        ),
    ];
    let openshift = [
        (true, "assets/provider.yaml", "the platform and the keys of the images, for OpenShift"),
        (true, "assets/deployment.yaml", "the cloud-controller-manager, with its arguments and its Secret"),
        (true, "assets/rbac.yaml", "its account and its permissions"),
        (true, "assets/poddisruptionbudget.yaml", "one replica stays while nodes are drained"),
        (options.node_manager.is_some(), "assets/node-manager.yaml", "the pods that initialize nodes, each its own"),
        (true, "bootstrap/pod.yaml", "the static pod of the bootstrap VM, which initializes the first nodes"),
    ];
    let kubernetes = kubernetes.into_iter().filter(|_| options.flavors.contains(&Flavor::Kubernetes));
    let all = kubernetes.chain(openshift.into_iter().filter(|_| options.flavors.contains(&Flavor::OpenShift)));
    all.filter(|(is_there, ..)| *is_there).map(|(_, file, what)| (file, what)).collect()
}
