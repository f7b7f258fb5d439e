//! A page that is followed from its own text: what it saves is saved, what it edits is edited, and each command prints what the
//! page shows. Marks, which readers do not see, are comments on the line before a block:
//!
//! - `<!-- file: NAME -->`: the block is the whole file.
//! - `<!-- replaces: NAME -->`: each definition of the block replaces the one of its name in that file, and new ones stand beside.
//! - `<!-- exit code: N -->`: of each command of the block, instead of 0.
//! - `<!-- repeated until it succeeds -->`, `<!-- not run: REASON -->`
//!
//! `<!-- deletes from NAME: A B "C" -->` has no block: the definitions A and B, and the line of the key "C". A block of `diff` whose
//! first line is `+++ NAME` edits that file. In what a command prints, `…` stands for any text, and lines that the page leaves out
//! are no difference.

use std::{fs, path::Path};

// Their paths, because tests/e2e has this file, too.
#[path = "page/edit.rs"]
mod edit;
#[path = "page/shell.rs"]
mod shell;

pub(crate) use edit::Edit;
pub(crate) use shell::Shell;

/// What a page asks a reader to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Save { file: String, text: String },
    Edit { file: String, edit: Edit },
    Run(Commands),
}

/// The commands of a block.
#[derive(Debug, PartialEq)]
pub(crate) struct Commands {
    /// The exit code of each.
    pub(crate) exit_code: i32,
    /// Whether each is repeated until it has this exit code.
    pub(crate) repeated: bool,
    pub(crate) all: Vec<Command>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) text: String,
    /// The lines of its output that the page shows.
    pub(crate) output: Vec<String>,
}

/// The steps of a page, each with its line.
pub(crate) fn steps(path: &Path) -> Vec<(usize, Step)> {
    let page = fs::read_to_string(path).unwrap();
    let (mut steps, mut mark) = (Vec::new(), "");
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let step = if let Some(language) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            of_block(language, mark, &block)
        } else {
            of_line(line)
        };
        steps.extend(step.map(|step| (index + 1, step)));
        mark = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
    }
    steps
}

fn of_line(line: &str) -> Option<Step> {
    let (file, names) = line.strip_prefix("<!-- deletes from ")?.strip_suffix(" -->")?.split_once(": ")?;
    let names = names.split(' ').map(str::to_owned).collect();
    Some(Step::Edit { file: file.to_owned(), edit: Edit::Delete(names) })
}

fn of_block(language: &str, mark: &str, block: &[&str]) -> Option<Step> {
    let text = |lines: &[&str]| lines.iter().flat_map(|line| [*line, "\n"]).collect::<String>();
    let (mark, value) = mark.split_once(": ").unwrap_or((mark, ""));
    Some(match (language, mark) {
        (_, "not run") => return None,
        (_, "file") => Step::Save { file: value.to_owned(), text: text(block) },
        (_, "replaces") => Step::Edit { file: value.to_owned(), edit: Edit::Replace(text(block)) },
        ("diff", _) => {
            let file = block[0].strip_prefix("+++ ").unwrap_or_else(|| panic!("no file: {block:?}"));
            Step::Edit { file: file.to_owned(), edit: Edit::Diff(text(&block[1..])) }
        }
        ("console", _) => {
            assert!(["", "exit code", "repeated until it succeeds"].contains(&mark), "unknown mark {mark}");
            let exit_code = if mark == "exit code" { value.parse().unwrap() } else { 0 };
            Step::Run(Commands { exit_code, repeated: mark.starts_with("repeated"), all: commands(block) })
        }
        _ => return None,
    })
}

fn commands(block: &[&str]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in block {
        let open = commands.last_mut().filter(|command| command.text.ends_with('\\'));
        match (line.strip_prefix("$ "), open) {
            (Some(text), _) => commands.push(Command { text: text.to_owned(), output: Vec::new() }),
            (None, Some(command)) => command.text.extend(["\n", line]),
            (None, None) => commands.last_mut().unwrap().output.push((*line).to_owned()),
        }
    }
    commands
}

/// Fails unless the lines of a page are in an output, in their order.
pub(crate) fn is_shown(shown: &[String], output: &str) -> Result<(), String> {
    let mut lines = output.lines();
    for expected in shown {
        if !lines.any(|line| is_like(line, expected)) {
            return Err(format!("not printed: {expected}\nprinted:\n{output}"));
        }
    }
    Ok(())
}

fn is_like(line: &str, expected: &str) -> bool {
    let Some((before, after)) = expected.split_once('…') else { return line.trim_end() == expected.trim_end() };
    let Some(rest) = line.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| is_like(&rest[at..], after))
}
