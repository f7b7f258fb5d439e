//! The binary `ccm-operator`: from the command line to the library, and from its errors to an exit code.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage. `diff` and `status` answer by 0 or 1,
//! and fail with 2.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use ccm_operator::{
    azure_credentials,
    bundle::folder,
    chain,
    cli::{
        self, AzureInjectCredentialsArgs, Cli, CloudConfigArgs, Command, ImageReferencesArgs, ListArgs, OutputFormat,
        ProviderCommand, RenderArgs, RenderPhase, ShowArgs, VerifyArgs, VerifyFormat,
    },
    client,
    cloud_config::preview::Preview,
    embedded,
    facts::{
        DEFAULT_NAMESPACE,
        files::{CloudConfigFiles, CloudConfigSources, Files},
    },
    inspect, output, payload,
    plan::{Phase, Plan},
    render, telemetry, verify,
};
use clap::{CommandFactory, Parser, error::ErrorKind};
use run::Settings;
use tracing::info;

mod look;
mod run;

/// The file of the install payload that is no manifest of the cluster's.
const IMAGE_REFERENCES: &str = "image-references";

fn main() -> ExitCode {
    let cli = Cli::parse_from(cli::arguments(env::args_os().collect()));
    telemetry::init(cli.log_format, cli.v);
    let done = match cli.command {
        Command::Operator(args) => run_controllers(Settings::of_operator(args)),
        Command::Diff(args) => return answered(look::diff(&args)),
        Command::Status(args) => return answered(look::status(&args)),
        Command::ConfigSync(args) => run_controllers(Settings::of_config_sync(args)),
        Command::CloudConfig(args) => cloud_config(args),
        Command::Render(args) if args.phase == RenderPhase::Install => render_install(&args),
        Command::Render(args) => render(&args),
        Command::ImageReferences(args) => image_references(&args),
        Command::AzureInjectCredentials(args) => inject_azure_credentials(&args),
        Command::Provider(ProviderCommand::Verify(args)) => return ended(verify(&args)),
        Command::Provider(ProviderCommand::List(args)) => list(&args),
        Command::Provider(ProviderCommand::Show(args)) => show(&args),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

/// The exit code, after saying what went wrong.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            say(&format!("ccm-operator: {}", chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a command that answers by it.
fn answered(answer: anyhow::Result<bool>) -> ExitCode {
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("ccm-operator: {}", chain(error.as_ref())));
            ExitCode::from(2)
        }
    }
}

/// Ends with exit code 2.
fn wrong_usage(message: &str) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, message).exit()
}

/// Says something to the person who runs a command. What was done is done also if nobody listens.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints what was asked for.
fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let summaries: Vec<_> =
        embedded::bundles().iter().map(|bundle| inspect::summary(bundle, embedded::VERSION)).collect();
    print(&match args.output {
        OutputFormat::Table => inspect::list_table(&summaries),
        OutputFormat::Json => output::json(&summaries)?,
        OutputFormat::Yaml => output::yaml(&summaries)?,
    })
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let bundles = embedded::bundles();
    let bundle = bundles.iter().find(|bundle| bundle.name == args.name);
    let bundle = bundle.unwrap_or_else(|| wrong_usage(&inspect::unknown(&args.name, &bundles)));
    let details = inspect::details(bundle, embedded::VERSION, args.phase.into());
    print(&match args.output {
        OutputFormat::Table => inspect::details_table(&details),
        OutputFormat::Json => output::json(&details)?,
        OutputFormat::Yaml => output::yaml(&details)?,
    })
}

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let mut bundles = embedded::bundles();
    let mut payload = Some(embedded::payload());
    if let Some(target) = &args.target {
        if bundles.iter().any(|bundle| bundle.name == *target) {
            bundles.retain(|bundle| bundle.name == *target);
        } else if Path::new(target).is_dir() {
            (bundles, payload) = match folder::read(Path::new(target)) {
                Err(error @ folder::Error::NoProviders(_)) => wrong_usage(&error.to_string()),
                read => read?,
            };
        } else {
            wrong_usage(&format!("{}; nor is it a folder", inspect::unknown(target, &bundles)));
        }
    }
    let mut report = verify::verify(&bundles, payload.as_ref());
    if args.cluster {
        let refusals = run::runtime()?.block_on(async {
            let client = client::connect(args.kubeconfig.as_deref(), None).await?;
            anyhow::Ok(verify::cluster::dry_run(&client, &bundles).await?)
        })?;
        report = report.with_refusals(refusals);
    }
    print(&match args.output {
        VerifyFormat::Table => report.table(),
        VerifyFormat::Json => output::json(&report)?,
        VerifyFormat::Junit => output::junit(&report.suites()),
    })?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cloud_config(args: CloudConfigArgs) -> anyhow::Result<()> {
    let files = CloudConfigFiles {
        infrastructure: args.cluster_infrastructure_file,
        cloud_config: args.cloud_config_file,
        network: args.network_file,
    };
    let CloudConfigSources { sources, config_map } = files.read(DEFAULT_NAMESPACE)?;
    // Of a gate that is given twice the last counts, as in Go.
    let gates: BTreeMap<String, bool> = args.feature_gates.into_iter().collect();
    let gates = gates.into_iter().filter_map(|(name, is_enabled)| is_enabled.then_some(name)).collect();
    let preview = Preview::new(&embedded::catalog()?, &sources, config_map.as_ref(), gates)?;
    for warning in &preview.synced.warnings {
        say(&format!("warning: {warning}"));
    }
    print(&if args.diff { preview.diff() } else { preview.synced.text().to_owned() })
}

