//! The connection to a fake cloud (IO). It is kept, and replaced after each error. No request is repeated.

use std::io;

use ccm_base::error::brief;
use ccm_drivers::contract::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
    sync::Mutex,
};

use crate::protocol::{Account, Answer, Code, Failure, MAX_LINE, Request};

/// A client of a fake cloud.
pub(super) struct Client {
    host: String,
    port: u16,
    token: String,
    /// The id that the account has to have.
    account: Option<String>,
    connection: Mutex<Option<Connection>>,
}

type Connection = BufStream<TcpStream>;

impl Client {
    pub(super) fn new(host: String, port: u16, token: String, account: Option<String>) -> Self {
        Self { host, port, token, account, connection: Mutex::new(None) }
    }

    /// Returns the account of the token, over a new connection.
    pub(super) async fn login(&self) -> Result<Account> {
        let mut kept = self.connection.lock().await;
        *kept = None;
        let (connection, account) = self.connect().await?;
        *kept = Some(connection);
        Ok(account)
    }

    /// Sends a request and returns its result.
    pub(super) async fn call<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        let mut kept = self.connection.lock().await;
        // Taken out, so that a connection is lost with its unread answer when this future is dropped, and after an error.
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.connect().await?.0,
        };
        let answer = self.exchange(&mut connection, request).await?;
        let result = self.result(request, answer);
        // A session that has ended begins again with the next request.
        if !matches!(&result, Err(error) if error.kind == ErrorKind::InvalidCredentials) {
            *kept = Some(connection);
        }
        result
    }

    /// Ends the connection. The next request makes another one.
    pub(super) async fn close(&self) {
        *self.connection.lock().await = None;
    }

    /// Connects, and makes sure whose account it is.
    async fn connect(&self) -> Result<(Connection, Account)> {
        let address = (self.host.as_str(), self.port);
        let stream = TcpStream::connect(address).await.map_err(|error| self.unavailable("connect", &error))?;
        let mut connection = BufStream::new(stream);
        let login = Request::Login { token: self.token.clone() };
        let answer = self.exchange(&mut connection, &login).await?;
        let account: Account = self.result(&login, answer)?;
        if let Some(wanted) = self.account.as_ref().filter(|wanted| **wanted != account.id) {
            let message = format!("the token belongs to account {:?}, and accountID is {wanted:?}", brief(&account.id));
            return Err(Error::new(ErrorKind::InvalidCredentials, message));
        }
        Ok((connection, account))
    }

    async fn exchange<T: DeserializeOwned>(&self, connection: &mut Connection, request: &Request) -> Result<Answer<T>> {
        let failed = |error| self.unavailable(request.action(), &error);
        let garbage =
            |problem: &str| self.error(ErrorKind::Internal, request.action(), &format!("the answer {problem}"));
        let mut line = serde_json::to_vec(request)
            .map_err(|error| self.error(ErrorKind::Internal, request.action(), &error.to_string()))?;
        line.push(b'\n');
        connection.write_all(&line).await.map_err(failed)?;
        connection.flush().await.map_err(failed)?;
        line.clear();
        connection.take(MAX_LINE as u64).read_until(b'\n', &mut line).await.map_err(failed)?;
        if line.len() == MAX_LINE {
            return Err(garbage("is too long"));
        }
        if !line.ends_with(b"\n") {
            return Err(failed(io::Error::other("the connection was closed before the answer")));
        }
        serde_json::from_slice(&line).map_err(|error| garbage(&format!("is not understood: {error}")))
    }

    fn result<T>(&self, request: &Request, answer: Answer<T>) -> Result<T> {
        let Failure { code, message, field } = match answer {
            Answer::Result(result) => return Ok(result),
            Answer::Error(failure) => failure,
        };
        let kind = match code {
            Code::NotFound => ErrorKind::NotFound,
            Code::Conflict => ErrorKind::AlreadyExists,
            Code::Unauthorized => ErrorKind::InvalidCredentials,
            Code::Forbidden => ErrorKind::Forbidden,
            Code::Invalid => ErrorKind::InvalidArgument(brief(&field.unwrap_or_default()).into_owned()),
            Code::Internal => ErrorKind::Internal,
        };
        Err(self.error(kind, request.action(), &message))
    }

    fn unavailable(&self, action: &str, error: &io::Error) -> Error {
        self.error(ErrorKind::Unavailable, action, &error.to_string())
    }

    fn error(&self, kind: ErrorKind, action: &str, message: &str) -> Error {
        Error::new(kind, format!("fake cloud at {}:{}: {action}: {}", self.host, self.port, brief(message)))
    }
}
