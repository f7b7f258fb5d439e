//! Logs (IO): one line per event on standard error, as text or as JSON.

use clap::ValueEnum;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Starts logging. `program` is the name of its crate. `verbosity` is klog's: from 4 on the program logs debug messages, from 6
/// on its libraries do, too.
pub fn init(program: &str, format: LogFormat, verbosity: u8, colors: bool) {
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let layer = match format {
        LogFormat::Text => layer.with_ansi(colors).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter(program, verbosity))).init();
}

fn filter(program: &str, verbosity: u8) -> Targets {
    let ours = if verbosity >= 4 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let libraries = if verbosity >= 6 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    Targets::new()
        .with_target(program, ours)
        // All that it says of an error it returns to its caller, too, who logs it once and without the secrets of the object. It would
        // log whole answers of the API server.
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(libraries)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_client_never_logs_what_an_api_server_answers() {
        for verbosity in [0, 2, 4, 6, 10] {
            let filter = filter("program", verbosity);
            assert!(!filter.would_enable("kube_client::client", &Level::ERROR), "{verbosity}");
            assert_eq!(filter.would_enable("hyper", &Level::DEBUG), verbosity >= 6);
            assert!(filter.would_enable("program", &Level::INFO));
        }
    }
}
