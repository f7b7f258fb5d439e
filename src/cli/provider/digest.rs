//! The command `provider digest`.

use clap::Args;
use serde::Serialize;

use super::target::load;
use crate::{
    cli::flags::{OutputFormat, print, say},
    provider::package::read::Form,
};

/// Flags of `provider digest`.
#[derive(Args, Debug)]
pub struct DigestArgs {
    /// A provider's folder, its tar, or the layout of an OCI image, and standard error says which one it is; or a provider by its name
    /// in `provider list`. `./NAME` is always a path.
    #[arg(value_name = "PATH|NAME")]
    pub target: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
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
    let form = loaded.form.words();
    say(&format!("{}: read as {form}", args.target));
    let pin = Pin { name: loaded.package.name().to_owned(), form: loaded.form, digest: loaded.digest };
    print(&args.output.write(&pin, || format!("{}\n", pin.digest))?)
}
