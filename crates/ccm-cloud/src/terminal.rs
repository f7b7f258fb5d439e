//! Standard output and standard error, and the line of progress between both.

use std::{
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;

use crate::text::output::printable;

/// Whether a line of progress is on the terminal.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Writes a line of progress, which the next output replaces. A failure is harmless: progress is optional.
pub(crate) fn draw(line: &str) {
    let mut stderr = io::stderr();
    let line = printable(line).replace('\n', " ");
    let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    IS_DRAWN.store(!line.is_empty(), Ordering::Relaxed);
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
