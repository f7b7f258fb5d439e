//! The output of a command, as a picture of a terminal.

use crate::pages::picture::{Picture, columns};

const MARGIN: usize = 20;
const LINE: usize = 19;

/// The picture: a command line, and what it has printed.
pub(crate) fn picture(title: &str, command: &str, output: &str) -> String {
    let prompt = format!("$ {command}");
    let lines: Vec<_> = [prompt.as_str()].into_iter().chain(output.trim_end().lines()).collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let size = (columns(longest) + 2 * MARGIN, lines.len() * LINE + 2 * MARGIN - 4);
    let mut picture = Picture::new(title, size);
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let class = if number == 0 { "command" } else { "ink" };
        picture.columns(class, (MARGIN, MARGIN + 11 + number * LINE), line);
    }
    picture.svg()
}
