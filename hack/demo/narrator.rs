//! What the demo says, and how it looks: chapters, steps with their time, tables. Colour only on a terminal.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::table::{self, Table};

/// How wide a line may get.
const WIDTH: usize = 80;
const INDENT: &str = "   ";
/// How often the time of a step that goes on is shown anew.
const TICK: Duration = Duration::from_millis(100);

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";

/// Speaks to the person before the screen.
pub struct Narrator {
    is_terminal: bool,
    has_colour: bool,
}

impl Narrator {
    /// On standard output.
    pub fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        // https://no-color.org: present and not empty.
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal, has_colour: is_terminal && !no_colour }
    }

    /// A headline, and what the chapter is about.
    pub fn chapter(&self, headline: &str, text: &str) -> io::Result<()> {
        self.line(format_args!("\n{}", self.paint(BOLD, headline)))?;
        self.say(text)?;
        self.line("")
    }

    /// A paragraph.
    pub fn say(&self, text: &str) -> io::Result<()> {
        let lines = table::wrap(text, WIDTH - INDENT.len());
        lines.iter().try_for_each(|line| self.line(format_args!("{INDENT}{line}")))
    }

    /// A line as it stands.
    pub fn line(&self, line: impl Display) -> io::Result<()> {
        writeln!(io::stdout(), "{line}")
    }

    /// Does something that takes its time, and shows how long it has taken so far.
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
                    write!(io::stdout(), "\r{}", self.paint(DIM, &line))?;
                    io::stdout().flush()?;
                },
            }
        };
        let (mark, colour) = if done.is_ok() { ("✓", GREEN) } else { ("✗", BOLD) };
        let line = step_line(mark, what, started.elapsed()).replacen(mark, &self.paint(colour, mark), 1);
        self.line(format_args!("{}{line}", if self.is_terminal { "\r" } else { "" }))?;
        done
    }

    /// Something that happened a while after something else.
    pub fn event(&self, after: Duration, what: &str) -> io::Result<()> {
        let after = format!("{:>9}", milliseconds(after));
        self.line(format_args!("{INDENT}{}  {what}", self.paint(BOLD, &after)))
    }

    /// A table, with an empty line before and after it.
    pub fn table(&self, table: &Table) -> io::Result<()> {
        self.line("")?;
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
        if self.has_colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `   ✓ the control plane serves                              4.1 s`
fn step_line(mark: &str, what: &str, elapsed: Duration) -> String {
    let time = format!("{:.1} s", elapsed.as_secs_f64());
    let gap = WIDTH - INDENT.len() - 2 - time.len();
    format!("{INDENT}{mark} {what:<gap$}{time}")
}

/// `12.3 ms`
pub fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
