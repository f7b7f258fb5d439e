//! The errors of drivers (pure). Every error of a cloud becomes one of these classes.

use std::time::Duration;

/// The result of an operation of a driver.
pub type Result<T> = std::result::Result<T, Error>;

/// The class of an error, which decides what a caller does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The cloud was reached with the right credentials and does not have it. The only class that may lead to a deletion.
    NotFound,
    /// There is another one of the same name or key.
    AlreadyExists,
    /// The credentials are wrong or have ended, or belong to another account than the one that was set.
    InvalidCredentials,
    /// The credentials are right, and do not allow it; or others have made the instance.
    Forbidden,
    /// A field of the request is wrong; its name, such as `image`.
    InvalidArgument(String),
    /// The driver or the cloud cannot do it.
    NotSupported,
    /// The account or the capability is read-only.
    ReadOnly,
    /// Too many requests; how long the cloud asks to wait.
    RateLimited(Option<Duration>),
    /// No answer in time. It may have happened all the same.
    Timeout,
    /// The cloud was not reached, or cannot answer now.
    Unavailable,
    /// A fault of the driver or of the cloud, such as an answer that is no answer.
    Internal,
}

impl ErrorKind {
    /// All classes by their names, each with the exit code of `ccm-cloud`. 0 is success, 1 the negative answer of a query and 2
    /// wrong usage.
    pub const NAMES: [(&'static str, u8); 11] = [
        ("NotFound", 10),
        ("AlreadyExists", 11),
        ("InvalidCredentials", 12),
        ("Forbidden", 13),
        ("InvalidArgument", 14),
        ("NotSupported", 15),
        ("ReadOnly", 16),
        ("RateLimited", 17),
        ("Timeout", 18),
        ("Unavailable", 19),
        ("Internal", 20),
    ];

    const fn index(&self) -> usize {
        match self {
            Self::NotFound => 0,
            Self::AlreadyExists => 1,
            Self::InvalidCredentials => 2,
            Self::Forbidden => 3,
            Self::InvalidArgument(_) => 4,
            Self::NotSupported => 5,
            Self::ReadOnly => 6,
            Self::RateLimited(_) => 7,
            Self::Timeout => 8,
            Self::Unavailable => 9,
            Self::Internal => 10,
        }
    }

    /// The name of the class.
    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.index()].0
    }

    /// The exit code of a program that fails with it.
    pub const fn exit_code(&self) -> u8 {
        Self::NAMES[self.index()].1
    }

    /// Whether the same operation may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::RateLimited(_) | Self::Timeout | Self::Unavailable)
    }
}

/// An error of a driver: its class, and what failed on which object, with the reason of the cloud.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The class.
    pub kind: ErrorKind,
    /// What failed, on which object, and why, without secrets.
    pub message: String,
    /// The id of an instance that a failed `create` has made.
    pub instance: Option<String>,
}

impl Error {
    /// An error of a class.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), instance: None }
    }

    /// The cloud does not have it.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A field of the request is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument(field.into()), message)
    }

    /// The driver or the cloud cannot do it.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotSupported, message)
    }

    /// Adds the instance that was made before the failure.
    #[must_use]
    pub fn after(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Adds in front of the message what failed.
    #[must_use]
    pub fn context(mut self, what: impl std::fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Whether the cloud says that it does not have it.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }
}
