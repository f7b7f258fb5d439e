//! A server in front of moto, which hands requests on, or answers them with an error in the words of AWS, as AWS does when a client
//! asks too often.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// An answer of the API of EC2.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    /// To which requests; to all if it is empty.
    pub(super) action: &'static str,
    /// The HTTP status.
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

/// A request that moto does not know, and the answer of AWS for a region without this feature.
const NO_TOPOLOGY: Refusal = Refusal {
    action: "DescribeInstanceTopology",
    status: 400,
    code: "UnsupportedOperation",
    message: "The functionality you requested is not available in this Region.",
};

/// A running server; it ends when it is dropped.
pub(super) struct Front {
    pub(super) port: u16,
    refusal: Arc<Mutex<Option<Refusal>>>,
    _server: JoinSet<()>,
}

impl Front {
    /// Hands requests on to a port of 127.0.0.1.
    pub(super) async fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let refusal = Arc::new(Mutex::new(None));
        let (mut server, shared) = (JoinSet::new(), refusal.clone());
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let refusal = *shared.lock().unwrap_or_else(PoisonError::into_inner);
                // A client whose connection breaks tries again.
                tokio::spawn(async move { drop(answer(stream, refusal, to).await) });
            }
        });
        Ok(Self { port, refusal, _server: server })
    }

    /// Refuses these requests from now on, or none.
    pub(super) fn refuse(&self, refusal: Option<Refusal>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }
}

/// Answers one request, and closes the connection.
async fn answer(mut client: TcpStream, refusal: Option<Refusal>, to: u16) -> Result<()> {
    let request = message(&mut client).await?;
    let text = String::from_utf8_lossy(&request);
    let is_refused = |one: &Refusal| one.action.is_empty() || text.contains(&format!("Action={}&", one.action));
    let answer = if let Some(refusal) = refusal.into_iter().chain([NO_TOPOLOGY]).find(is_refused) {
        let Refusal { status, code, message, .. } = refusal;
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>\
             </Errors><RequestID>00000000-0000-4000-8000-000000000000</RequestID></Response>"
        );
        format!("HTTP/1.1 {status} Refused\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    } else {
        let mut moto = TcpStream::connect(("127.0.0.1", to)).await?;
        moto.write_all(&request).await?;
        let mut answer = message(&mut moto).await?;
        if text.contains("Version=2015-12-01") {
            rename(&mut answer);
        }
        answer
    };
    let end = answer.windows(2).position(|two| two == b"\r\n").context("an answer without a head")?;
    client.write_all(&answer[..end]).await?;
    client.write_all(b"\r\nConnection: close").await?;
    client.write_all(&answer[end..]).await?;
    Ok(client.shutdown().await?)
}

/// The address of a network load balancer, by which its type is known: AWS has the words in another order than moto.
fn rename(answer: &mut [u8]) {
    let (moto, aws) = (b".us-east-1.elb.amazonaws.com", b".elb.us-east-1.amazonaws.com");
    while let Some(at) = answer.windows(moto.len()).position(|part| part == moto) {
        answer[at..at + aws.len()].copy_from_slice(aws);
    }
}

/// A head and as many bytes as it announces.
async fn message(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\n") {
        all.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(all.clone())?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    let start = all.len();
    all.resize(start + length, 0);
    stream.read_exact(&mut all[start..]).await?;
    Ok(all)
}