fn render(args: &RenderArgs) -> anyhow::Result<()> {
    if args.output.is_some() && args.phase == RenderPhase::Bootstrap {
        wrong_usage("--output needs --phase cluster or install: the bootstrap phase writes more than manifests");
    }
    let (Some(infrastructure), Some(images)) = (&args.cluster_infrastructure_file, &args.images_file) else {
        wrong_usage("give --cluster-infrastructure-file and --images-file")
    };
    let files = Files {
        infrastructure: infrastructure.clone(),
        images: images.clone(),
        cloud_config: args.cloud_config_file.clone(),
    };
    let sources = files.sources(&args.namespace)?;
    let phase = if args.phase == RenderPhase::Cluster { Phase::Cluster } else { Phase::Bootstrap };
    let plan = Plan::new(&embedded::catalog()?, &sources, phase)?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
    }
    if let (Phase::Bootstrap, Some(infrastructure)) = (phase, &sources.infrastructure) {
        let config = files.cloud_config(infrastructure)?;
        let files = render::bootstrap_files(plan.objects(), config)?;
        return deliver(args, &["bootstrap", "config"], &files, String::new);
    }
    let stream = render::stream(plan.objects())?;
    deliver(args, &["manifests"], &render::cluster_files(plan.objects())?, || stream)
}

fn render_install(args: &RenderArgs) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (name, bytes) in embedded::manifests() {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        // The image stream is for release tooling, and knows no namespace.
        let text =
            if name == IMAGE_REFERENCES { text.to_owned() } else { payload::for_namespace(text, &args.namespace)? };
        files.push((PathBuf::from("manifests").join(name), text));
    }
    let stream = || {
        let manifests = files.iter().filter(|(name, _)| !name.ends_with(IMAGE_REFERENCES));
        let documents =
            manifests.map(|(_, text)| if text.starts_with("---") { text.clone() } else { format!("---\n{text}") });
        documents.collect::<String>()
    };
    deliver(args, &["manifests"], &files, stream)
}

/// Writes files below the destination, or the stream to standard output.
fn deliver(
    args: &RenderArgs,
    folders: &[&str],
    files: &[(PathBuf, String)],
    stream: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match &args.dest_dir {
        Some(destination) => {
            for path in render::write(destination, folders, files)? {
                say(&format!("wrote {}", path.display()));
            }
            Ok(())
        }
        None => print(&stream()),
    }
}

fn image_references(args: &ImageReferencesArgs) -> anyhow::Result<()> {
    let catalog = embedded::catalog()?;
    if !args.config_map {
        return print(&payload::image_references(&catalog));
    }
    let manifests = embedded::manifests();
    let mut texts = manifests.iter().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
    let config_map = texts.find_map(|text| payload::images_config_map(text, &catalog));
    print(&config_map.context("failed to find the images ConfigMap among the embedded manifests")?)
}

fn inject_azure_credentials(args: &AzureInjectCredentialsArgs) -> anyhow::Result<()> {
    let config = azure_credentials::files::config(&args.cloud_config_file_path)?;
    let credentials = azure_credentials::files::credentials(&args.creds_path)?;
    let injected = azure_credentials::inject(&config, &credentials, args.disable_identity_extension_auth)?;
    for note in injected.notes {
        info!("{note}");
    }
    azure_credentials::files::write(&args.output_file_path, &injected.text)?;
    info!("wrote {}", args.output_file_path.display());
    Ok(())
}

fn run_controllers(settings: Result<Settings, &'static str>) -> anyhow::Result<()> {
    run::run(settings.unwrap_or_else(|problem| wrong_usage(problem)))
}
