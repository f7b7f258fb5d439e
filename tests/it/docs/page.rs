//! The console blocks of a page, with the marks that say how they are run. A mark is a comment on the line before a block:
//! readers do not see it.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::lab::repository;

/// How a test runs a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `<!-- not run: REASON -->`: it needs what a test has not.
    NotRun,
    /// `<!-- exit code: N -->`: of each command.
    ExitCode(i32),
    /// `<!-- repeated until it succeeds -->`
    Repeated,
    /// No comment: each command succeeds.
    None,
}

/// A console block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The text of the heading above.
    pub(super) section: String,
    /// Where it begins, for messages.
    pub(super) place: String,
    pub(super) mark: Mark,
    /// The commands, each with its further lines.
    pub(super) commands: Vec<String>,
}

/// The lines of a Markdown file with their numbers, and whether each belongs to a fenced block.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut is_code = false;
    text.lines().enumerate().map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        let inside = is_code || is_fence;
        is_code ^= is_fence;
        (index + 1, line, inside)
    })
}

/// The console blocks of a page, in their order.
pub(super) fn blocks(page: &str) -> Result<Vec<Block>> {
    let text = fs::read_to_string(repository().join(page)).with_context(|| page.to_owned())?;
    let (mut blocks, mut section, mut previous) = (Vec::new(), String::new(), "");
    let mut open: Option<(usize, Block)> = None;
    for (number, line, inside) in lines(&text) {
        match &mut open {
            Some(_) if line.trim() == "```" => blocks.extend(open.take().map(|(_, block)| block)),
            Some((indent, block)) => add_line(block, line.get(*indent..).unwrap_or_default()),
            None if line.trim() == "```console" => {
                let place = format!("{page}:{number}");
                let mark = mark(previous).with_context(|| place.clone())?;
                let block = Block { section: section.clone(), place, mark, commands: Vec::new() };
                open = Some((line.len() - line.trim_start().len(), block));
            }
            None if !inside && line.starts_with('#') => line.trim_start_matches('#').trim().clone_into(&mut section),
            None => {}
        }
        previous = line.trim();
    }
    Ok(blocks)
}

/// A command begins with `$ ` and continues after a backslash or a pipe, inside quotes, and to the end of a here-document.
fn add_line(block: &mut Block, line: &str) {
    if let Some(command) = line.strip_prefix("$ ") {
        block.commands.push(command.to_owned());
    } else if let Some(command) = block.commands.last_mut()
        && is_open(command)
    {
        command.push('\n');
        command.push_str(line);
    }
}

fn is_open(command: &str) -> bool {
    let here_document =
        command.split_once("<<'EOF'\n").map_or(command.ends_with("<<'EOF'"), |(_, rest)| !rest.ends_with("\nEOF"));
    here_document || command.ends_with(['\\', '|']) || command.matches('\'').count() % 2 == 1
}

fn mark(line: &str) -> Result<Mark> {
    let Some(comment) = line.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) else {
        return Ok(Mark::None);
    };
    Ok(match comment.trim().split_once(':').map_or((comment.trim(), ""), |(name, value)| (name, value.trim())) {
        ("not run", reason) if !reason.is_empty() => Mark::NotRun,
        ("exit code", code) => Mark::ExitCode(code.parse()?),
        ("repeated until it succeeds", "") => Mark::Repeated,
        _ => bail!("unknown mark {line}"),
    })
}

/// The anchors of a Markdown file's headings, as GitHub makes them.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let headings = lines(text).filter(|(_, line, inside)| !inside && line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    headings.map(|(_, line, _)| anchor(line)).collect()
}
