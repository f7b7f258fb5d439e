//! The command `provider digest`.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::{PolicyArgs, check_unpinned, target::load};
use crate::{
    cli::flags::{OutputFormat, print, say, wrong_usage},
    provider::{
        external::{self, Pinning, policy::PolicyFile},
        folder::has_yaml_extension,
        package::{
            self,
            read::{LoadedPackage, PackageFormat},
        },
        verify::Policy,
    },
    text::output,
};

/// Flags of `provider digest`.
#[derive(Args, Debug)]
pub struct DigestArgs {
    /// A provider's folder, tar or OCI image layout (standard error shows the detected form); the *.yaml of a policy for providers; or a
    /// name from `provider list`. `./NAME` is always a path.
    #[arg(value_name = "NAME|PATH")]
    pub target: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,

    /// The policy that extends the rules for external providers.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// The parts of a pin: the name and the digest of a package.
#[derive(Serialize)]
struct Pin {
    name: String,
    /// The form of a package, or `policy`.
    form: Value,
    digest: String,
}

pub(super) fn run(args: &DigestArgs) -> anyhow::Result<()> {
    let path = Path::new(&args.target);
    if path.extension().is_some_and(|extension| extension == "yml") && path.is_file() {
        return Err(wrong_usage(&format!("{}: the name of a policy has to end with .yaml", args.target)));
    }
    let is_policy = has_yaml_extension(&args.target) && path.is_file();
    let pin = if is_policy { policy(&args.target)? } else { package(&args.target, &args.policy)? };
    print(&args.output.write(&pin, || format!("{}\n", pin.digest))?)
}

fn package(target: &str, policy: &PolicyArgs) -> anyhow::Result<Pin> {
    let loaded = load(target)?;
    say(&format!("{target}: read as {}", loaded.form.words()));
    warn_of_refusal(target, &loaded, &policy.read()?);
    Ok(Pin { name: loaded.package.name().to_owned(), form: json!(loaded.form), digest: loaded.digest })
}

/// Warns if the operator would refuse the package, before the user pins it.
pub(super) fn warn_of_refusal(target: &str, loaded: &LoadedPackage, policy: &Policy) {
    let check = || check_unpinned(target, loaded.clone(), policy);
    if let Some(Err(refused)) = (loaded.form != PackageFormat::BuiltIn).then(check) {
        say(&format!("warning: the operator would refuse it: {}", output::printable(&refused.why)));
    }
}

/// Returns the pin of a policy, which is read as by the operator.
fn policy(target: &str) -> anyhow::Result<Pin> {
    let file = PolicyFile { path: target.into(), digest: None };
    let text =
        external::read::read_policy(&file, Pinning::Optional).map_err(anyhow::Error::msg)?.text.unwrap_or_default();
    let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Pin { name, form: json!("policy"), digest: package::digest(text.as_bytes()) })
}
