//! What the driver does when the cloud, the way to it or the account is not as it should be.

use std::task::Poll;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::*;

/// What happens to a request on the way.
#[derive(Clone, Debug, PartialEq)]
enum Fault {
    None,
    /// The connection is closed before the cloud has the request.
    Lost,
    /// The cloud does it, and the connection is closed before the answer.
    AnswerLost,
    /// The cloud does it, and this is the answer.
    Answer(Vec<u8>),
}

/// A relay between a driver and its cloud, with a fault for the next requests of one action.
struct Relay {
    values: Values,
    fault: Arc<Mutex<(&'static str, Fault)>>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    async fn new(fake: &Fake, values: &Values) -> Self {
        let Some(Endpoint::Tcp(host, port)) = fake.endpoint(values).await.unwrap() else { panic!() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = Endpoint::Tcp("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let fault = Arc::new(Mutex::new(("", Fault::None)));
        let faults = fault.clone();
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let cloud = TcpStream::connect((host.as_str(), port)).await.unwrap();
                tokio::spawn(relay(BufStream::new(client), BufStream::new(cloud), faults.clone()));
            }
        });
        Self { values: fake.through(values, &here).await.unwrap(), fault, task }
    }

    fn set(&self, action: &'static str, fault: Fault) {
        *self.fault.lock().unwrap() = (action, fault);
    }
}

async fn relay(mut client: BufStream<TcpStream>, mut cloud: BufStream<TcpStream>, faults: Arc<Mutex<(&str, Fault)>>) {
    loop {
        let (mut request, mut answer) = (String::new(), Vec::new());
        if client.read_line(&mut request).await.unwrap_or_default() == 0 {
            return;
        }
        let (action, fault) = faults.lock().unwrap().clone();
        let fault = if request.contains(&format!("\"action\":\"{action}\"")) { fault } else { Fault::None };
        if fault == Fault::Lost {
            return;
        }
        cloud.write_all(request.as_bytes()).await.unwrap();
        cloud.flush().await.unwrap();
        cloud.read_until(b'\n', &mut answer).await.unwrap();
        match fault {
            Fault::None | Fault::Lost => client.write_all(&answer).await.unwrap(),
            Fault::Answer(bytes) => client.write_all(&bytes).await.unwrap(),
            Fault::AnswerLost => return,
        }
        client.flush().await.unwrap();
    }
}

/// The class of the error of each operation but `create`.
async fn errors(driver: &dyn Driver, id: &str) -> Vec<ErrorKind> {
    let all_of = instances(driver);
    let results = [
        all_of.list(&Filter::default()).await.map(drop),
        all_of.get(id).await.map(drop),
        all_of.start(id).await,
        all_of.stop(id).await,
        all_of.delete(id).await,
        driver.topology().regions().await.map(drop),
        driver.topology().zones(None).await.map(drop),
        driver.inventory().unwrap().list(ResourceKind::Host, None).await.map(drop),
        driver.metrics().unwrap().usage(id).await.map(drop),
        driver.run_command().unwrap().run(id, &["true".to_owned()]).await.map(drop),
        driver.account().verify().await.map(drop),
    ];
    results.into_iter().map(|result| result.unwrap_err().kind).collect()
}

#[tokio::test]
async fn each_loss_on_the_way_of_create_leaves_one_instance_with_a_known_id() {
    for (action, fault) in [
        ("create-instance", Fault::Lost),
        ("create-instance", Fault::AnswerLost),
        ("create-instance", Fault::Answer(b"garbage\n".to_vec())),
        ("start-instance", Fault::Lost),
        ("start-instance", Fault::AnswerLost),
        ("start-instance", Fault::Answer(b"{}\n".to_vec())),
    ] {
        let fake = Fake::new();
        let relay = Relay::new(&fake, &values(&[])).await;
        let (driver, direct) = (fake.open(&relay.values).await.unwrap(), open(&fake, &[]).await);
        relay.set(action, fault.clone());
        let error = instances(&*driver).create(&spec("a")).await.unwrap_err();
        let expected = if matches!(fault, Fault::Answer(_)) { ErrorKind::Internal } else { ErrorKind::Unavailable };
        assert_eq!(error.kind, expected, "{action} {fault:?}");
        let made = all(&*direct).await.into_iter().next().map(|one| one.id);
        assert_eq!(made.is_none(), (action, &fault) == ("create-instance", &Fault::Lost));
        assert_eq!(error.instance, made, "{action} {fault:?}");
        relay.set("", Fault::None);
        let again = instances(&*driver).create(&spec("a")).await.unwrap();
        assert_eq!(again.state, State::Running);
        assert!(made.is_none_or(|made| made == again.id));
        assert_eq!(all(&*direct).await, [again]);
    }
}

