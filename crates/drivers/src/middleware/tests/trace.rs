//! The trace: what it has, and that no secret is in it.

use std::io;

use super::*;
use crate::contract::UserData;

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_trace_has_neither_secrets_nor_user_data() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let take = || String::from_utf8(std::mem::take(&mut *log.0.lock().unwrap())).unwrap();

    let script = Script::new([]);
    let given = [("token", "hunter2"), (ACCOUNT_ID, "A")];
    let echo = Fail(Error::new(ErrorKind::Unavailable, "wrong token hunter2, wrong password swordfish"));
    // No other test traces: the first thread that comes to a line decides for all whether it is logged.
    let opened = open(&script, &given, None, true).await.unwrap();
    script.steps.lock().unwrap().extend([echo, fail(ErrorKind::Forbidden)]);
    let secret = Setting::new("password", Kind::Text, "").secret();
    let options = BTreeMap::from([("password".to_owned(), "swordfish".to_owned())]);
    let user_data = UserData::new(b"user: xyzzy".to_vec());
    let options = Values::options(&[secret], &options).unwrap();
    let error = opened.instances().unwrap().create(&InstanceSpec { user_data, options, ..spec() }).await.unwrap_err();
    assert_eq!(error.message, "the reason (2 attempts)");
    let command = ["login".to_owned(), "xyzzy".to_owned()];
    opened.run_command().unwrap().run("i-1", &command).await.unwrap();
    *script.other.lock().unwrap() = Some(instance("ends with hunter2", "n", "o"));
    let error = opened.instances().unwrap().get("i-hunter2").await.unwrap_err();
    assert!(error.message.ends_with("answered with \"ends with (secret)\""), "{error}");
    opened.instances().unwrap().get("ends with hunter2").await.unwrap();
    "hunter2".clone_into(&mut script.account.lock().unwrap());
    let error = opened.account().verify().await.unwrap_err();
    assert!(error.message.contains("belong to the account \"(secret)\""), "{error}");
    let field = ErrorKind::InvalidArgument("hunter2".to_owned());
    script.steps.lock().unwrap().extend([fail(field), Fail(Error::new(ErrorKind::Internal, "hunter2 stays"))]);
    let error = opened.topology().regions().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("(secret)".to_owned()));
    assert_eq!(opened.close().await.unwrap_err().message, "(secret) stays");
    let text = take();
    for hidden in ["hunter2", "swordfish", "xyzzy", "login"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    for words in [
        "open driver=\"scripted\" settings={\"accountID\": \"A\"",
        "\"token\": \"(secret)\"",
        "begin driver=\"scripted\" operation=\"verify credentials\" object=\"\" attempt=1",
        "end driver=\"scripted\" operation=\"verify credentials\" object=\"\" attempt=1 duration=\"0.000s\" result=\"A\"",
        "operation=\"create instance\" object=\"n\" attempt=1 request=InstanceSpec {",
        "user_data: 11 bytes, sha256:",
        "attempt=1 duration=\"0.000s\" class=\"Unavailable\" reason=\"wrong token (secret), wrong password (secret)\"",
        "attempt=2 duration=\"0.000s\" class=\"Forbidden\"",
        "operation=\"get instance\" object=\"i-(secret)\" attempt=1 duration=\"0.000s\" class=\"Internal\"",
        "result=\"ends with (secret) is running\"",
        "operation=\"run command in instance\" object=\"i-1\" attempt=1 duration=\"0.000s\" result=\"exit code 3\"",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let wrong = || Error::new(ErrorKind::InvalidCredentials, "wrong token hunter2");
    let (at_open, at_verify) = (Script::new([]), Script::new([Fail(wrong())]));
    *at_open.unopened.lock().unwrap() = Some(wrong());
    for script in [at_open, at_verify] {
        let error = open(&script, &given, None, false).await.err().unwrap();
        assert_eq!((error.message.as_str(), take().as_str()), ("wrong token (secret)", ""));
    }
}
