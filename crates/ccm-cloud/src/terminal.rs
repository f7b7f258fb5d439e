//! Standard output and standard error, and the line of progress between both.

use std::{
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use terminal_size::{Width, terminal_size_of};

use crate::text::output::printable;

/// The width of a terminal that does not know its own, in characters.
const NARROW: usize = 80;

/// The maximum width of texts for people, in characters: longer lines are hard to read.
pub(crate) const WIDE: usize = 100;

/// Whether a line of progress is on the terminal.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Writes a line of progress, which the next output replaces. A failure is harmless: progress is optional.
pub(crate) fn draw(line: &str) {
    let mut stderr = io::stderr();
    let width = terminal_size_of(&stderr).map_or(NARROW, |(Width(width), _)| width.into());
    let line = fitted(line, width);
    let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    IS_DRAWN.store(!line.is_empty(), Ordering::Relaxed);
}

/// The width of a table on standard output: that of the terminal if it is narrow.
pub(crate) fn width() -> usize {
    terminal_size_of(io::stdout()).map_or(WIDE, |(Width(width), _)| WIDE.min(width.into()))
}

/// Cuts a line of progress, which could not be removed if the terminal wrapped it.
fn fitted(line: &str, width: usize) -> String {
    let line = printable(line).replace(['\n', '\t'], " ");
    // The last column stays free: some terminals wrap once it is written to.
    let most = width.saturating_sub(1);
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Removes the line of progress, if there is one.
pub(crate) fn clear() {
    if IS_DRAWN.load(Ordering::Relaxed) {
        draw("");
    }
}

/// Writes a line to standard error, without characters that control a terminal. Ignores failures, such as a closed pipe.
pub(crate) fn say(text: &str) {
    clear();
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Writes a text to standard output. A closed pipe, such as that to `head`, is not a failure.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    clear();
    write_to(&mut io::stdout().lock(), text)
}

/// Writes the output of somebody else's program: unchanged, unless a terminal would follow its control characters.
pub(crate) fn pass_on(to: &mut (impl Write + IsTerminal), text: &str) -> anyhow::Result<()> {
    clear();
    if to.is_terminal() { write_to(to, &printable(text)) } else { write_to(to, text) }
}

fn write_to(to: &mut impl Write, text: &str) -> anyhow::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("failed to write the output"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_is_shorter_than_the_terminal_is_wide() {
        for (line, width, expected) in [
            ("list instances", 80, "list instances"),
            ("list instances", 15, "list instances"),
            ("list instances", 14, "list instanc…"),
            ("a\nb\tc\x1b[2J", 80, "a b c\u{fffd}[2J"),
            ("äöü", 3, "ä…"),
            ("ab", 2, "…"),
        ] {
            assert_eq!(fitted(line, width), expected, "{line:?} {width}");
        }
    }
}
