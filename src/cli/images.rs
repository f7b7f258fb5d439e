//! The command `images`: the images that a mirror has to hold.

use clap::Args;
use serde::Serialize;

use super::{
    flags::{OutputFormat, print, wrong_usage},
    provider::target::load,
};
use crate::{
    facts::version::Minor,
    provider::{Flavor, embedded, kubernetes::KubernetesProvider},
    text::output,
};

#[derive(Args, Debug)]
pub struct ImagesArgs {
    /// The versions of Kubernetes, comma-separated, such as 1.33,1.34.
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', required = true)]
    pub kubernetes: Vec<Minor>,

    /// The providers, comma-separated: names from `provider list`, or paths of folders, tars or OCI image layouts; `./NAME` is always a
    /// path [default: all built-in providers].
    #[arg(long, value_name = "NAMES|PATHS", value_delimiter = ',')]
    pub provider: Vec<String>,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageRow {
    provider: String,
    kubernetes: String,
    /// The reference, with a digest if the provider has one; empty if there is no image.
    #[serde(rename = "image")]
    reference: String,
    /// Whether the image was pulled and run. Other images are known only by their tag in the source repository.
    verified: bool,
    /// The reason why the image is not known to work with this version of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(super) fn run(args: &ImagesArgs) -> anyhow::Result<()> {
    let images: Vec<_> = chosen(&args.provider)?.iter().flat_map(|provider| list(provider, &args.kubernetes)).collect();
    let row = |image: &ImageRow| {
        let ImageRow { provider, kubernetes, reference, verified, note } = image;
        let state = if *verified { "verified" } else { "not verified" };
        let note = note.as_ref().map_or_else(|| state.to_owned(), |note| format!("{state}; {note}"));
        [provider.clone(), kubernetes.clone(), reference.clone(), note]
    };
    let rows: Vec<_> = images.iter().map(row).collect();
    print(&args.output.write(&images, || output::table(["PROVIDER", "KUBERNETES", "IMAGE", "NOTE"], &rows))?)
}

/// Returns the requested providers.
fn chosen(targets: &[String]) -> anyhow::Result<Vec<KubernetesProvider>> {
    if targets.is_empty() {
        return Ok(embedded::catalog()?.kubernetes().cloned().collect());
    }
    let of_target = |target: &String| {
        let parsed_providers = load(target)?.package.parsed_providers();
        let Some(parsed) = parsed_providers.iter().find(|parsed| parsed.flavor == Flavor::Kubernetes) else {
            return Err(wrong_usage(&format!(
                "{target} has no flavor for any Kubernetes, whose images are listed here"
            )));
        };
        Ok(parsed.kubernetes()?)
    };
    targets.iter().map(of_target).collect()
}

fn list(provider: &KubernetesProvider, versions: &[Minor]) -> Vec<ImageRow> {
    let name = &provider.descriptor.name;
    let images = provider.descriptor.images.values();
    let each = images.flat_map(|image| versions.iter().map(move |minor| (image, *minor)));
    let line = each.map(|(image, minor)| {
        let choice = image.versions.choose(minor);
        let none = || format!("there is no tag near this version as of {}", image.versions.as_of);
        ImageRow {
            provider: name.clone(),
            kubernetes: minor.to_string(),
            verified: choice.as_ref().is_some_and(|choice| image.versions.verified.contains(&choice.tag)),
            reference: choice.as_ref().map(|choice| choice.reference(&image.repository)).unwrap_or_default(),
            note: choice.map_or_else(|| Some(none()), |choice| choice.problem.map(|(_, sentence)| sentence)),
        }
    });
    line.collect()
}
