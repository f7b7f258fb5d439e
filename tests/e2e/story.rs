//! The output of a test: a story for `make demo-node`, otherwise its figures.

use std::{
    env,
    io::{self, Write},
    time::Duration,
};

use anyhow::Result;

use crate::{narrator::Narrator, table::Table};

/// The output, if there is any.
pub(crate) struct Story(Option<Narrator>);

impl Story {
    pub(crate) fn new() -> Self {
        Self(env::var_os("NARRATE").map(|_| Narrator::new()))
    }

    pub(crate) fn chapter(&self, headline: &str, text: &str) -> Result<()> {
        Ok(self.0.as_ref().map_or(Ok(()), |narrator| narrator.chapter(headline, text))?)
    }

    pub(crate) async fn step<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        match &self.0 {
            Some(narrator) => narrator.step(what, work).await,
            None => work.await,
        }
    }

    pub(crate) fn line(&self, text: &str) -> Result<()> {
        Ok(self.0.as_ref().map_or(Ok(()), |narrator| narrator.line(format!("   {text}")))?)
    }

    /// A command that was run: it is always shown.
    pub(crate) fn command(&self, text: &str) -> Result<()> {
        match &self.0 {
            Some(_) => self.line(&format!("$ {text}")),
            None => Ok(writeln!(io::stderr(), "$ {text}")?),
        }
    }

    /// A figure: it is always shown, and never checked.
    pub(crate) fn figure(&self, time: Duration, what: &str) -> Result<()> {
        match &self.0 {
            Some(narrator) => narrator.event(time, what)?,
            // Past the capture of the test's output.
            None => writeln!(io::stderr(), "{what}: {} ms", time.as_millis())?,
        }
        Ok(())
    }

    /// A table with an empty line before and after it.
    pub(crate) fn table(&self, table: &Table) -> Result<()> {
        let Some(narrator) = &self.0 else { return Ok(()) };
        narrator.line("")?;
        Ok(narrator.table(table)?)
    }
}
