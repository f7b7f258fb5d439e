//! Why no answer came (pure): the error of a connection, as one of the contract.

use std::{error::Error as StdError, io};

use ccm_base::error::chain;
use ccm_drivers::contract::{Error, ErrorKind};
use rustls::AlertDescription as Alert;

use crate::brief;

/// The class of a failure on the way to the Engine or back.
pub(super) fn of(error: &(dyn StdError + 'static)) -> Error {
    let mut kind = None;
    let mut cause = Some(error);
    while let Some(one) = cause {
        if let Some(tls) = tls(one) {
            return of_tls(tls);
        }
        if let Some(hyper) = one.downcast_ref::<hyper::Error>() {
            kind = kind.or(hyper.is_parse().then_some(ErrorKind::Internal));
        }
        if one.is::<http_body_util::LengthLimitError>() {
            kind = kind.or(Some(ErrorKind::Internal));
        }
        cause = one.source();
    }
    let words = chain(error);
    Error::new(kind.unwrap_or(ErrorKind::Unavailable), format!("the Engine did not answer: {}", brief(&words)))
}

/// The error of TLS inside of an error, as rustls hides it.
fn tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref())
}

fn of_tls(error: &rustls::Error) -> Error {
    let credentials = |problem: String| Error::new(ErrorKind::InvalidCredentials, problem);
    match error {
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::AccessDenied => {
                Error::new(ErrorKind::Forbidden, "the Engine denies access to the client certificate")
            }
            Alert::BadCertificate
            | Alert::NoCertificate
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::UnknownCA
            | Alert::DecryptError => {
                credentials(format!("the Engine refuses the client certificate in certPath ({error})"))
            }
            _ => Error::new(ErrorKind::Unavailable, format!("TLS failed: {error}")),
        },
        rustls::Error::InvalidCertificate(_) => credentials(format!(
            "the certificate of the Engine is not accepted by ca.pem in certPath: {}; correct certPath, host or tlsServerName",
            brief(&error.to_string())
        )),
        rustls::Error::InvalidMessage(_) => {
            Error::new(ErrorKind::Internal, "the answer is not TLS: is it a port for plain HTTP?")
        }
        _ => Error::new(ErrorKind::Unavailable, format!("TLS failed: {}", brief(&error.to_string()))),
    }
}

/// The class of a failure to connect. `what` names the endpoint.
pub(super) fn of_connect(error: &io::Error, what: &str) -> Error {
    if let Some(tls) = tls(error) {
        return of_tls(tls);
    }
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (ErrorKind::Forbidden, "; use root or the group of the socket"),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            (ErrorKind::Unavailable, "; is the Docker Engine running there?")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("{what} was not reached: {}{advice}", brief(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_has_classes() {
        let wrapped = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let unknown = rustls::CertificateError::UnknownIssuer;
        let cases = [
            (rustls::Error::AlertReceived(Alert::BadCertificate), "InvalidCredentials"),
            (rustls::Error::AlertReceived(Alert::CertificateRequired), "InvalidCredentials"),
            (rustls::Error::AlertReceived(Alert::AccessDenied), "Forbidden"),
            (rustls::Error::AlertReceived(Alert::InternalError), "Unavailable"),
            (rustls::Error::InvalidCertificate(unknown), "InvalidCredentials"),
            (rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "Internal"),
        ];
        for (error, expected) in cases {
            assert_eq!(of(&wrapped(error.clone())).kind.name(), expected, "{error}");
            assert_eq!(of_connect(&wrapped(error.clone()), "it").kind.name(), expected, "{error}");
        }
        let cases = [
            (io::ErrorKind::UnexpectedEof, "Unavailable"),
            (io::ErrorKind::ConnectionReset, "Unavailable"),
            (io::ErrorKind::PermissionDenied, "Forbidden"),
        ];
        for (kind, expected) in cases {
            assert_eq!(of_connect(&io::Error::from(kind), "it").kind.name(), expected);
        }
    }
}
