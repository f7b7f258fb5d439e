//! The command `provider new`: the folder of a new provider.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Zoned;

use crate::{
    cli::{
        flags::{choice, print, say, wrong_usage},
        init::ask,
    },
    files::read_given,
    proposal::published::{self, Published},
    provider::{
        Flavor, embedded, is_file, is_variable,
        scaffold::{self, CloudConfig, ImageReference, Options},
        versions::VersionRule,
    },
    text::{output::printable, yaml},
};

/// The examples of the long help.
const HELP: &str = "\
Examples:
  ccm-operator provider new acme
      asks on the terminal, and writes the folder acme/
  ccm-operator provider new acme --from acme-cloud-controller-manager.yaml
      takes what stands in the manifest that the cloud publishes, and names the rest
  ccm-operator provider new acme --image ghcr.io/acme/ccm:v1.2.3@sha256:… --credentials ACME_TOKEN=token
      asks nothing; one Secret with the key token, which the program reads as ACME_TOKEN
  ccm-operator provider new acme --image ghcr.io/acme/ccm:v1.35.2@sha256:… --flavor both \\
      --cloud-config acme.yaml --holds-credentials
      the credentials are in the file of --cloud-config; also for OpenShift, with the bootstrap
      VM's pod

The folder holds plain manifests and descriptors, and `provider verify ./acme` finds nothing in it but
images without a digest.
Comments that begin with \"Edit\" mark what only the cloud's documentation tells; what stands there is
the most careful answer. The next commands are in acme/README.md.";

/// Flags of `provider new`, named after the fields of descriptors and manifests. Without --image, the command asks for them on the
/// terminal.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct NewArgs {
    /// The provider's name, which is also the name of the folder and the prefix of the names of its objects.
    pub name: String,

    /// A manifest that the cloud publishes, for any Kubernetes; - is the standard input. The image, the program, its flags and variables,
    /// the configuration and the credentials are taken from it, unless a flag gives them. Lines NOT KEPT name what is not.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,

    /// The flavors of the provider.
    #[arg(long, value_enum, default_value_t)]
    pub flavor: Flavors,

    /// The image of the cloud-controller-manager, with its tag and its digest; the operator refuses a provider without a digest. Without
    /// the flag, the command asks for all missing values on the terminal.
    #[arg(long, value_name = "REPOSITORY:TAG[@sha256:DIGEST]")]
    pub image: Option<ImageReference>,

    /// The numbering of the cloud's versions [default: detected from the tag].
    #[arg(long, value_parser = choice(RULES))]
    pub rule: Option<VersionRule>,

    /// The program in the image [default: /NAME-cloud-controller-manager].
    #[arg(long, value_name = "PATH")]
    pub command: Option<String>,

    /// The name under which the cloud's code registers itself, as its own manifest has it in --cloud-provider [default: NAME].
    #[arg(long, value_name = "NAME")]
    pub cloud_provider: Option<String>,

    /// The version of k8s.io/cloud-provider in the go.mod of the program, such as 0.24.17 [default: 0.27 or newer].
    #[arg(long, value_name = "VERSION", value_parser = library)]
    pub library: Option<u32>,

    /// The name of the file of --cloud-config, such as cloud.yaml, if the program needs one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<String>,

    /// The file of --cloud-config holds the credentials: it is a key of a Secret, not of a ConfigMap.
    #[arg(long)]
    pub holds_credentials: bool,

    /// The variables from which the program reads its credentials, each with its key in the Secret, comma-separated.
    #[arg(long, value_name = "VARIABLE=KEY", value_delimiter = ',')]
    pub credentials: Vec<String>,

    /// The image of a node manager, a DaemonSet that initializes nodes instead of the cloud-controller-manager.
    #[arg(long, value_name = "REPOSITORY:TAG[@sha256:DIGEST]")]
    pub node_manager: Option<ImageReference>,

    /// The cloud-controller-manager has a route controller.
    #[arg(long)]
    pub routes: bool,

    /// The prefix of the providerIDs that it writes on nodes [default: NAME://].
    #[arg(long, value_name = "PREFIX")]
    pub provider_id: Option<String>,

    /// The platform type of OpenShift clusters; with External, those whose external platform has the provider's name.
    #[arg(long, value_name = "TYPE", default_value = "External")]
    pub platform: String,
}

/// Flavors of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Flavors {
    /// For any Kubernetes.
    #[default]
    Kubernetes,
    /// For OpenShift.
    OpenShift,
    /// Both.
    Both,
}

