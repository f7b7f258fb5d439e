//! `ccm-operator provider`: the program about its providers.

use std::process::{Command, Output};

use anyhow::Result;
use ccm_operator::yaml;
use serde_json::Value;

use crate::lab::binary;

fn provider(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("provider").args(arguments).output().expect("the binary")
}

/// What is printed when all is well.
fn printed(arguments: &[&str]) -> Result<String> {
    let output = provider(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn every_provider_is_listed() -> Result<()> {
    let table = printed(&["list"])?;
    assert_eq!(table.lines().count(), 1 + 9, "{table}");
    assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    let json: Value = serde_json::from_str(&printed(&["list", "-o", "json"])?)?;
    assert_eq!(json, yaml::from_str::<Value>(&printed(&["list", "-o", "yaml"])?)?);
    let aws = json.as_array().and_then(|all| all.iter().find(|one| one["name"] == "aws")).expect("aws");
    assert_eq!(aws["platform"], "AWS");
    assert_eq!(aws["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(aws["facets"], serde_json::json!(["manifests", "bootstrap"]));
    assert!(aws["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{aws}");
    Ok(())
}

#[test]
fn a_provider_is_shown_with_the_origin_of_its_values() -> Result<()> {
    let table = printed(&["show", "aws"])?;
    for text in
        ["ValidatingAdmissionPolicy", "cloudControllerManagerAWS", "fact tls.minVersion", "assets/aws/deployment.yaml"]
    {
        assert!(table.contains(text), "{text} is not in {table}");
    }
    let json: Value = serde_json::from_str(&printed(&["show", "aws", "--phase", "bootstrap", "-o", "json"])?)?;
    assert_eq!(json["objects"][0]["file"], "bootstrap/aws/pod.yaml");
    assert_eq!(json, yaml::from_str::<Value>(&printed(&["show", "aws", "--phase=bootstrap", "-oyaml"])?)?);
    Ok(())
}

#[test]
fn an_unknown_provider_is_wrong_usage() {
    let output = provider(&["show", "asw"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("there is no provider \"asw\" (did you mean `aws`?)"), "{error}");
}
