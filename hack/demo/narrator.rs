//! The output of the demo: chapters, steps with their time, tables. Colors only on a terminal.

use std::{
    cell::Cell,
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::table::{self, Table};

/// The maximum width of a line.
const WIDTH: usize = 80;
const INDENT: &str = "   ";
/// How often the time of a running step is updated.
const TICK: Duration = Duration::from_millis(100);

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";

/// Prints the demo's output.
pub struct Narrator {
    out: io::Stdout,
    is_terminal: bool,
    has_color: bool,
    /// Whether the cursor is behind a running step.
    is_mid_line: Cell<bool>,
}

impl Narrator {
    /// On standard output.
    pub fn new() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        // https://no-color.org: present and not empty.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { out, is_terminal, has_color: is_terminal && !no_color, is_mid_line: Cell::new(false) }
    }

    /// A headline.
    pub fn headline(&self, headline: &str) -> io::Result<()> {
        self.line(format_args!("\n{}", self.paint(BOLD, headline)))
    }

    /// A headline with a paragraph.
    pub fn chapter(&self, headline: &str, text: &str) -> io::Result<()> {
        self.headline(headline)?;
        self.say(text)?;
        self.line("")
    }

    /// A paragraph.
    pub fn say(&self, text: &str) -> io::Result<()> {
        let lines = table::wrap(text, WIDTH - INDENT.len());
        lines.iter().try_for_each(|line| self.line(format_args!("{INDENT}{line}")))
    }

    /// A line.
    pub fn line(&self, line: impl Display) -> io::Result<()> {
        writeln!(self.out.lock(), "{line}")
    }

    /// Runs a step and shows its time.
    pub async fn step<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let started = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut tick = tokio::time::interval(TICK);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut work => break done,
                _ = tick.tick() => if self.is_terminal {
                    let line = step_line("…", what, started.elapsed());
                    write!(self.out.lock(), "\r{}", self.paint(DIM, &line))?;
                    self.out.lock().flush()?;
                    self.is_mid_line.set(true);
                },
            }
        };
        let (mark, color) = if done.is_ok() { ("✓", GREEN) } else { ("✗", BOLD) };
        let line = step_line(mark, what, started.elapsed()).replacen(mark, &self.paint(color, mark), 1);
        self.line(format_args!("{}{line}", if self.is_mid_line.take() { "\r" } else { "" }))?;
        done
    }

    /// An event, a while after another one.
    pub fn event(&self, after: Duration, what: &str) -> io::Result<()> {
        let after = format!("{:>8}", duration(after));
        self.line(format_args!("{INDENT}{}  {what}", self.paint(BOLD, &after)))
    }

    /// A table and an empty line.
    pub fn table(&self, table: &Table) -> io::Result<()> {
        for (number, line) in table.lines().iter().enumerate() {
            let line = match number {
                0 => self.paint(BOLD, line),
                1 => self.paint(DIM, line),
                _ => line.clone(),
            };
            self.line(format_args!("{INDENT}{line}"))?;
        }
        self.line("")
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.has_color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Drop for Narrator {
    fn drop(&mut self) {
        // Interrupted: the error message must start on a new line.
        if self.is_mid_line.get() {
            let _ = self.line("");
        }
    }
}

/// `   ✓ the control plane serves                              4.1 s`
fn step_line(mark: &str, what: &str, elapsed: Duration) -> String {
    let time = format!("{:.1} s", elapsed.as_secs_f64());
    let gap = WIDTH - INDENT.len() - 2 - time.len();
    format!("{INDENT}{mark} {what:<gap$}{time}")
}

/// `12.3 ms` or `1.23 s`
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}
