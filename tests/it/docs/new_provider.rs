//! `docs/new-provider.md` from its own text: a cloud that is not built in, from nothing to nodes that are initialized.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::{
    any_kubernetes::{Fixture, run},
    page::{self, Mark},
    paths::follow,
};
use crate::{
    lab::{LIMIT, repository},
    support::eventually,
};

const PAGE: &str = "docs/new-provider.md";

/// The most commands and edited lines that the page may need.
const MOST: (usize, usize) = (7, 15);

/// A file, and the hunks that the page changes in it, each as (from, to).
type Edits = (String, Vec<(String, String)>);

/// The block of the page with the edits.
fn edits() -> Result<Edits> {
    let text = fs::read_to_string(repository().join(PAGE))?;
    let (_, rest) = text.split_once("```diff\n").context("a block of edits")?;
    let (block, _) = rest.split_once("```").context("its end")?;
    let (head, hunks) = block.split_once("@@\n").context("a hunk")?;
    let file = head.lines().find_map(|line| line.strip_prefix("+++ ")).context("a file")?;
    let side = |hunk: &str, other: char| -> String {
        let lines = hunk.lines().filter(|line| !line.starts_with(other));
        lines.flat_map(|line| [line.get(1..).unwrap_or_default(), "\n"]).collect()
    };
    let hunks = hunks.split("@@\n").map(|hunk| (side(hunk, '+'), side(hunk, '-'))).collect();
    Ok((file.to_owned(), hunks))
}

/// The number of lines of a text that another text does not have.
fn added((from, to): &(String, String)) -> usize {
    to.lines().filter(|line| !from.lines().any(|other| other == *line)).count()
}

#[tokio::test]
async fn a_cloud_that_is_not_built_in_runs_after_few_commands() -> Result<()> {
    let (fixture, shell) = Fixture::new().await?;
    follow(&shell, ("docs/new-provider.md", "The folder")).await?;
    let (file, hunks) = edits()?;
    let path = shell.folder().join(file);
    let mut text = fs::read_to_string(&path)?;
    for (from, to) in &hunks {
        ensure!(text.matches(from.as_str()).count() == 1, "{}: {from:?} is not once in\n{text}", path.display());
        text = text.replace(from.as_str(), to);
    }
    fs::write(&path, &text)?;
    run(&shell, "ccm-operator provider verify ./upcloud").await?;
    follow(&shell, ("docs/new-provider.md", "The digest")).await?;
    let digest = run(&shell, "ccm-operator provider digest ./upcloud").await?;
    // Standard error says what was read.
    let digest = digest.lines().next().context("a digest")?;
    let of_tar = page::blocks(PAGE)?.into_iter().filter(|block| block.section == "The digest").nth(1);
    let of_tar = run(&shell, &of_tar.context("the command of tar")?.commands[0]).await?;
    assert_eq!(of_tar.split_whitespace().next(), digest.strip_prefix("sha256:"), "GNU tar makes the same bytes");
    follow(&shell, ("docs/new-provider.md", "The operator's permissions")).await?;
    assert_eq!(fixture.uninitialized().await?.len(), 4);
    if let Err(error) = follow(&shell, ("docs/new-provider.md", "Loading it")).await {
        let state = run(&shell, "kubectl get ccm,pods --all-namespaces -o yaml").await?;
        bail!("{error:#}\n{state}");
    }
    let status = run(&shell, "kubectl get ccm cluster -o jsonpath='{.status.provider.digest}'").await?;
    assert_eq!(status, digest);
    eventually("every node is initialized", LIMIT, async || {
        let left = fixture.uninitialized().await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await?;

    let lines: usize = hunks.iter().map(added).sum();
    let blocks = page::blocks(PAGE)?;
    // Not counted: the command that computes the digest again, and the commands that wait.
    let counted = blocks.iter().filter(|block| block.mark == Mark::None).flat_map(|block| &block.commands);
    let commands = counted.filter(|command| !command.starts_with("find ")).count();
    println!("{PAGE}: {commands} commands, {lines} edited lines");
    assert!(commands <= MOST.0 && lines <= MOST.1, "{commands} commands, {lines} lines");
    Ok(())
}
