use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};

use super::*;

/// A certificate as PEM, as tools write it.
fn made(name: &str, year: i32, is_ca: bool) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::NoCa };
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem().replace("\r\n", "\n")
}

fn ca(name: &str) -> String {
    made(name, 2100, true)
}

fn names(certificates: &[Certificate]) -> Vec<&str> {
    certificates.iter().map(|certificate| certificate.subject.as_str()).collect()
}

fn refused(text: &[u8]) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn what_is_kept() {
    let (a, b) = (ca("a"), ca("b"));
    let expired = made("expired", 2001, true);
    let leaf = made("leaf", 2100, false);
    for (what, text, expected) in [
        ("several, in their order", format!("{b}{a}"), vec!["CN=b", "CN=a"]),
        ("text around", format!("# the first\nSubject: é\n\n{a}some text\n{b}\nthe end"), vec!["CN=a", "CN=b"]),
        ("CRLF", format!("{a}{b}").replace('\n', "\r\n"), vec!["CN=a", "CN=b"]),
        ("a byte order mark", format!("\u{feff}{a}{b}"), vec!["CN=a", "CN=b"]),
        ("no line break at the end", a.trim_end().to_owned(), vec!["CN=a"]),
        ("one twice, in other lines", format!("{a}{b}{}", a.replace('\n', "\r\n")), vec!["CN=a", "CN=b"]),
        ("expired", expired.clone(), vec!["CN=expired"]),
        ("of no authority", leaf.clone(), vec!["CN=leaf"]),
    ] {
        assert_eq!(names(&parse(text.as_bytes()).unwrap()), expected, "{what}");
    }
    let mut binary = vec![0xff, 0xfe, b'\n'];
    binary.extend(a.as_bytes());
    assert_eq!(names(&parse(&binary).unwrap()), ["CN=a"], "text that is not UTF-8 around");

    let found = &parse(format!("{expired}{leaf}").as_bytes()).unwrap();
    assert_eq!((found[0].is_ca, found[1].is_ca), (true, false));
    assert_eq!(found[0].not_after, 978_307_200);
}