const RULES: [(VersionRule, &str, &str); 3] = [
    (VersionRule::SameMinor, "SameMinor", "v1.35.2 or 0.35.2 is for Kubernetes 1.35"),
    (VersionRule::MajorIsMinor, "MajorIsMinor", "v35.1.3 is for Kubernetes 1.35"),
    (VersionRule::OneLine, "OneLine", "One version is for several of Kubernetes"),
];

pub(super) fn run(args: &NewArgs) -> anyhow::Result<ExitCode> {
    scaffold::check_name(&args.name, &embedded::names()).map_err(|problem| wrong_usage(&problem))?;
    let folder = PathBuf::from(&args.name);
    // Fails before the user is asked anything.
    if let Some(error) = scaffold::write::is_taken(&folder) {
        return Err(error.into());
    }
    let published = args.from.as_deref().map(published).transpose()?.unwrap_or_default();
    let options = options(args, &published)?;
    let files = scaffold::files(&options).map_err(|problem| wrong_usage(&problem))?;
    scaffold::check(&options.name, &files).map_err(|problem| wrong_usage(&problem))?;
    scaffold::write::folder(&folder, &files)?;
    let left: Vec<_> = published.left.iter().map(|line| format!("NOT KEPT  {line}\n")).collect();
    let names: Vec<_> = files.keys().map(|path| format!("  {}/{path}\n", args.name)).collect();
    print(&format!(
        "{}written:\n{}next: read {}/README.md, then ccm-operator provider verify ./{}\n",
        printable(&left.concat()),
        names.concat(),
        args.name,
        args.name
    ))?;
    for image in options.unpinned() {
        say(&format!(
            "{image} has no digest: the operator refuses it until {}/assets/kubernetes/provider.yaml has one, or a policy allows the tag; \
             see README.md",
            args.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the program of a published manifest.
fn published(path: &Path) -> anyhow::Result<Published> {
    let text = read_given(path).with_context(|| format!("failed to read {}", path.display()))?;
    let problem = |problem: &str| wrong_usage(&format!("--from {}: {problem}", path.display()));
    let documents = yaml::documents(&text).map_err(|error| problem(&error.to_string()))?;
    published::read(&documents).map_err(|error| problem(&error))
}

/// Reads the options from the flags, or else from a published manifest. The image is the only option without a default: if it is missing,
/// the user is asked for all options.
fn options(args: &NewArgs, published: &Published) -> anyhow::Result<Options> {
    let of_manifest = || {
        published.image.clone().transpose().map_err(|problem| wrong_usage(&format!("--from: {problem}; give --image")))
    };
    let image = args.image.clone().map_or_else(of_manifest, |image| Ok(Some(image)))?;
    let (name, asks) = (&args.name, Prompter { is_on: image.is_none() });
    let question = "the image of the cloud-controller-manager, REPOSITORY:TAG@sha256:DIGEST";
    let image = image.map_or_else(|| asked("--image", question, None, str::parse), Ok)?;
    let default = format!("/{name}-cloud-controller-manager");
    let program = match args.command.as_ref().or(published.command.as_ref()) {
        None if args.from.is_some() => None,
        given => {
            let question = "the program in the image";
            Some(asks.given(given.map(String::as_str), "--command", question, &default, command)?)
        }
    };
    let question = "the name of the file of --cloud-config";
    let of_manifest = published.cloud_config.as_ref();
    let given = args.cloud_config.as_ref().or(of_manifest.map(|config| &config.file));
    let cloud_config = asks.optional(given.map(String::as_str), "--cloud-config", question, file)?;
    if args.holds_credentials && cloud_config.is_none() {
        return Err(wrong_usage("--holds-credentials is about the file of --cloud-config, which is not given"));
    }
    let variables = Some(args.credentials.join(",")).filter(|text| !text.is_empty());
    let question = "the variables with credentials and their keys in the Secret, such as ACME_TOKEN=token";
    let given = asks.optional(variables.as_deref(), "--credentials", question, credentials)?.unwrap_or_default();
    let credentials = published.credentials.clone().into_iter().chain(given).collect();
    let node_manager = match &args.node_manager {
        Some(image) => Some(image.clone()),
        None => asks.optional(None, "--node-manager", "the image of a node manager", str::parse)?,
    };
    let routes = args.routes
        || published.routes
        || asks.given(None, "--routes", "whether it has a route controller, yes or no", "no", yes_or_no)?;
    let default = format!("{name}://");
    let question = "how the providerIDs begin that it writes";
    let provider_id = asks.given(args.provider_id.as_deref(), "--provider-id", question, &default, prefix)?;
    let platform = platform(&args.platform).map_err(|problem| wrong_usage(&format!("--platform: {problem}")))?;
    let cloud_provider = args.cloud_provider.as_ref().or(published.cloud_provider.as_ref()).unwrap_or(name);
    let cloud_provider = command(cloud_provider).map_err(|_| wrong_usage("--cloud-provider: must be one word"))?;
    Ok(Options {
        name: name.clone(),
        cloud_provider,
        has_old_library: args.library.is_some_and(|minor| minor < 27),
        flavors: match args.flavor {
            Flavors::Kubernetes => vec![Flavor::Kubernetes],
            Flavors::OpenShift => vec![Flavor::OpenShift],
            Flavors::Both => vec![Flavor::Kubernetes, Flavor::OpenShift],
        },
        image,
        rule: args.rule,
        command: program,
        arguments: published.arguments.clone(),
        environment: published.environment.clone(),
        cloud_config: cloud_config.map(|file| CloudConfig {
            file,
            holds_credentials: args.holds_credentials || of_manifest.is_some_and(|config| config.holds_credentials),
        }),
        credentials,
        node_manager,
        routes,
        provider_id,
        platform,
        today: Zoned::now().date().to_string(),
    })
}

/// The questions about options without a flag.
#[derive(Clone, Copy)]
struct Prompter {
    /// Whether the user is also asked for options with a default.
    is_on: bool,
}

impl Prompter {
    /// Returns the value of a flag, or the answer of the user, who is asked again if it is invalid.
    fn given<T>(
        self,
        given: Option<&str>,
        flag: &str,
        question: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        match given.or((!self.is_on).then_some(default)) {
            Some(text) => parse(text).map_err(|problem| wrong_usage(&format!("{flag}: {problem}"))),
            None => asked(flag, question, Some(default), parse),
        }
    }

    /// Returns an optional value in the same way.
    fn optional<T>(
        self,
        given: Option<&str>,
        flag: &str,
        question: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        const NONE: &str = "none";
        let parse = |text: &str| if text == NONE { Ok(None) } else { parse(text).map(Some) };
        self.given(given, flag, question, NONE, parse)
    }
}

/// Returns the answer of the user, who is asked again if it is invalid.
fn asked<T>(
    flag: &str,
    question: &str,
    default: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    loop {
        match parse(&ask::value(flag, question, default)?) {
            Ok(parsed) => return Ok(parsed),
            Err(problem) if ask::is_terminal() => say(&problem),
            Err(problem) => return Err(wrong_usage(&format!("{flag}: {problem}"))),
        }
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "y" => Ok(true),
        "no" | "n" => Ok(false),
        _ => Err("answer yes or no".to_owned()),
    }
}

fn command(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    if is_plain { Ok(text.to_owned()) } else { Err("must be the path or the name of one program".to_owned()) }
}

/// Returns the minor version of a library.
fn library(text: &str) -> Result<u32, String> {
    let numbers: Vec<_> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
    match numbers[..] {
        ["0", minor] | ["0", minor, _] => minor.parse().map_err(|_| ()),
        _ => Err(()),
    }
    .map_err(|()| "must be a version such as 0.24.17".to_owned())
}

/// Parses a key of a Secret or a ConfigMap.
fn file(text: &str) -> Result<String, String> {
    if is_file(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no name of a file: letters, digits, -, _ and ."))
}

fn credentials(text: &str) -> Result<BTreeMap<String, String>, String> {
    let one = |pair: &str| {
        let (variable, key) = pair.trim().split_once('=').ok_or_else(|| format!("{pair:?} is not VARIABLE=KEY"))?;
        if !is_variable(variable) {
            return Err(format!("{variable:?} is no name of a variable"));
        }
        Ok((variable.to_owned(), file(key)?))
    };
    text.split(',').map(one).collect()
}

fn prefix(text: &str) -> Result<String, String> {
    let fits = text.contains("://") && text.chars().all(|c| c.is_ascii_graphic() && !"<>{}\"'".contains(c));
    if fits { Ok(text.to_owned()) } else { Err(format!("{text:?} does not begin a providerID, such as acme://")) }
}

fn platform(text: &str) -> Result<String, String> {
    let fits = text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric());
    if fits { Ok(text.to_owned()) } else { Err(format!("{text:?} is not a platform type, such as External")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_work_is_refused() {
        for text in ["a", "=a", "A=", "1A=a", "A-B=a", "A=a/b", "A=a,"] {
            assert!(credentials(text).is_err(), "{text}");
        }
        assert_eq!(credentials("A=a, B=a").unwrap().len(), 2);
        for text in ["", "a/b", "..", "..a", "a b"] {
            assert!(file(text).is_err(), "{text}");
        }
        assert!(command("a b").is_err() && command("/a").is_ok());
        assert!(prefix("acme").is_err() && prefix("upcloud:////").is_ok() && prefix("<a>://").is_err());
        assert!(platform("acme").is_err() && platform("Acme2").is_ok());
    }
}
