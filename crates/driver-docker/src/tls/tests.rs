use std::fs;

use ccm_drivers::contract::ErrorKind;

use super::*;
use crate::stand_in::{certificates::Authority, values};

#[test]
fn tls_is_never_without_verification() {
    type Case<'a> = (&'a [(&'a str, &'a str)], std::result::Result<bool, &'a str>);
    let cases: [Case; 6] = [
        (&[], Ok(false)),
        (&[("certPath", "/x")], Ok(true)),
        (&[("certPath", "/x"), ("tlsVerify", "1")], Ok(true)),
        (&[("certPath", "/x"), ("tlsVerify", "0")], Err("tlsVerify")),
        (&[("tlsVerify", "0")], Ok(false)),
        (&[("tlsVerify", "1")], Err("certPath")),
    ];
    for (given, expected) in cases {
        let found = is_wanted(&values(given)).map_err(|error| error.kind);
        assert_eq!(found, expected.map_err(|field| ErrorKind::InvalidArgument(field.to_owned())), "{given:?}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_not_shown() {
    let (authority, other) = (Authority::new("a"), Authority::new("b"));
    let (folder, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let load = || Tls::load(&values(&[("certPath", folder.path().to_str().unwrap())])).map(|tls| tls.is_some());
    authority.write_client(folder.path(), &authority);
    other.write_client(foreign.path(), &other);
    assert!(load().unwrap());
    let file = |name: &str| folder.path().join(name);
    let secret = "-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n";
    let foreign_key = fs::read_to_string(foreign.path().join("key.pem")).unwrap();
    let cases =
        [("ca.pem", "no PEM"), ("ca.pem", ""), ("cert.pem", ""), ("key.pem", secret), ("key.pem", &foreign_key)];
    for (name, text) in cases {
        let right = fs::read(file(name)).unwrap();
        fs::write(file(name), text).unwrap();
        let error = load().unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument("certPath".to_owned()));
        assert!(error.message.contains(name) && !error.message.contains("secret"), "{error}");
        fs::remove_file(file(name)).unwrap();
        assert!(load().unwrap_err().message.contains(name));
        fs::write(file(name), right).unwrap();
    }
    assert!(load().unwrap());
    let name = [("certPath", folder.path().to_str().unwrap()), ("tlsServerName", "a b")];
    let error = Tls::load(&values(&name)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("tlsServerName".to_owned()));
}
