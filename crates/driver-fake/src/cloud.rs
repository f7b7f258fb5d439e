//! The fake cloud (IO): one account with regions, images, networks, instance types and instances, in memory or in a file.
//!
//! # The file
//!
//! It is one JSON document, which people and other programs may read and edit. A cloud without a file begins with the same
//! content.
//!
//! ```json
//! {
//!   "account": {"id": "acct-8d7c6c3a1e0b5f42", "name": "fake", "token": "fake-token", "readOnly": false},
//!   "regions": [{"id": "north", "name": "North"}],
//!   "zones": [{"id": "north-1", "name": "North 1", "region": "north"}],
//!   "networks": [{"id": "north/default", "name": "default", "region": "north", "details": {"subnet": "10.1.0.0/16"}}],
//!   "hosts": [],
//!   "storages": [],
//!   "images": [{"id": "north/debian", "name": "debian", "region": "north", "details": {}}],
//!   "instanceTypes": [
//!     {"id": "north/small", "name": "small", "region": "north", "details": {"cpus": "2", "memoryBytes": "2147483648"}}
//!   ],
//!   "instances": [
//!     {
//!       "id": "i-0123456789abcdef",
//!       "key": "a UID, or absent",
//!       "name": "worker-1",
//!       "region": "north",
//!       "zone": "north-1",
//!       "state": "created, running or stopped",
//!       "image": "debian",
//!       "instanceType": "small",
//!       "cpus": 2,
//!       "networks": ["default"],
//!       "addresses": ["10.1.0.2"],
//!       "labels": {},
//!       "created": "2026-11-28T08:00:00Z",
//!       "userData": "hexadecimal digits",
//!       "started": 1795852800
//!     }
//!   ]
//! }
//! ```
//!
//! `started` is in seconds since 1970, and absent while the instance does not run. The `spec.providerID` of an instance's Node
//! is `fake:///<zone>/<id>`.
//!
//! The file is read for each request, and replaced as a whole by a rename after each change. Meanwhile the cloud holds the lock
//! `flock` of the file `<file>.lock`. So several processes can have a cloud in one file. A program that changes the file has to
//! do the same.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ccm_base::files::{self, Readers};
use serde::{Serialize, de::DeserializeOwned};

use crate::protocol::{Answer, Code, Failure, Request};

mod guest;
mod server;
mod state;

pub use server::Server;
use state::State;

/// The end of the name of the file that is locked.
const LOCK: &str = ".lock";

/// The pause between two tries to lock it.
const PAUSE: Duration = Duration::from_millis(10);

/// The maximum size of the file, which is the most that is read of one.
const MAX_FILE: usize = 16 << 20;

/// A fake cloud. Requests that come in at the same time are handled one after the other.
pub struct Cloud(Store);

enum Store {
    Memory(Box<Mutex<State>>),
    File(PathBuf),
}

impl Default for Cloud {
    fn default() -> Self {
        Self::in_memory()
    }
}

/// The account of a connection that has logged in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Session {
    account: String,
    token: String,
}

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None }
    }

    fn of_field(code: Code, field: &str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: Some(field.to_owned()) }
    }
}

impl Cloud {
    /// A new cloud that ends with this value.
    pub fn in_memory() -> Self {
        Self(Store::Memory(Box::new(Mutex::new(State::new()))))
    }

    /// The cloud of a file. The first request makes the file if it does not exist.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(Store::File(path.into()))
    }

    /// Does something with the state, and keeps it if that succeeds. A failure must leave the state as it was.
    async fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        match &self.0 {
            Store::Memory(state) => work(&mut lock(state)),
            Store::File(path) => {
                let failed = |error: io::Error| Failure::new(Code::Internal, format!("{}: {error}", path.display()));
                let _locked = lock_file(path).await.map_err(failed)?;
                let found = load(path).map_err(failed)?;
                let mut state = found.clone().unwrap_or_else(State::new);
                let result = work(&mut state)?;
                if found.as_ref() != Some(&state) {
                    save(path, &state).map_err(failed)?;
                }
                Ok(result)
            }
        }
    }

    /// Answers one line of a connection with one line.
    pub(crate) async fn answer(&self, session: &mut Option<Session>, line: &[u8]) -> Vec<u8> {
        let request = serde_json::from_slice(line)
            .map_err(|error| Failure::of_field(Code::Invalid, "request", format!("this is not a request: {error}")));
        let result = match request {
            Ok(request) => self.handle(session, request).await,
            Err(failure) => Err(failure),
        };
        let answer = result.map_or_else(Answer::Error, Answer::Result);
        let mut line = serde_json::to_vec(&answer).unwrap_or_default();
        line.push(b'\n');
        line
    }

    async fn handle(&self, session: &mut Option<Session>, request: Request) -> Result<serde_json::Value, Failure> {
        self.with(|state| {
            if let Request::Login { token } = request {
                *session = None;
                if token != state.account.token {
                    return Err(Failure::new(Code::Unauthorized, "the token is wrong"));
                }
                *session = Some(Session { account: state.account.id.clone(), token });
                return json(state.account.shown());
            }
            // The file may have become another account's since the login.
            let valid = Session { account: state.account.id.clone(), token: state.account.token.clone() };
            if *session != Some(valid) {
                return Err(Failure::new(Code::Unauthorized, "there is no login, or its token has ended"));
            }
            state.handle(request)
        })
        .await
    }
}

fn json(value: impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(Code::Internal, error.to_string()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the lock of a cloud's file, which ends with the returned value. The file itself is replaced, so it cannot be locked.
/// The wait blocks no thread, and ends when it is dropped.
async fn lock_file(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(LOCK);
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot lock it by the file {LOCK} beside it: {error}"))
    };
    let file = File::options().create(true).truncate(false).write(true).open(name).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match files::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::other(format!("not the file of a fake cloud: {error}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn save(path: &Path, state: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(state)?;
    bytes.push(b'\n');
    if bytes.len() > MAX_FILE {
        return Err(io::Error::other("the cloud is full: delete instances"));
    }
    let folder = files::parent(path);
    // They have the token and user data.
    files::remove_incomplete(folder);
    files::beside(folder, bytes, Readers::Owner)?.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests;