#[tokio::test]
async fn a_failure_carries_no_instance_of_another_spec() {
    let fake = Fake::new();
    let relay = Relay::new(&fake, &values(&[])).await;
    let driver = fake.open(&relay.values).await.unwrap();
    instances(&*driver).create(&spec("a")).await.unwrap();
    relay.set("create-instance", Fault::AnswerLost);
    let other = InstanceSpec { image: "fedora".to_owned(), ..spec("a") };
    let error = instances(&*driver).create(&other).await.unwrap_err();
    assert_eq!((error.kind, error.instance), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn what_is_deleted_during_a_repeated_create_may_be_created_later() {
    let fake = Fake::new();
    let relay = Relay::new(&fake, &values(&[])).await;
    let driver = fake.open(&relay.values).await.unwrap();
    instances(&*driver).create(&spec("a")).await.unwrap();
    // The cloud refuses a second one, and then has neither the key nor the name.
    relay.set("list-instances", Fault::Answer(b"{\"result\":[]}\n".to_vec()));
    let error = instances(&*driver).create(&spec("a")).await.unwrap_err();
    assert_eq!((error.kind, error.instance), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn unreachable_is_unavailable_and_the_next_operation_connects_again() {
    let fake = Fake::new();
    let relay = Relay::new(&fake, &values(&[])).await;
    let driver = fake.open(&relay.values).await.unwrap();
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    for fault in [Fault::Lost, Fault::AnswerLost] {
        for action in ["get-instance", "login"] {
            driver.close().await.unwrap();
            relay.set(action, fault.clone());
            let error = instances(&*driver).get(&made.id).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
            relay.set("", Fault::None);
            assert_eq!(instances(&*driver).get(&made.id).await.unwrap(), made);
        }
    }
    // Nobody listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let nowhere = open(&fake, &[(ENDPOINT, &address)]).await;
    assert_eq!(errors(&*nowhere, &made.id).await, vec![ErrorKind::Unavailable; 11]);
    let error = instances(&*nowhere).create(&spec("b")).await.unwrap_err();
    assert_eq!((error.kind, error.instance), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn garbage_is_internal() {
    let fake = Fake::new();
    let relay = Relay::new(&fake, &values(&[])).await;
    let driver = fake.open(&relay.values).await.unwrap();
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    let other = |id: &str| {
        let rest = r#""image":"","instanceType":"","cpus":1,"networks":[],"addresses":[],"labels":{},"created":"""#;
        let place = r#""region":"north","zone":"north-1","state":"running""#;
        format!("{{\"id\":{id:?},\"name\":\"a\",{place},{rest}}}")
    };
    for answer in [
        b"\n".as_slice(),
        b"{}\n",
        b"null\n",
        b"[]\n",
        b"{\"result\":null}\n",
        b"{\"result\":{}}\n",
        b"{\"result\":[{}]}\n",
        b"{\"error\":{}}\n",
        b"{\"error\":{\"code\":\"new\",\"message\":\"\"}}\n",
        b"HTTP/1.1 404 Not Found\r\n",
        b"\xff\xfe\x00\n",
        format!("{{\"result\":{}}}\n", other("i-0000000000000000")).as_bytes(),
    ] {
        relay.set("get-instance", Fault::Answer(answer.to_vec()));
        let text = String::from_utf8_lossy(answer);
        for error in [
            instances(&*driver).get(&made.id).await.map(drop).unwrap_err(),
            instances(&*driver).delete(&made.id).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Internal, "{text}");
            assert!(error.message.len() < 500, "{error}");
        }
    }
    for result in ["null", &format!("[{}]", other("")), &format!("[{}]", other("i-000000000000000/"))] {
        relay.set("list-instances", Fault::Answer(format!("{{\"result\":{result}}}\n").into_bytes()));
        let error = instances(&*driver).list(&Filter::default()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "{result}");
    }
    relay.set("", Fault::None);
    assert_eq!(all(&*driver).await, [made]);
}

#[tokio::test]
async fn an_operation_that_is_dropped_leaves_no_answer_for_the_next() {
    let fake = Fake::new();
    let relay = Relay::new(&fake, &values(&[])).await;
    let driver = fake.open(&relay.values).await.unwrap();
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    let mut dropped = instances(&*driver).get(&made.id);
    // One poll sends the request.
    assert!(std::future::poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context).is_pending())).await);
    drop(dropped);
    assert_eq!(driver.topology().regions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn wrong_credentials_and_another_account_are_invalid_credentials() {
    let fake = Fake::new();
    let right = open(&fake, &[]).await;
    let made = instances(&*right).create(&spec("a")).await.unwrap();
    let account = right.account().verify().await.unwrap().id;
    for given in [(TOKEN, "other"), (ACCOUNT_ID, "acct-other"), (ACCOUNT_ID, &account[1..])] {
        let driver = open(&fake, &[given]).await;
        for id in [&*made.id, "i-0"] {
            assert_eq!(errors(&*driver, id).await, vec![ErrorKind::InvalidCredentials; 11], "{given:?}");
        }
        let error = instances(&*driver).create(&spec("b")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidCredentials);
        assert!(given.0 != TOKEN || !error.message.contains(given.1), "{error}");
    }
    let driver = open(&fake, &[(ACCOUNT_ID, &account)]).await;
    assert_eq!(all(&*driver).await, [made]);
}

#[tokio::test]
async fn another_account_behind_the_same_address_gets_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    let fake = Fake::new();
    let file = (FILE, path.to_str().unwrap());
    let account = open(&fake, &[file]).await.account().verify().await.unwrap().id;
    let driver = open(&fake, &[file, (ACCOUNT_ID, &account)]).await;
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&account, "acct-other")).unwrap();
    // Over the connection that is kept, and over a new one.
    for _ in 0..2 {
        assert_eq!(errors(&*driver, &made.id).await, vec![ErrorKind::InvalidCredentials; 11]);
    }
    std::fs::write(&path, &text).unwrap();
    assert_eq!(all(&*driver).await, std::slice::from_ref(&made));

    // A session that has ended begins again, for a driver that may have any account.
    let any = open(&fake, &[file]).await;
    assert_eq!(all(&*any).await, std::slice::from_ref(&made));
    std::fs::write(&path, text.replace(&account, "acct-other")).unwrap();
    assert_eq!(instances(&*any).get(&made.id).await.unwrap_err().kind, ErrorKind::InvalidCredentials);
    assert_eq!(instances(&*any).get(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn a_wrong_endpoint_is_an_argument() {
    for text in ["host", ":80", "host:", "host:port", "host:65536", "[]:80", "user:secret@host:80"] {
        let error = Fake::new().open(&values(&[(ENDPOINT, text)])).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(ENDPOINT.to_owned()), "{text}");
        assert!(!error.message.contains("secret"), "{error}");
    }
    let fake = Fake::new();
    for (host, text) in [("::1", "[::1]:80"), ("host", "host:80")] {
        let endpoint = Endpoint::Tcp(host.to_owned(), 80);
        let through = fake.through(&values(&[(FILE, "x")]), &endpoint).await.unwrap();
        assert_eq!(through.text(ENDPOINT), Some(text));
        assert_eq!(fake.endpoint(&through).await.unwrap(), Some(endpoint));
    }
}

#[test]
fn the_cloud_in_memory_outlives_a_runtime() {
    let fake = Fake::new();
    let run = |spec: InstanceSpec| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { instances(&*open(&fake, &[]).await).create(&spec).await.unwrap().id })
    };
    assert_eq!(run(spec("a")), run(spec("a")));
}
