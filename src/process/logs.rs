//! Logs (IO): one line an event on standard error, as text or as JSON.

use clap::ValueEnum;
use tracing_subscriber::{Layer, filter::LevelFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Starts logging. `verbosity` is klog's: from 4 on the program logs debug messages, from 6 on its libraries do, too.
pub fn init(format: LogFormat, verbosity: u8, colors: bool) {
    let ours = if verbosity >= 4 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let libraries = if verbosity >= 6 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    // It warns about errors that it also returns to its caller, who logs each once.
    let client = if verbosity >= 6 { libraries } else { LevelFilter::OFF };
    let filter = tracing_subscriber::filter::Targets::new()
        .with_target("ccm_operator", ours)
        .with_target("kube_client", client)
        .with_default(libraries);
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let layer = match format {
        LogFormat::Text => layer.with_ansi(colors).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}
