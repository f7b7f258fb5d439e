//! AWS, as moto plays it.

use std::{
    fs::{self, Permissions},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{not_run, owns_the_engine, pinned, published, report_of};
use crate::{
    docker::run,
    image::ccm_cloud,
    support::{
        artifacts,
        lab::repository,
        moto::{self, Cloud},
        process,
    },
};

/// Images that moto knows.
const IMAGES: [&str; 2] = ["ami-12c6146b", "ami-1e749f67"];
/// What no run against moto can show.
const CONCURRENT: &str = "I15";
const WHY: &str =
    "moto makes one instance for each request, also with the same client token, by which EC2 makes one of several";
/// Every permission.
const POLICY: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}"#;

#[tokio::test]
#[ignore = "starts the driver for some minutes: make e2e-all"]
async fn the_driver_for_aws_passes_the_checks_that_moto_can_show() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let cloud = Cloud::start("127.0.0.1", port).await?;
    // Otherwise the check can be run.
    ensure!(instances_of_one_token(&cloud).await? == 2, "moto knows client tokens by now: run {CONCURRENT}");

    let credentials = credentials(&cloud).await?;
    check_credentials(port).await?;
    let dir = process::temp_dir()?;
    let driver = dir.path().join("aws.py");
    write_driver(&driver).await?;
    let mut verify = Command::new(ccm_cloud()?);
    verify.args(pinned(&driver)?).args(["aws", "verify", "--other-image", IMAGES[1], "--only", &others()?]);
    verify.args(["-o", "json"]);
    verify.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")).env("AWS_REGION", moto::REGION);
    verify.env("AWS_IMAGE", IMAGES[0]).envs(credentials);
    let mut report = report_of(verify).await?;
    ensure!(not_run(&report).is_empty(), "{report:#}");
    let all = report["results"].as_array_mut().context("no results")?;
    all.push(json!({"id": CONCURRENT, "outcome": "notRun", "reasons": [WHY]}));
    let packages = fs::read_to_string(repository().join("hack/e2e/moto.in"))?;
    let version = packages.lines().find_map(|line| line.strip_prefix("moto[ec2]==")).context("no version of moto")?;
    published(&format!("AWS EC2, as moto {version} answers"), &report)
}

#[tokio::test]
#[ignore = "installs boto3: make e2e-all"]
async fn the_driver_for_aws_understands_answers_that_moto_does_not_give() -> Result<()> {
    let external = repository().join("tests/e2e/drivers/external/eventual.py");
    let mut script = Command::new(artifacts::moto().await?);
    run(script.args(["-I", "-B"]).arg(external).arg(repository().join("examples/drivers/aws/aws.py"))).map(drop)
}

/// How many instances moto makes for two requests with one client token.
async fn instances_of_one_token(cloud: &Cloud) -> Result<usize> {
    let run = ["ec2", "run-instances", "--image-id", IMAGES[0], "--client-token", "token"];
    let mut ids = Vec::new();
    for _ in 0..2 {
        let made = cloud.aws(&run).await?;
        ids.push(made["Instances"][0]["InstanceId"].as_str().context("no id")?.to_owned());
    }
    cloud.aws(&["ec2", "terminate-instances", "--instance-ids", &ids[0], &ids[1]]).await?;
    ids.dedup();
    Ok(ids.len())
}

/// The access key of a new user.
async fn credentials(cloud: &Cloud) -> Result<[(&'static str, String); 2]> {
    cloud.aws(&["iam", "create-user", "--user-name", "driver"]).await?;
    let policy = ["--policy-name", "all", "--policy-document", POLICY];
    cloud.aws(&[&["iam", "put-user-policy", "--user-name", "driver"][..], &policy].concat()).await?;
    let key = cloud.aws(&["iam", "create-access-key", "--user-name", "driver"]).await?;
    let of = |field: &str| Ok::<_, anyhow::Error>(key["AccessKey"][field].as_str().context("no key")?.to_owned());
    Ok([("AWS_ACCESS_KEY_ID", of("AccessKeyId")?), ("AWS_SECRET_ACCESS_KEY", of("SecretAccessKey")?)])
}

/// Lets moto check who asks from now on.
async fn check_credentials(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"POST /moto-api/reset-auth HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n0").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.contains(" 200 "), "{answer}");
    Ok(())
}

/// Writes the driver with the Python that has boto3 in its first line, as its page says.
async fn write_driver(file: &Path) -> Result<()> {
    let source = fs::read_to_string(repository().join("examples/drivers/aws/aws.py"))?;
    let (_, rest) = source.split_once('\n').context("no lines")?;
    fs::write(file, format!("#!{} -I\n{rest}", artifacts::moto().await?.display()))?;
    Ok(fs::set_permissions(file, Permissions::from_mode(0o755))?)
}

/// The ids of all other checks.
fn others() -> Result<String> {
    let page = fs::read_to_string(repository().join("docs/drivers/conformance.md"))?;
    let ids =
        page.lines().filter_map(|line| line.strip_prefix("| I")?.split_once(" |")).map(|(id, _)| format!("I{id}"));
    let ids: Vec<_> = ids.filter(|id| id != CONCURRENT).collect();
    Ok(ids.join(","))
}
