//! A line of the log that is written once, until it changes (IO).

use tracing::{Level, error, info, warn};

/// A line about the outcome of a pass.
pub(super) struct LogLine {
    level: Level,
    text: String,
    /// The text in a dry run; `None` if the line is about work that a dry run does not do.
    dry_run: Option<String>,
}

impl LogLine {
    pub(super) fn new(level: Level, text: String) -> Self {
        Self { level, text, dry_run: None }
    }

    /// Sets the text for a dry run.
    #[must_use]
    pub(super) fn in_dry_run(self, text: &str) -> Self {
        Self { dry_run: Some(format!("dry run: {text}")), ..self }
    }

    /// Writes the line, unless it equals the last written line.
    pub(super) fn write(self, is_dry_run: bool, last: &mut String) {
        let Some(text) = (if is_dry_run { self.dry_run } else { Some(self.text) }) else { return };
        if *last == text {
            return;
        }
        match self.level {
            Level::ERROR => error!("{text}"),
            Level::WARN => warn!("{text}"),
            _ => info!("{text}"),
        }
        *last = text;
    }
}
