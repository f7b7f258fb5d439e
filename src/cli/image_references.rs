//! The command `image-references`: the file in which release tooling finds the images.

use anyhow::Context;
use clap::Args;

use super::flags::print;
use crate::provider::{embedded, payload};

#[derive(Args, Debug)]
pub struct ImageReferencesArgs {
    /// Print the images ConfigMap instead, with an image for each key.
    #[arg(long)]
    pub config_map: bool,
}

pub(super) fn run(args: &ImageReferencesArgs) -> anyhow::Result<()> {
    let catalog = embedded::catalog()?;
    if !args.config_map {
        return print(&payload::image_references(&catalog));
    }
    let manifests = embedded::manifests();
    let mut texts = manifests.iter().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
    let config_map = texts.find_map(|text| payload::images_config_map(text, &catalog));
    print(&config_map.context("failed to find the images ConfigMap among the embedded manifests")?)
}
