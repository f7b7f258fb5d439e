use std::fs;

use super::*;

/// Each problem, with the heading of its section in the page.
fn all() -> Vec<(&'static str, Problem)> {
    let (path, stderr, operation) = (PathBuf::from("/cloud-providers/cloud.py"), String::new(), "instance-show");
    let reason = || "…".to_owned();
    let source = || io::Error::other("…");
    let (expected, found) = ("a".repeat(64), "b".repeat(64));
    let folder = PathBuf::from("/cloud-providers");
    vec![
        ("No digest", Problem::Pin { text: "/cloud-providers/cloud.py".to_owned() }),
        ("No digest", Problem::Digest { text: "60E5CDBC".to_owned() }),
        (
            "Outside of the folder",
            Problem::OutsideFolder { path: PathBuf::from("/opt/cloud.py"), folder: folder.clone() },
        ),
        ("Unreadable", Problem::NoFolder { folder, source: source() }),
        ("Unreadable", Problem::Unreadable { path: path.clone(), source: source() }),
        ("A link", Problem::Link { path: path.clone() }),
        ("Not a regular file", Problem::NotRegular { path: path.clone() }),
        ("Not executable", Problem::NotExecutable { path: path.clone() }),
        ("Writable by others", Problem::WritableByOthers { path: path.clone(), mode: 0o775 }),
        ("Mounted noexec", Problem::NoExec { path: path.clone() }),
        ("Too large", Problem::TooLarge { path: path.clone(), most: 256 << 20 }),
        ("Another digest", Problem::OtherDigest { path: path.clone(), expected, found }),
        ("Executable memory is forbidden", Problem::MemfdNoExec),
        ("No memory", Problem::Memory { source: source() }),
        ("No supervisor", Problem::Supervisor { reason: reason() }),
        ("A library", Problem::Library { path: path.clone() }),
        (
            "Another architecture",
            Problem::OtherArchitecture { path: path.clone(), found: "aarch64".to_owned(), here: "x86_64" },
        ),
        ("Not a program", Problem::NotAProgram { path: path.clone() }),
        ("No interpreter", Problem::NoInterpreter { path: path.clone(), interpreter: "/usr/bin/python3".to_owned() }),
        ("Cannot be started", Problem::CannotStart { path: path.clone(), source: source() }),
        ("The driver fails", Problem::Failed { operation, how: "exited with status 1".to_owned(), stderr: reason() }),
        ("Too slow", Problem::TimedOut { operation, limit: Duration::from_secs(30), stderr: stderr.clone() }),
        ("Too slow", Problem::SlowDescription { limit: Duration::from_secs(30), stderr: stderr.clone() }),
        ("Too much output", Problem::TooMuchOutput { operation, most: 32 << 20 }),
        ("Too many processes", Problem::TooManyProcesses { operation, most: 64 }),
        ("No answer", Problem::NoAnswer { operation, reason: reason(), stderr }),
        ("Another version of the protocol", Problem::OtherProtocol { operation: "describe", found: "2".to_owned() }),
        ("A wrong answer", Problem::WrongAnswer { operation, reason: reason() }),
        (
            "Another account",
            Problem::OtherAccount { operation, expected: "account-1".to_owned(), found: "account-2".to_owned() },
        ),
        (
            "Another name",
            Problem::OtherName { path: path.clone(), expected: "cloud".to_owned(), found: "my-cloud".to_owned() },
        ),
        ("A wrong declaration", Problem::Declaration { path: path.clone(), reason: reason() }),
        ("An error of the driver", Problem::Answered(Error::not_supported("…"))),
        ("An error of the driver", Problem::Undescribed { path, source: Error::not_supported("…") }),
    ]
}

/// The number of kinds of problems. A new one does not compile without a place here, and then needs an example above.
fn number(problem: &Problem) -> usize {
    match problem {
        Problem::Pin { .. } => 0,
        Problem::Digest { .. } => 1,
        Problem::OutsideFolder { .. } => 2,
        Problem::NoFolder { .. } => 3,
        Problem::Unreadable { .. } => 4,
        Problem::Link { .. } => 5,
        Problem::NotRegular { .. } => 6,
        Problem::NotExecutable { .. } => 7,
        Problem::WritableByOthers { .. } => 8,
        Problem::NoExec { .. } => 9,
        Problem::TooLarge { .. } => 10,
        Problem::OtherDigest { .. } => 11,
        Problem::MemfdNoExec => 12,
        Problem::Memory { .. } => 13,
        Problem::Supervisor { .. } => 14,
        Problem::Library { .. } => 15,
        Problem::OtherArchitecture { .. } => 16,
        Problem::NotAProgram { .. } => 17,
        Problem::NoInterpreter { .. } => 18,
        Problem::CannotStart { .. } => 19,
        Problem::Failed { .. } => 20,
        Problem::TimedOut { .. } => 21,
        Problem::SlowDescription { .. } => 22,
        Problem::TooMuchOutput { .. } => 23,
        Problem::TooManyProcesses { .. } => 24,
        Problem::NoAnswer { .. } => 25,
        Problem::OtherProtocol { .. } => 26,
        Problem::WrongAnswer { .. } => 27,
        Problem::OtherAccount { .. } => 28,
        Problem::OtherName { .. } => 29,
        Problem::Declaration { .. } => 30,
        Problem::Answered(_) => 31,
        Problem::Undescribed { .. } => 32,
    }
}

#[test]
fn the_page_has_a_section_with_the_text_of_each_problem() {
    let path = format!("{}/../../docs/drivers/external-troubleshooting.md", env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(path).unwrap();
    let all = all();
    assert!(all.iter().enumerate().all(|(index, (_, problem))| number(problem) == index));
    for (heading, problem) in all {
        let section = page.split(&format!("\n### {heading}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{heading} has no section"));
        let section = section.split("\n### ").next().unwrap();
        assert!(section.contains(&format!("\n{problem}\n")), "the section {heading} does not have the text: {problem}");
    }
}

#[test]
fn a_failure_of_a_driver_is_never_an_answer_of_the_cloud() {
    for (_, problem) in all() {
        let kind = match &problem {
            Problem::TimedOut { .. } | Problem::SlowDescription { .. } => ErrorKind::Timeout,
            Problem::OtherAccount { .. } => ErrorKind::InvalidCredentials,
            Problem::Answered(error) => error.kind.clone(),
            _ => ErrorKind::Internal,
        };
        assert_eq!(Error::from(problem).kind, kind);
    }
}
