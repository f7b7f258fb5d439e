//! The command `provider digest`.

use clap::Args;
use serde::Serialize;

use super::{PolicyArgs, target::load};
use crate::{
    cli::flags::{OutputFormat, print, say},
    provider::{foreign, package::read::Form},
};

/// Flags of `provider digest`.
#[derive(Args, Debug)]
pub struct DigestArgs {
    /// A provider's folder, its tar, or the layout of an OCI image; or a provider by its name in `provider list`. `./NAME` is
    /// always a path.
    #[arg(value_name = "PATH|NAME")]
    pub target: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,

    /// What the provider may have beyond the rules for providers of others.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// What a pin names.
#[derive(Serialize)]
struct Pin {
    name: String,
    form: Form,
    digest: String,
}

/// Prints the digest.
pub(super) fn run(args: &DigestArgs) -> anyhow::Result<()> {
    let loaded = load(&args.target)?;
    // Whoever pins it should know.
    if let [first, ..] = &foreign::check(&loaded.package.bundles(), &args.policy.read()?)[..] {
        let target = &args.target;
        say(&format!("warning: the operator would refuse it: {first}; see `ccm-operator provider verify {target}`"));
    }
    let pin = Pin { name: loaded.package.name().to_owned(), form: loaded.form, digest: loaded.digest };
    print(&args.output.write(&pin, || format!("{}\n", pin.digest))?)
}
