use std::path::PathBuf;

use super::*;
use crate::{
    pin::Pin,
    protocol::{Asked, Done, Regions},
};

fn program() -> (tempfile::TempDir, Program) {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("cloud");
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&path).unwrap();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let program = Program::load(folder.path(), &Pin::new(&path, empty).unwrap()).unwrap();
    (folder, program)
}

fn read<T: Outcome>(call: &Call, ended: Ended, stdout: &[u8], stderr: &[u8]) -> Result<Answered<T>, Problem> {
    let (_folder, program) = program();
    let masked = |text: &str| text.replace("hunter2", "(secret)");
    let limit = Some(std::time::Duration::from_secs(1));
    let question = Question { program: &program, call, limit, account: Some("a".to_owned()), masked: &masked };
    question.read(&Report { ended, stdout: stdout.to_vec(), stderr: stderr.to_vec() })
}

/// Whatever a driver writes, it is no instance that is gone: every beginning of a valid `NotFound`, and each with
/// one byte changed.
#[test]
fn no_damaged_answer_says_that_something_is_gone() {
    let call = Call::InstanceShow(Asked::Id("i-1".to_owned()));
    let whole = br#"{"protocolVersion":1,"account":"a","error":{"class":"NotFound","message":"m","id":"i-1"}}"#;
    let is_gone = |ended, stdout: &[u8]| matches!(read::<Done>(&call, ended, stdout, b""), Err(Problem::Answered(error)) if error.is_not_found());
    assert!(is_gone(Ended::Exited(0), whole));
    assert!((0..whole.len()).all(|end| !is_gone(Ended::Exited(0), &whole[..end])));
    for ended in [
        Ended::Exited(1),
        Ended::Signaled(15),
        Ended::NotStarted(2),
        Ended::TimedOut,
        Ended::TooMuchOutput,
        Ended::TooManyProcesses,
    ] {
        assert!(!is_gone(ended, whole), "{ended:?}");
    }
    let message = whole.windows(3).position(|window| window == b"\"m\"").unwrap();
    for at in (0..whole.len()).filter(|at| !(message..message + 3).contains(at)) {
        let mut changed = whole.to_vec();
        changed[at] = b'x';
        // A field of an unknown name is ignored, and the message is not needed to be one of these letters.
        assert!(!is_gone(Ended::Exited(0), &changed), "{}", String::from_utf8_lossy(&changed));
    }
    let call = Call::AccountShow {};
    let error = read::<Done>(&call, Ended::Exited(0), whole, b"").unwrap_err();
    assert!(matches!(error, Problem::WrongAnswer { .. }), "{error}");
}

#[test]
fn a_message_is_short_printable_and_without_secrets() {
    let call = Call::RegionList {};
    let stderr = [b"first\n".repeat(10_000), b"hunter2 \x1b[2J\xff\n\n  third \n".repeat(2)].concat();
    let failed = read::<Regions>(&call, Ended::Exited(3), b"", &stderr).unwrap_err().to_string();
    let line = "(secret) \u{fffd}[2J\u{fffd}";
    assert!(failed.ends_with(&format!("status 3; the end of its standard error: third | {line} | third")), "{failed}");
    let long = format!(
        r#"{{"protocolVersion":1,"error":{{"class":"Internal","message":"hunter2 {}\u001b"}}}}"#,
        "x ".repeat(100_000)
    );
    let Problem::Answered(error) = read::<Regions>(&call, Ended::Exited(0), long.as_bytes(), b"").unwrap_err() else {
        panic!()
    };
    assert!(error.message.starts_with("(secret) x x") && error.message.len() < 2000, "{error}");
    assert!(error.message.ends_with('\u{fffd}'), "{error}");
    let other = r#"{"protocolVersion":1,"account":"a\u001b","error":{"class":"Internal","message":"m"}}"#;
    let error = read::<Regions>(&call, Ended::Exited(0), other.as_bytes(), b"").unwrap_err().to_string();
    assert!(error.contains(r#"for the account "a\u{1b}""#), "{error}");
}

#[test]
fn the_beginning_of_what_is_no_answer_is_shown_without_secrets() {
    let stdout = format!("\n DEBUG said hunter2\tnext {}", "x".repeat(100));
    let error =
        read::<Regions>(&Call::RegionList {}, Ended::Exited(0), stdout.as_bytes(), b"").unwrap_err().to_string();
    let begins = format!("DEBUG said (secret) next {}", "x".repeat(35));
    assert!(error.contains(&format!("; it begins with {begins:?}; it is for the answer alone")), "{error}");
}

#[test]
fn the_rest_of_a_secret_whose_beginning_was_not_kept_is_in_no_message() {
    let failed = |stderr: &[u8]| {
        read::<Regions>(&Call::RegionList {}, Ended::Exited(3), b"", &stderr[stderr.len() - KEPT..])
            .unwrap_err()
            .to_string()
    };
    let cut = [b"hunter2".as_slice(), &b" ".repeat(KEPT - 3 - "\nlast".len()), b"\nlast"].concat();
    assert!(String::from_utf8_lossy(&cut[cut.len() - KEPT..]).starts_with("er2 "));
    assert!(failed(&cut).ends_with("status 3; the end of its standard error: last"));
    assert!(failed(&b"x".repeat(KEPT)).ends_with("; the end of its standard error: \u{2026}"));
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let answer =
        br#"{"protocolVersion":1,"account":"a","new":{},"result":{"regions":[{"id":"r","name":"","new":1}],"new":[]}}"#;
    let answered = read::<Regions>(&Call::RegionList {}, Ended::Exited(0), answer, b"").unwrap();
    assert_eq!((answered.account.as_deref(), answered.result.regions[0].id.as_str()), (Some("a"), "r"));
    // But nothing that is said twice.
    let twice = br#"{"protocolVersion":1,"account":"b","account":"a","result":{"regions":[]}}"#;
    assert!(read::<Regions>(&Call::RegionList {}, Ended::Exited(0), twice, b"").is_err());
}
