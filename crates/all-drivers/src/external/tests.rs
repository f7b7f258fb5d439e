use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::Drivers;

const HEX: &str = "60e5cdbcb910c6331c796ce66dfa32e50bf083689ffdf18ee136d91a9da5ddab";

/// What seed 000 sets.
fn variables() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (NAME, "libvirt".to_owned()),
        (ENABLE, "true".to_owned()),
        (PATH, "/cloud-providers/libvirt.so".to_owned()),
        (HASH, HEX.to_owned()),
    ])
}

fn flags(driver: Option<&str>) -> DriverFlags {
    DriverFlags { driver: driver.map(|text| text.parse().unwrap()), driver_folder: "/cloud-providers".into() }
}

fn chosen(flags: &DriverFlags, variables: &BTreeMap<&'static str, String>) -> anyhow::Result<Choice> {
    choice(flags, |key| variables.get(key).map(OsString::from))
}

fn refused(flags: &DriverFlags, variables: &BTreeMap<&'static str, String>) -> String {
    format!("{:#}", chosen(flags, variables).unwrap_err())
}

#[test]
fn the_variables_or_the_flag_or_both_name_one_file_and_its_digest() {
    let pin = Choice::Pinned(Pin::new("/cloud-providers/libvirt.so", HEX).unwrap());
    let text = format!("/cloud-providers/libvirt.so@sha256:{HEX}");
    assert_eq!(chosen(&flags(None), &variables()).unwrap(), pin);
    assert_eq!(chosen(&flags(Some(&text)), &BTreeMap::new()).unwrap(), pin);
    assert_eq!(chosen(&flags(Some(&text)), &variables()).unwrap(), pin);
    assert_eq!(chosen(&flags(None), &BTreeMap::new()).unwrap(), Choice::None);
    for spelling in ["1", "t", "TRUE", "True"] {
        let mut variables = variables();
        variables.insert(ENABLE, spelling.to_owned());
        assert_eq!(chosen(&flags(None), &variables).unwrap(), pin, "{spelling}");
    }
}

#[test]
fn a_driver_that_is_not_enabled_is_not_used() {
    for value in [None, Some(""), Some("false"), Some("0"), Some("F")] {
        let mut variables = variables();
        variables.remove(ENABLE);
        variables.extend(value.map(|value| (ENABLE, value.to_owned())));
        let path = PathBuf::from("/cloud-providers/libvirt.so");
        assert_eq!(chosen(&flags(None), &variables).unwrap(), Choice::Disabled(path), "{value:?}");
    }
    // Neither is a value that looks as if it were one of them.
    for value in ["yes", "on", "tru", " true", "enabled", "2"] {
        let mut variables = variables();
        variables.insert(ENABLE, value.to_owned());
        assert!(
            refused(&flags(None), &variables).contains(&format!("{ENABLE} is {value:?}, not true or false")),
            "{value}"
        );
    }
}

#[test]
fn each_variable_that_is_missing_is_an_error_once_the_driver_is_enabled() {
    for key in [PATH, HASH, NAME] {
        for empty in [false, true] {
            let mut variables = variables();
            variables.remove(key);
            variables.extend(empty.then(|| (key, String::new())));
            let problem = refused(&flags(None), &variables);
            assert!(
                problem.starts_with(&format!("the environment variable {key} is missing, and {ENABLE} is true")),
                "{problem}"
            );
        }
    }
    let mut variables = variables();
    variables.retain(|key, _| *key == ENABLE || *key == PATH);
    assert_eq!(
        refused(&flags(None), &variables),
        format!(
            "the environment variables {NAME}, {HASH} are missing, and {ENABLE} is true: set all four, or unset {ENABLE}"
        )
    );
    let bytes: OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
    for key in [PATH, HASH, NAME, ENABLE] {
        let variables = self::variables();
        let with =
            |asked: &str| if asked == key { Some(bytes.clone()) } else { variables.get(asked).map(OsString::from) };
        assert!(choice(&flags(None), with).unwrap_err().to_string().ends_with("is not UTF-8"), "{key}");
    }
}

#[test]
fn a_hash_of_another_form_is_an_error() {
    for hash in
        ["60e5", &HEX.to_uppercase(), &format!("sha256:{HEX}"), &format!("{HEX}  libvirt.so"), &format!("{HEX}\n")]
    {
        let mut variables = variables();
        variables.insert(HASH, hash.to_owned());
        let problem = refused(&flags(None), &variables);
        assert!(problem.contains(HASH) && problem.contains("is no SHA-256 digest"), "{problem}");
    }
}

#[test]
fn the_name_of_the_file_is_that_of_the_cloud() {
    for (name, path) in [
        ("docker", "/cloud-providers/libvirt.so"),
        ("libvirt", "/cloud-providers/aws.py"),
        ("libvirt", "/cloud-providers/libvirt.tar.gz"),
        ("libvirt", "/cloud-providers/Libvirt"),
        ("libvirt.so", "/cloud-providers/libvirt.so"),
        ("libvirt", "/"),
    ] {
        let mut variables = variables();
        variables.extend([(NAME, name.to_owned()), (PATH, path.to_owned())]);
        assert!(refused(&flags(None), &variables).contains("both have to be the name of the driver"), "{name} {path}");
    }
}

#[test]
fn two_different_files_or_digests_are_an_error() {
    let other = HEX.replace('6', "7");
    for text in [
        format!("/cloud-providers/libvirt.so@sha256:{other}"),
        format!("/cloud-providers/libvirt.py@sha256:{HEX}"),
        format!("/other/libvirt.so@sha256:{HEX}"),
    ] {
        let problem = refused(&flags(Some(&text)), &variables());
        assert!(problem.contains("give one of both, or the same path and digest"), "{problem}");
    }
}

#[test]
fn the_name_of_a_built_in_driver_is_taken() {
    for driver in built_in() {
        let name = driver.name();
        let text = format!("/cloud-providers/{name}.py@sha256:{HEX}");
        let problem = refused(&flags(Some(&text)), &BTreeMap::new());
        assert!(problem.contains(&format!("the built-in driver {name} has this name")), "{problem}");
        let mut variables = variables();
        variables.extend([(NAME, name.to_owned()), (PATH, format!("/cloud-providers/{name}.py"))]);
        assert!(refused(&flags(None), &variables).contains("rename the file and the driver"));
    }
}

/// Nothing is executed before these guards: this test has no program that could supervise it.
#[tokio::test]
async fn a_file_of_another_folder_or_with_another_digest_is_an_error() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("libvirt.sh");
    fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let tried = async |folder: &Path, path: &Path| {
        let path = path.to_str().unwrap();
        let flags = DriverFlags { driver: Some(Pin::new(path, HEX).unwrap()), driver_folder: folder.to_owned() };
        let by_flag = Drivers::load(&flags, |_| None).await.err().unwrap().to_string();
        let mut variables = variables();
        variables.insert(PATH, path.to_owned());
        let flags = DriverFlags { driver: None, ..flags };
        let by_variable = Drivers::load(&flags, |key| variables.get(key).map(OsString::from)).await.err().unwrap();
        assert_eq!(by_flag, by_variable.to_string());
        by_flag
    };
    assert!(tried(folder.path(), &path).await.contains(&format!("should have sha256:{HEX}")));
    assert!(tried(elsewhere.path(), &path).await.contains("is not directly in the folder"));
    assert!(tried(folder.path().parent().unwrap(), &path).await.contains("is not directly in the folder"));
    assert!(tried(folder.path(), &folder.path().join("libvirt.py")).await.contains("cannot read"));
}
