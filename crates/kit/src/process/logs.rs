//! Logs (IO): one line per event on standard error, as text or as JSON.

use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// One line of text for people.
    Text {
        /// Whether levels have colors.
        colors: bool,
    },
    /// One JSON document for each line, for programs.
    Json,
}

/// Starts logging. `ours` are the crates of the program. `verbosity` is that of klog: from 4 on, these crates log debug messages; from
/// 6 on, all crates do.
pub fn init(format: Format, verbosity: u8, ours: &[&str]) {
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let layer = match format {
        Format::Text { colors } => layer.with_ansi(colors).boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter(verbosity, ours))).init();
}

/// The levels that are logged, by crate.
fn filter(verbosity: u8, ours: &[&str]) -> Targets {
    let level = if verbosity >= 4 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let libraries = if verbosity >= 6 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    Targets::new()
        .with_targets(ours.iter().map(|name| (*name, level)))
        // The client also returns its errors to the caller, which logs each once and without the secrets of the object. The client would
        // log whole responses.
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
            let filter = filter(verbosity, &["program"]);
            assert!(!filter.would_enable("kube_client::client", &Level::ERROR), "{verbosity}");
            assert_eq!(filter.would_enable("hyper", &Level::DEBUG), verbosity >= 6);
            assert!(filter.would_enable("program", &Level::INFO));
        }
    }
}
