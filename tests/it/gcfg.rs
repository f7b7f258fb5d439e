//! We read INI as the cloud-controller-managers of AWS and OpenStack do, and know the keys that all of them know: both are
//! compared with the clouds' own code, which `hack/ccm/build.sh` builds.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use ccm_operator::{config::Transform, facts::Facts};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{lab::repository, laws::samples, support::artifacts};

/// A cloud's answer for a configuration.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Read {
    error: String,
    ignored: String,
    config: Value,
}

async fn read_by(program: &str, texts: &[&str]) -> Result<Vec<Read>> {
    let path = artifacts::cloud_controller_managers().await?.join(program);
    let mut child = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("stdin")?.write_all(&serde_json::to_vec(texts)?)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{program} ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Generated texts, the same in each run, so that a failure can be reproduced.
fn sources() -> Vec<String> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let any = prop_oneof![2 => samples::ini(), 1 => samples::soup(), 3 => samples::value()];
    (0..6000).map(|_| any.new_tree(&mut runner).unwrap().current()).collect()
}

/// The parts of a configuration that a transform does not change.
fn rest(mut config: Value, changed: &[&str]) -> Value {
    for pointer in changed {
        let (section, key) = pointer.rsplit_once('/').unwrap();
        if let Some(section) = config.pointer_mut(section).and_then(Value::as_object_mut) {
            section.remove(key);
        }
    }
    config
}

/// A cloud and the expected result of its transform.
struct Cloud {
    program: &'static str,
    transform: Transform,
    changed: &'static [&'static str],
    is_expected: fn(&Value) -> bool,
    /// Keys for which we are deliberately stricter or more lenient than the cloud.
    judged: &'static [&'static str],
}

const AWS: Cloud = Cloud {
    program: "aws-config",
    transform: Transform::Aws,
    changed: &["/Global/clusterServiceLoadBalancerHealthProbeMode", "/Global/nlbSecurityGroupMode"],
    is_expected: |config| {
        config["Global"]["nlbSecurityGroupMode"] == "Managed"
            && config["Global"]["clusterServiceLoadBalancerHealthProbeMode"]
                .as_str()
                .is_some_and(|mode| !mode.is_empty())
    },
    judged: &["clusterserviceloadbalancerhealthprobemode", "nlbsecuritygroupmode", "\u{feff}"],
};

const OPENSTACK: Cloud = Cloud {
    program: "others-config",
    transform: Transform::OpenStack,
    changed: &[
        "/Global/UseClouds",
        "/Global/CloudsFile",
        "/Global/Cloud",
        "/LoadBalancer/MaxSharedLB",
        "/LoadBalancer/ManageSecurityGroups",
    ],
    is_expected: |config| {
        config["Global"]["UseClouds"] == true
            && config["Global"]["CloudsFile"] == "/etc/openstack/secret/clouds.yaml"
            && config["Global"]["Cloud"] == "openstack"
    },
    judged: &[
        "secret-name",
        "secret-namespace",
        "kubeconfig-path",
        "use-clouds",
        "cloud",
        "max-shared-lb",
        "manage-security-groups",
        "\u{feff}",
    ],
};

async fn agrees(cloud: &Cloud) -> Result<()> {
    let gate = "AWSServiceLBNetworkSecurityGroup".to_owned();
    let context = Facts { feature_gates: vec![gate], ..Facts::default() };
    let sources = sources();
    let ours: Vec<_> = sources.iter().map(|source| cloud.transform.apply(source, &context)).collect();
    let theirs = read_by(cloud.program, &sources.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let texts: Vec<&str> = ours.iter().flatten().map(|output| output.text.as_str()).collect();
    let mut written = read_by(cloud.program, &texts).await?.into_iter();
    let mut refused = 0;
    for ((source, ours), theirs) in sources.iter().zip(&ours).zip(theirs) {
        let judged = cloud.judged.iter().any(|word| source.to_lowercase().contains(word));
        assert!(judged || ours.is_ok() == theirs.error.is_empty(), "{source:?}\n{ours:?}\n{}", theirs.error);
        let Ok(output) = ours else {
            refused += 1;
            continue;
        };
        let text = &output.text;
        let after = written.next().unwrap();
        assert_eq!(after.error, "", "{source:?}\n{text:?}");
        assert!((cloud.is_expected)(&after.config), "{text:?}\n{}", after.config);
        let ignored = output.warnings.iter().any(|warning| warning.message.contains("ignores"));
        assert_eq!(ignored, !after.ignored.is_empty(), "{text:?}\n{:?}\n{}", output.warnings, after.ignored);
        if theirs.error.is_empty() {
            assert_eq!(rest(after.config, cloud.changed), rest(theirs.config, cloud.changed), "{source:?}\n{text:?}");
        }
    }
    assert!(refused > 500 && sources.len() - refused > 500, "{refused} of {} were refused", sources.len());
    Ok(())
}

#[tokio::test]
async fn aws_reads_configurations_as_we_do() -> Result<()> {
    agrees(&AWS).await
}

#[tokio::test]
async fn openstack_reads_configurations_as_we_do() -> Result<()> {
    agrees(&OPENSTACK).await
}

#[tokio::test]
async fn the_known_keys_are_those_of_the_clouds() -> Result<()> {
    let mut keys = Map::new();
    for program in ["aws-config", "others-config"] {
        let path = artifacts::cloud_controller_managers().await?.join(program);
        let output = Command::new(path).arg("keys").output()?;
        ensure!(output.status.success(), "{program} ended with {}", output.status);
        keys.extend(serde_json::from_slice::<Map<_, _>>(&output.stdout)?);
    }
    let generated = serde_json::to_string_pretty(&keys)? + "\n";
    let path = repository().join("crates/core/src/config/keys.json");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, &generated)?;
    }
    assert_eq!(fs::read_to_string(&path)?, generated, "`make generate` updates {}", path.display());
    Ok(())
}
