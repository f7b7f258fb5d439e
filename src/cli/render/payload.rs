//! The command `render payload`: the manifests that install the operator on OpenShift.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, builder::NonEmptyStringValueParser};

use super::Destination;
use crate::{
    cli::flags::say,
    facts::{DEFAULT_NAMESPACE, read},
    provider::{embedded, payload::Installation},
};

/// The only file of the install payload that is not applied to the cluster.
const IMAGE_REFERENCES: &str = "image-references";

const HELP: &str = "\
Example:
  ccm-operator render payload --dest-dir install --images-file images.yaml \\
      --image registry.example.com/ccm-operator:0.1.0 --release-version 4.22.0
      writes the manifests to install/manifests, for `oc apply --server-side -f install/manifests`";

#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct PayloadArgs {
    /// The operator's image.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub image: Option<String>,

    /// The version of the release.
    #[arg(long, value_name = "VERSION")]
    pub release_version: Option<String>,

    /// The ConfigMap manifest cloud-controller-manager-images; - is the standard input.
    #[arg(long, value_name = "FILE")]
    pub images_file: Option<PathBuf>,

    /// The namespace to manage.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    #[command(flatten)]
    pub destination: Destination,
}

pub(super) fn run(args: &PayloadArgs) -> anyhow::Result<()> {
    let images = args.images_file.as_ref().map(|path| read::images(path)).transpose()?.map(|(json, _)| json);
    let installation = Installation {
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        version: args.release_version.clone(),
        images,
    };
    let mut files = Vec::new();
    for (name, bytes) in embedded::manifests() {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        // The image stream is for release tooling, which replaces its images itself.
        let is_manifest = name != IMAGE_REFERENCES;
        let text = if is_manifest { installation.of(text)? } else { text.to_owned() };
        if is_manifest || !args.destination.is_stream() {
            files.push((PathBuf::from("manifests").join(name), text));
        }
    }
    let missing = installation.placeholders();
    if !missing.is_empty() {
        say(&format!("placeholders of a release are left: give {} to replace them", missing.join(", ")));
    }
    args.destination.write(&files)
}