#[test]
fn what_is_refused() {
    let (a, b) = (ca("a"), ca("b"));
    let lines = a.lines().count();
    let key = KeyPair::generate().unwrap().serialize_pem();
    let without_end = b.replace("-----END CERTIFICATE-----\n", "");
    let mut longer = parse(a.as_bytes()).unwrap().remove(0).der;
    longer.extend([0, 0]);
    let mut trailing = String::new();
    encode(&longer, &mut trailing);
    let mut cut = String::new();
    encode(&longer[..longer.len() / 2], &mut cut);
    let second = format!("{}: the PEM block ", lines + 2);
    for (text, expected) in [
        (String::new(), "no certificate found".to_owned()),
        ("no certificate here\n".to_owned(), "no certificate found".to_owned()),
        (format!("{a}\n{without_end}"), format!("{second}is cut off: its END line is missing")),
        (
            format!("{a}\n{without_end}{a}"),
            format!("{second}is damaged, or cut off before its END line: its lines are not base64"),
        ),
        (format!("{a}\n{key}"), format!("{second}is of the type \"PRIVATE KEY\": only CERTIFICATE may be in a bundle")),
        (
            format!("{a}\n{}", b.replace("CERTIFICATE", "TRUSTED CERTIFICATE")),
            format!("{second}is of the type \"TRUSTED CERTIFICATE\": only CERTIFICATE may be in a bundle"),
        ),
        (format!("{a}\n{trailing}"), format!("{second}has 2 bytes after the certificate")),
        (format!("{a}\n{cut}"), format!("{second}is not a valid X.509 certificate")),
        (
            "\n-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_owned(),
            "2: the PEM block is not a valid X.509 certificate".to_owned(),
        ),
        ("-----BEGIN CERTIFICATE\n".to_owned(), "1: the PEM block begins with a line that is not complete".to_owned()),
    ] {
        assert_eq!(refused(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(refused(b"-----BEGIN CERTIFICATE-----\n\xff\n"), "1: the PEM block is not text");
}

#[test]
fn certificates_of_administrators_come_before_the_systems() {
    let parsed = |texts: &[&str]| parse(texts.concat().as_bytes()).unwrap();
    let (a, b, c) = (ca("a"), ca("b"), ca("c"));
    let (system, proxy, cloud) = (parsed(&[&a, &b]), parsed(&[&b]), parsed(&[&c, &b]));
    let merged = |proxy: Option<&[Certificate]>, cloud: Option<&[Certificate]>| {
        merge(proxy.unwrap_or_default(), &system, cloud.unwrap_or_default()).unwrap()
    };
    assert_eq!(merged(None, None), format!("{a}{b}"), "canonical PEM is what rcgen writes, too");
    assert_eq!(merged(Some(&proxy), None), format!("{b}{a}"));
    assert_eq!(merged(Some(&proxy), Some(&cloud)), format!("{b}{c}{a}"));
    assert_eq!(merged(Some(&proxy), Some(&proxy)), format!("{b}{a}"));
    assert_eq!(merged(None, Some(&cloud)), format!("{c}{b}{a}"));
}

#[test]
fn a_bundle_larger_than_a_config_map_is_refused_with_the_sizes() {
    let of =
        |length: usize| vec![Certificate { der: vec![1; length], subject: String::new(), not_after: 0, is_ca: true }];
    // 48 bytes a line of 65.
    let frame = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".len();
    let most = (LIMIT - frame) / 65 * 48;
    let full = of(most);
    assert!(merge(&[], &full, &[]).unwrap().len() > LIMIT - 65);
    assert!(merge(&full, &full, &full).is_ok(), "each counts once");
    let small = of(48);
    let error = merge(&small, &full, &[]).unwrap_err();
    let system = frame + most / 48 * 65;
    let (total, proxy) = (system + frame + 65, frame + 65);
    let expected = format!(
        "the trusted certificates are {total} bytes long together, and a ConfigMap holds at most {LIMIT}: {proxy} of the \
         Proxy's trusted CA, 0 of the cloud configuration's, {system} of the system's; remove certificates"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn expiring_certificates_are_found() {
    let certificates = parse(made("a", 2030, true).as_bytes()).unwrap();
    let end = certificates[0].not_after;
    for (now, expected) in [(end - SOON - 1, 0), (end - SOON, 1), (end + 1, 1), (i64::MAX, 1), (i64::MIN, 0)] {
        assert_eq!(expiring(&certificates, now).count(), expected, "{now}");
    }
}

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn never_panics_on_blocks(label in "CERTIFICATE|X|-| *", bytes in prop::collection::vec(any::<u8>(), 0..200), end in any::<bool>()) {
        let mut text = format!("-----BEGIN {label}-----\n{}\n", STANDARD.encode(bytes));
        if end {
            text += "-----END X-----";
        }
        let _ = parse(text.as_bytes());
    }
}

#[test]
fn never_panics_on_a_damaged_certificate_and_merging_is_idempotent() {
    let bundle: String = ["a", "b", "c"].map(ca).concat();
    let parsed = parse(bundle.as_bytes()).unwrap();
    proptest!(|(picks in prop::collection::vec(0_usize..3, 1..6), place: prop::sample::Index, byte: u8, cut: prop::sample::Index)| {
        let picked: Vec<_> = picks.into_iter().map(|pick| parsed[pick].clone()).collect();
        let first = merge(&picked, &parsed, &[]).unwrap();
        let again = parse(first.as_bytes()).unwrap();
        let mut known = HashSet::new();
        prop_assert!(again.iter().eq(picked.iter().chain(&parsed).filter(|certificate| known.insert(&certificate.der))));
        prop_assert_eq!(merge(&[], &again, &[]).unwrap(), first);

        let mut bytes = bundle.clone().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let _ = parse(&bytes);
        let _ = parse(&bytes[..cut.index(bytes.len())]);
        let mut der = parsed[0].der.clone();
        let place = place % der.len();
        der[place] = byte;
        let mut text = String::new();
        encode(&der, &mut text);
        let _ = parse(text.as_bytes());
    });
}
