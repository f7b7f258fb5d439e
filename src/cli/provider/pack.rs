//! The command `provider pack`.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;

use super::{PolicyArgs, digest::warn_of_refusal, target::load};
use crate::{
    cli::flags::{print, say, wrong_usage},
    files::{Readers, STANDARD, beside, parent, write_folder},
    plan::install::NAME,
    provider::package::Package,
    text::yaml,
};

/// Flags of `provider pack`.
#[derive(Args, Debug)]
pub struct PackArgs {
    /// A provider's folder, tar or OCI image layout; or a name from `provider list`. `./NAME` is always a path.
    ///
    /// A package that the operator would refuse is written with a warning. `provider verify` fails for it.
    #[arg(value_name = "NAME|PATH")]
    pub target: String,

    /// The file to write; with -, the standard output, the digest is on standard error [default: NAME.tar, or NAME.yaml with --configmap].
    #[arg(short, long, value_name = "FILE", conflicts_with = "oci_layout")]
    pub output: Option<PathBuf>,

    /// Write a ConfigMap that contains the tar, for a mount in the operator's Pod.
    #[arg(long, conflicts_with = "oci_layout")]
    pub configmap: bool,

    /// The namespace of the ConfigMap: the operator's own.
    #[arg(long, visible_alias = "operator-namespace", default_value = NAME, requires = "configmap")]
    pub namespace: String,

    /// Write an OCI image layout to this folder, which must be empty or not exist, and must have the provider's name.
    ///
    /// `skopeo copy --preserve-digests oci:DIR docker://IMAGE` copies it to a registry. As an image volume, it is the provider's folder,
    /// with the same digest as the tar.
    #[arg(long, value_name = "DIR")]
    pub oci_layout: Option<PathBuf>,

    /// The policy that extends the rules for external providers.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

pub(super) fn run(args: &PackArgs) -> anyhow::Result<()> {
    let loaded = load(&args.target)?;
    warn_of_refusal(&args.target, &loaded, &args.policy.read()?);
    let package = loaded.package;
    if let Some(folder) = &args.oci_layout {
        check_name(folder, &package, "")?;
        if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(wrong_usage(&format!(
                "--oci-layout: {} is not empty: remove it, or give another folder",
                folder.display()
            )));
        }
        let layout = package.oci_layout();
        fs::create_dir_all(parent(folder))
            .and_then(|()| write_folder(folder, layout.files))
            .with_context(|| format!("failed to write {}", folder.display()))?;
        say(&format!("{}: written; the digest of the tar in it is {}", folder.display(), package.digest()));
        return print(&format!("{}\n", layout.digest));
    }
    let (bytes, extension) = if args.configmap {
        (yaml::to_string(&package.config_map(&args.namespace)?)?.into_bytes(), "yaml")
    } else {
        (package.tar(), "tar")
    };
    let default = || PathBuf::from(format!("{}.{extension}", package.name()));
    let output = args.output.clone().unwrap_or_else(default);
    if output.as_os_str() == STANDARD {
        if !args.configmap && io::stdout().is_terminal() {
            return Err(wrong_usage("-o -: a tar contains control characters; write it to a file or a pipe"));
        }
        io::stdout()
            .write_all(&bytes)
            .and_then(|()| io::stdout().flush())
            .context("failed to write to standard output")?;
        say(package.digest());
        return Ok(());
    }
    if !args.configmap {
        check_name(&output, &package, ".tar")?;
    }
    write_file(&output, &bytes).with_context(|| format!("failed to write {}", output.display()))?;
    say(&format!("{}: written", output.display()));
    print(&format!("{}\n", package.digest()))
}

/// Refuses a file name under which the package could not be read, because a pinned package is expected under its name.
fn check_name(path: &Path, package: &Package, extension: &str) -> anyhow::Result<()> {
    let name = package.name();
    // A device keeps its own name.
    let is_file = path.is_file() || path.is_dir() || !path.exists();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    if is_file && file.strip_suffix(extension).unwrap_or(&file) != name {
        let right = path.with_file_name(format!("{name}{extension}"));
        let (given, right) = (path.display(), right.display());
        return Err(wrong_usage(&format!("{given}: a package has the name of its provider: write {right}")));
    }
    Ok(())
}

/// Writes a file atomically.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A rename would replace a device with the file.
    if path.exists() && !path.is_file() {
        return Err(io::Error::other("not a regular file; - is the standard output"));
    }
    beside(parent(path), bytes, Readers::All)?.persist(path)?;
    Ok(())
}
