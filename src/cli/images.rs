//! The command `images`: what a mirror has to hold.

use clap::Args;
use serde::Serialize;

use super::flags::{OutputFormat, print, wrong_usage};
use crate::{
    facts::version::Minor,
    provider::{catalog::Catalog, embedded, upstream::Upstream},
    text::output,
};

/// Flags of `images`.
#[derive(Args, Debug)]
pub struct ImagesArgs {
    /// The versions of Kubernetes, comma-separated, such as 1.33,1.34.
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', required = true)]
    pub kubernetes: Vec<Minor>,

    /// Only these providers, comma-separated [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub provider: Vec<String>,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// An image for a version of Kubernetes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    provider: String,
    kubernetes: String,
    /// Empty if there is none.
    #[serde(rename = "image")]
    reference: String,
    /// Whether somebody has pulled and run it. The others are known by their tag in the source repository only.
    verified: bool,
    /// Why it is not known to work with this version of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Prints the list.
pub(super) fn run(args: &ImagesArgs) -> anyhow::Result<()> {
    let images = list(&embedded::catalog()?, args);
    let row = |image: &Image| {
        let Image { provider, kubernetes, reference, verified, note } = image;
        let state = if *verified { "verified" } else { "not verified" };
        let note = note.as_ref().map_or_else(|| state.to_owned(), |note| format!("{state}; {note}"));
        [provider.clone(), kubernetes.clone(), reference.clone(), note]
    };
    let rows: Vec<_> = images.iter().map(row).collect();
    print(&args.output.write(&images, || output::table(["PROVIDER", "KUBERNETES", "IMAGE", "NOTE"], &rows))?)
}

fn list(catalog: &Catalog, args: &ImagesArgs) -> Vec<Image> {
    let chosen: Vec<&Upstream> = if args.provider.is_empty() {
        catalog.upstream().collect()
    } else {
        let named = args.provider.iter().map(|name| catalog.upstream_of(name));
        named.map(|found| found.unwrap_or_else(|problem| wrong_usage(&problem))).collect()
    };
    let of_provider = |provider: &Upstream| -> Vec<Image> {
        let name = &provider.descriptor.name;
        let images = provider.descriptor.images.values();
        let each = images.flat_map(|image| args.kubernetes.iter().map(move |minor| (image, *minor)));
        let line = each.map(|(image, minor)| {
            let choice = image.versions.choose(minor);
            let (provider, kubernetes) = (name.clone(), minor.to_string());
            match choice {
                Some(choice) => Image {
                    provider,
                    kubernetes,
                    reference: format!("{}:{}", image.repository, choice.tag),
                    verified: image.versions.verified.contains(&choice.tag),
                    note: choice.problem.map(|(_, sentence)| sentence),
                },
                None => Image {
                    provider,
                    kubernetes,
                    reference: String::new(),
                    verified: false,
                    note: Some(format!("there is no tag near this version as of {}", image.versions.as_of)),
                },
            }
        });
        line.collect()
    };
    chosen.into_iter().flat_map(of_provider).collect()
}
