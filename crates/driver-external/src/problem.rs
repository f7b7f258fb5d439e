//! What can go wrong with a driver in a program of its own (pure). docs/drivers/external-troubleshooting.md has a section for each.

use std::{io, path::PathBuf, time::Duration};

use ccm_base::error::brief;
use ccm_drivers::contract::{Error, ErrorKind};

/// A problem of a driver in a program of its own. Its text says what to do, and has no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text names no file and no digest.
    #[error(
        "the driver {:?} is not PATH@sha256:DIGEST: add the digest that `sha256sum` prints for the file",
        brief(text)
    )]
    Pin {
        /// The text.
        text: String,
    },
    /// It is no digest.
    #[error(
        "{:?} is no SHA-256 digest, which has 64 digits 0-9 and a-f in lowercase{}: take what `sha256sum` prints for the file",
        brief(text),
        if text.starts_with("sha256:") { ", without sha256: in front" } else { "" }
    )]
    Digest {
        /// The text.
        text: String,
    },
    /// The file stands somewhere else.
    #[error(
        "{} is not directly in the folder {}, the only one from which drivers are taken: put it there, or name its folder with \
         --driver-folder",
        path.display(), folder.display()
    )]
    OutsideFolder {
        /// The file.
        path: PathBuf,
        /// The folder of drivers.
        folder: PathBuf,
    },
    /// The folder of drivers cannot be read.
    #[error(
        "cannot read the folder of drivers {}: {source}; name the folder of the file with --driver-folder, or check the volume that it \
         comes from",
        folder.display()
    )]
    NoFolder {
        /// The folder of drivers.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file, or the folder that it stands in, cannot be opened or read.
    #[error("cannot read {}: {source}; check the path, its permissions, and the volume that it comes from", path.display())]
    Unreadable {
        /// The file or the folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is a link.
    #[error(
        "{} is a link, whose target may change: put the file itself in its place. The files of a ConfigMap and of a Secret are links",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It is a folder, a pipe or a device.
    #[error("{} is not a regular file: put the program itself in its place", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// The file may not be executed by anybody.
    #[error("{} is not executable: run `chmod 0755` for it", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner of the file can write to it.
    #[error(
        "others than its owner can write to {} (mode {mode:04o}): run `chmod 0755` for it",
        path.display()
    )]
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file system is mounted so that nothing may be executed.
    #[error(
        "the file system of {} is mounted with the option noexec: put the file into a volume without it, such as an image volume \
         or the image itself",
        path.display()
    )]
    NoExec {
        /// The file.
        path: PathBuf,
    },
    /// The file is too large to be run from memory.
    #[error("{} has more than {} MiB, the most that a driver may have: make it smaller", path.display(), most >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The maximum number of bytes.
        most: u64,
    },
    /// The file has other bytes than those that were verified by whoever wrote the digest.
    #[error(
        "{} has the digest sha256:{found}, and should have sha256:{expected}: if the file was replaced on purpose, give its new \
         digest; otherwise find out who changed it",
        path.display()
    )]
    OtherDigest {
        /// The file.
        path: PathBuf,
        /// The digest that was given.
        expected: String,
        /// The digest of the file.
        found: String,
    },
    /// The kernel refuses executable files in memory.
    #[error(
        "this machine does not allow to execute files in memory, from which drivers run: set `sysctl vm.memfd_noexec=1` or 0 for \
         the node, and for the PID namespace of the container"
    )]
    MemfdNoExec,
    /// The file in memory could not be made.
    #[error(
        "cannot keep the driver in memory: {source}; check the memory limit of the container, and that its seccomp profile allows \
         memfd_create"
    )]
    Memory {
        /// The reason.
        source: io::Error,
    },
    /// The process that starts and ends the driver failed.
    #[error(
        "cannot supervise the driver: {reason}; check that /proc is mounted, and the limits of processes, open files and memory"
    )]
    Supervisor {
        /// The reason.
        reason: String,
    },
    /// The program is a library.
    #[error(
        "{} is a library and not a program, such as a plugin of cloud-api-adaptor: use a driver in its place",
        path.display()
    )]
    Library {
        /// The file.
        path: PathBuf,
    },
    /// The program is for another processor.
    #[error(
        "{} is a program for {found}, and this machine is {here}: build it for {here}",
        path.display()
    )]
    OtherArchitecture {
        /// The file.
        path: PathBuf,
        /// The architecture of the program.
        found: String,
        /// The architecture of this machine.
        here: &'static str,
    },
    /// The kernel knows no way to run the file.
    #[error(
        "{} is neither a program of Linux nor a script: a script begins with a line such as #!/usr/bin/python3 -I",
        path.display()
    )]
    NotAProgram {
        /// The file.
        path: PathBuf,
    },
    /// What the program needs to be started is not there.
    #[error(
        "{} needs {interpreter:?}, which is not here: use an image that has it, or build the driver without it",
        path.display()
    )]
    NoInterpreter {
        /// The file.
        path: PathBuf,
        /// The interpreter of the script, or words for that of the program.
        interpreter: String,
    },
    /// The kernel refuses to start it for another reason.
    #[error(
        "cannot start {}: {source}; check the limit of processes, that its interpreter is executable, and that no security \
         module forbids programs in memory",
        path.display()
    )]
    CannotStart {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The driver has ended without success.
    #[error("{operation}: the driver {how}{}", said(stderr))]
    Failed {
        /// The operation.
        operation: &'static str,
        /// How it ended.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The driver did not end in time.
    #[error(
        "{operation}: the driver has not ended within {limit:?} and was stopped; it may have happened all the same. A higher timeout \
         waits longer{}",
        said(stderr)
    )]
    TimedOut {
        /// The operation.
        operation: &'static str,
        /// The limit.
        limit: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// The driver did not describe itself in time.
    #[error(
        "describe: the driver has not ended within {limit:?}, which no setting changes, and was stopped: it should answer at once, and \
         connect to nothing{}",
        said(stderr)
    )]
    SlowDescription {
        /// The limit.
        limit: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// The driver wrote too much.
    #[error("{operation}: the driver wrote more than {} MiB to standard output and was stopped: it should write one answer", most >> 20)]
    TooMuchOutput {
        /// The operation.
        operation: &'static str,
        /// The maximum number of bytes.
        most: usize,
    },
    /// The driver started too much.
    #[error("{operation}: the driver had more than {most} processes and was stopped: it should start fewer")]
    TooManyProcesses {
        /// The operation.
        operation: &'static str,
        /// The maximum number.
        most: usize,
    },
    /// What the driver wrote to standard output is not one JSON value.
    #[error("{operation}: standard output of the driver is no single JSON value: {reason}{}", said(stderr))]
    NoAnswer {
        /// The operation.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The driver speaks another version of the protocol.
    #[error(
        "{operation}: the driver answered with version {found} of the protocol, and this program speaks version {}: use a driver, or a \
         release of this program, with the same version",
        crate::PROTOCOL_VERSION
    )]
    OtherProtocol {
        /// The operation.
        operation: &'static str,
        /// The version of the answer.
        found: String,
    },
    /// The answer does not say what it has to say.
    #[error(
        "{operation}: the driver gave a wrong answer: {reason}; the driver has to be corrected, see docs/drivers/protocol.md"
    )]
    WrongAnswer {
        /// The operation.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The answer is of another account.
    #[error(
        "{operation}: the driver answered for the account {found:?}, and the account is {expected:?}: give the credentials of \
         {expected:?}, or change accountID if {found:?} is meant"
    )]
    OtherAccount {
        /// The operation.
        operation: &'static str,
        /// The account that was set or seen first.
        expected: String,
        /// The account of the answer.
        found: String,
    },
    /// The driver has another name than its file.
    #[error(
        "the driver in {} says that its name is {found:?}, and its file is named {expected:?} without its extension: rename the file",
        path.display()
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// The name of the file without its extension.
        expected: String,
        /// The name in the first answer.
        found: String,
    },
    /// What the driver declares cannot work.
    #[error(
        "the driver in {} declares what cannot work: {reason}; the driver has to be corrected, see docs/drivers/protocol.md",
        path.display()
    )]
    Declaration {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The driver answered with an error.
    #[error(transparent)]
    Answered(Error),
    /// The driver does not describe itself.
    #[error("{} does not describe itself: {source}", path.display())]
    Undescribed {
        /// The file.
        path: PathBuf,
        /// The answer of the driver.
        source: Error,
    },
}

/// The end of what the driver wrote to standard error, for a message.
fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; the end of its standard error: {stderr}") }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        if let Problem::Answered(error) = problem {
            return error;
        }
        let kind = match &problem {
            Problem::TimedOut { .. } | Problem::SlowDescription { .. } => ErrorKind::Timeout,
            Problem::OtherAccount { .. } => ErrorKind::InvalidCredentials,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, problem.to_string())
    }
}

#[cfg(test)]
mod tests;
