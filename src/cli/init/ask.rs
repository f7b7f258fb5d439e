//! Questions on a terminal. Without a terminal, a flag has to give every value that has no default.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::super::flags::{say, wrong_usage};
use crate::{
    files,
    proposal::{
        credentials::{self, Values},
        provider::Detected,
    },
    provider::{catalog::Catalog, kubernetes::Credentials},
    text::output::printable,
};

/// Whether the user can be asked: standard input and standard error are terminals.
pub(in crate::cli) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for the value of a flag; an empty answer selects the default. Without a terminal, returns the default or a usage error.
pub(in crate::cli) fn value(flag: &str, question: &str, default: Option<&str>) -> anyhow::Result<String> {
    if !is_terminal() {
        return Ok(match default {
            Some(default) => default.to_owned(),
            None => return Err(wrong_usage(&format!("{flag} is needed: {question}"))),
        });
    }
    loop {
        let shown = default.map(|default| format!(" [{default}]")).unwrap_or_default();
        let mut stderr = io::stderr().lock();
        write!(stderr, "{}{shown}: ", printable(question)).and_then(|()| stderr.flush()).context("failed to ask")?;
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer).context("failed to read the answer")? == 0 {
            bail!("no answer to: {question}; {flag} gives it");
        }
        match (answer.trim(), default) {
            ("", Some(default)) => return Ok(default.to_owned()),
            ("", None) => {}
            (answer, _) => return Ok(answer.to_owned()),
        }
    }
}

/// Returns the provider that the signs show, or the answer of the user.
pub(in crate::cli) fn provider(catalog: &Catalog, signs: &[Detected]) -> anyhow::Result<Detected> {
    let names: Vec<_> = catalog.kubernetes_names().collect();
    if is_terminal() {
        for sign in signs {
            say(&format!("{}: {}", sign.provider, sign.because));
        }
    }
    let question = format!("the provider, one of {}", names.join(", "));
    let only = signs.first().filter(|_| is_terminal() || signs.len() == 1);
    let answer = loop {
        let answer = value("--provider", &question, only.map(|sign| sign.provider.as_str()))?;
        match catalog.kubernetes_of(&answer) {
            Err(_) if is_terminal() => say(&catalog.unknown(&answer)),
            _ => break answer,
        }
    };
    let known = signs.iter().find(|sign| sign.provider == answer).cloned();
    Ok(known.unwrap_or(Detected { provider: answer, because: "asked for".to_owned() }))
}

/// Reads the credentials from a file or a folder, by the keys of the provider.
pub(in crate::cli) fn credentials(path: &Path, needed: &Credentials) -> anyhow::Result<Values> {
    let failed = || format!("failed to read the credentials of {}", path.display());
    let values = if path.is_dir() {
        let mut values = Values::new();
        for entry in fs::read_dir(path).with_context(failed)? {
            let file = entry.with_context(failed)?.path();
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            // Hidden files are those of a kubelet or an editor.
            if !name.starts_with('.') && file.is_file() {
                values.insert(name, files::read(&file).with_context(failed)?);
            }
        }
        credentials::of_files(values, needed)
    } else {
        credentials::of_text(&files::read_given(path).with_context(failed)?, needed)
    };
    values.map_err(anyhow::Error::msg).with_context(failed)
}

/// Reads the credentials from the given file, or from a file that the user names.
pub(in crate::cli) fn asked_credentials(given: Option<&PathBuf>, needed: &Credentials) -> anyhow::Result<Values> {
    if let Some(path) = given {
        return credentials(path, needed);
    }
    let mut question = format!("the file or folder with the credentials, which holds {}", needed.keys.join(", "));
    if !needed.optional_keys.is_empty() {
        question.extend([" and perhaps ", &needed.optional_keys.join(", ")]);
    }
    loop {
        let path = value("--credentials", &question, None)?;
        match credentials(Path::new(&path), needed) {
            Err(error) if is_terminal() => say(&format!("{error:#}")),
            read => return read,
        }
    }
}

/// Reads the text of a configuration.
pub(in crate::cli) fn text(path: &Path) -> anyhow::Result<String> {
    files::read_given(path).with_context(|| format!("failed to read the configuration {}", path.display()))
}
