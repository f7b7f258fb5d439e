use std::os::unix::fs::PermissionsExt;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

/// A cloud that answers each line with the same line.
fn echo(endpoint: &Endpoint, listener: Listener) -> (Endpoint, AbortHandle) {
    let serve = async move {
        let mut connections = JoinSet::new();
        while let Ok(stream) = listener.accept().await {
            connections.spawn(async move {
                let (read, mut write) = split(stream);
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                }
            });
        }
    };
    (endpoint.clone(), tokio::spawn(serve).abort_handle())
}

async fn tcp() -> (Endpoint, AbortHandle) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Tcp("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    echo(&endpoint, Listener::Tcp(listener))
}

type Connection = BufReader<Box<dyn Stream>>;

async fn connected(proxy: &Proxy) -> Connection {
    BufReader::new(connect(proxy.endpoint()).await.unwrap())
}

/// What comes back for a line, in two writes, until the end of the connection or of a line.
async fn ask(connection: &mut Connection, line: &str) -> String {
    let (first, second) = line.split_at(1);
    let mut answer = String::new();
    for part in [first, second, "\n"] {
        // The connection may be closed already.
        drop(connection.write_all(part.as_bytes()).await);
        drop(connection.flush().await);
    }
    drop(connection.read_line(&mut answer).await);
    answer
}

#[tokio::test]
async fn it_passes_bytes_to_a_port_and_to_a_socket() {
    let folder = Folder::new().unwrap();
    let path = folder.0.join("echo");
    let socket = Listener::Unix(UnixListener::bind(&path).unwrap());
    for (endpoint, _server) in [tcp().await, echo(&Endpoint::Unix(path), socket)] {
        let proxy = Proxy::start(&endpoint).await.unwrap();
        assert!(!proxy.was_used());
        let mut connection = connected(&proxy).await;
        for line in ["one", "two"] {
            assert_eq!(ask(&mut connection, line).await, format!("{line}\n"));
        }
        assert!(proxy.was_used() && !proxy.hit());
        let nowhere = Nowhere::like(&endpoint).unwrap();
        assert!(connect(&nowhere.endpoint).await.is_err());
        match (&endpoint, proxy.endpoint(), &nowhere.endpoint) {
            (Endpoint::Tcp(..), Endpoint::Tcp(host, _), Endpoint::Tcp(other, _)) => {
                assert_eq!((host.as_str(), other.as_str()), ("127.0.0.1", "127.0.0.1"));
            }
            (Endpoint::Unix(_), Endpoint::Unix(path), Endpoint::Unix(_)) => {
                let folder = path.parent().unwrap().to_owned();
                assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
                drop(proxy);
                assert!(!folder.exists());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn it_cuts_all_connections_after_a_number_of_answers() {
    let (endpoint, _server) = tcp().await;
    let proxy = Proxy::start(&endpoint).await.unwrap();
    for turns in [0, 1, 3] {
        proxy.set(Fault::Cut(turns));
        let (mut one, mut other) = (connected(&proxy).await, connected(&proxy).await);
        for turn in 0..turns {
            assert!(!proxy.hit());
            let connection = if turn % 2 == 0 { &mut one } else { &mut other };
            assert_eq!(ask(connection, "line").await, "line\n");
        }
        assert_eq!(ask(&mut one, "line").await, "");
        assert!(proxy.hit());
        assert_eq!(ask(&mut other, "line").await, "");
        // Closed before the client has said anything.
        drop(connected(&proxy).await.read_line(&mut String::new()).await);
    }
    proxy.set(Fault::None);
    assert_eq!(ask(&mut connected(&proxy).await, "line").await, "line\n");
}

#[tokio::test]
async fn it_refuses_and_answers_with_garbage() {
    let (endpoint, _server) = tcp().await;
    let proxy = Proxy::start(&endpoint).await.unwrap();
    let mut kept = connected(&proxy).await;
    assert_eq!(ask(&mut kept, "line").await, "line\n");
    proxy.set(Fault::Refuse);
    assert_eq!(ask(&mut kept, "line").await, "");
    assert_eq!(ask(&mut connected(&proxy).await, "line").await, "");
    assert!(proxy.hit());

    let long = format!("{}\n", "x".repeat(1 << 20));
    for answer in ["null\n", "", &long] {
        proxy.set(Fault::Garbage(1, answer.as_bytes().into()));
        let mut connection = connected(&proxy).await;
        assert_eq!(ask(&mut connection, "line").await, "line\n");
        assert!(!proxy.hit());
        assert_eq!(ask(&mut connection, "line").await, answer);
        assert_eq!(ask(&mut connected(&proxy).await, "line").await, answer);
        assert!(proxy.hit());
    }
}
