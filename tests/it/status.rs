//! `status`: the state of a cluster's cloud-controller-manager, with the messages of its pods.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    diff::run,
    lab::{LIMIT, Lab, NAMESPACE, VERSION, binary},
    support::{
        eventually,
        faults::{Fault, Faults, Rule},
        objects,
        openshift::Cluster,
    },
};

async fn status(lab: &Lab, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let images = lab.images_file();
    let mut all = vec!["status", "--images-json", images.to_str().context("path")?];
    all.extend(arguments);
    let output = run(&lab.plane.kubeconfig_admin(), &all).await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

#[test]
fn a_proxy_in_a_kubeconfig_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    let cluster = json!({"server": "https://127.0.0.1:1", "proxy-url": "http://127.0.0.1:2"});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&path, kubeconfig.to_string())?;
    for way in [None, Some(&path)] {
        let mut command = std::process::Command::new(binary());
        command.arg("status").env("KUBECONFIG", &path);
        command.args(way.map(|path| format!("--kubeconfig={}", path.display())));
        let output = command.output()?;
        let error = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("proxy-url"), "{error}");
    }
    Ok(())
}

#[test]
fn a_broken_kubeconfig_shows_no_credential() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    let head = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- {name: a, cluster: {server: 'https://127.0.0.1:1'}}\n\
                contexts:\n- {name: a, context: {cluster: a, user: a}}\nusers:\n- name: a\n  user:\n";
    for (user, expected) in [
        ("    token: hunter2\n    token: hunter3\n", "at 12:5"),
        ("    token: [hunter2]\n", "not a kubeconfig"),
        ("    token: \"hunter2\n", "not a kubeconfig"),
        (
            "    exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, 'echo hunter2; exit 1'], \
             interactiveMode: Never}\n",
            "(exec) has failed",
        ),
        (
            "    exec: {apiVersion: client.authentication.k8s.io/v1, command: echo, args: [hunter2], \
             interactiveMode: Never}\n",
            "printed no ExecCredential",
        ),
    ] {
        std::fs::write(&path, format!("{head}{user}"))?;
        let output = std::process::Command::new(binary()).args(["status", "--kubeconfig"]).arg(&path).output()?;
        let error = String::from_utf8(output.stderr)?;
        assert!(error.contains(expected) && !error.contains("hunter"), "{user}: {error}");
    }
    std::fs::write(&path, format!("{head}    token: |\n      abc\n"))?;
    for (flag, expected) in
        [("--user=b", "has no user \"b\""), ("--user=", "Connection refused"), ("--as=", "--as <USER>")]
    {
        let output = std::process::Command::new(binary()).args(["status", flag, "--kubeconfig"]).arg(&path).output()?;
        let error = String::from_utf8(output.stderr)?;
        assert!(error.contains(expected), "{flag}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn the_flags_of_kubectl_choose_cluster_and_user() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(lab.plane.kubeconfig_admin())?)?;
    let (cluster, user) = (kubeconfig["clusters"][0]["name"].clone(), kubeconfig["users"][0]["name"].clone());
    // It accepts connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let server = format!("https://{}", silent.local_addr()?);
    let unreachable = json!({"name": "nowhere", "cluster": {"server": server}});
    kubeconfig["clusters"].as_array_mut().context("clusters")?.push(unreachable);
    kubeconfig["users"].as_array_mut().context("users")?.push(json!({"name": "nobody", "user": {"token": "wrong"}}));
    kubeconfig["contexts"] = json!([
        {"name": "wrong", "context": {"cluster": "nowhere", "user": "nobody"}},
        {"name": "right", "context": {"cluster": cluster, "user": user}},
    ]);
    kubeconfig["current-context"] = "wrong".into();
    let path = lab.dir.path().join("contexts.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    let (cluster, user) =
        (format!("--cluster={}", cluster.as_str().unwrap()), format!("--user={}", user.as_str().unwrap()));
    for (flags, expected) in [
        (&["--request-timeout=1s"][..], "no answer from the API server in time"),
        (&["--context=right"], "CONDITION"),
        (&[&cluster, &user], "CONDITION"),
        (&[&cluster], "Unauthorized"),
        (&["--context=right", "--as=somebody", "--as-group=some"], r#"User "somebody" cannot"#),
        (&["--context=right", "--as=somebody", "--as-group=system:masters"], "CONDITION"),
        (&["--context=none"], "none"),
        (&["--as-group=some"], "--as <USER>"),
    ] {
        let mut command = std::process::Command::new(binary());
        command.args(["status", "--kubeconfig"]).arg(&path).args(flags);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_impersonation_of_a_kubeconfig_is_honored() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(lab.plane.kubeconfig_admin())?)?;
    kubeconfig["users"][0]["user"]["as"] = "nobody".into();
    let path = lab.dir.path().join("impersonating.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    let output = std::process::Command::new(binary()).args(["status", "--kubeconfig"]).arg(&path).output()?;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    assert!(text.contains(r#"User "nobody" cannot"#), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_healthy_cluster_fits_in_eighty_columns() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let (code, text, _) = status(&lab, &[]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.starts_with(
            "Cluster    NOT HEALTHY\nOperator   NOT RUNNING: nobody holds its lease\nPlatform   AWS, provider aws\n"
        ),
        "{text}"
    );
    assert!(text.contains("missing") && text.contains("Available: not reported"), "{text}");

    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let (code, text, errors) = status(&lab, &[]).await?;
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.contains(&format!("Version    {VERSION}")), "{text}");
    assert!(text.contains("as planned") && !text.contains("differs") && !text.contains("missing"), "{text}");
    assert!(text.contains("done     2/2    Deployment aws-cloud-controller-manager"), "{text}");
    assert!(text.contains("LAST CHANGES") && text.contains("Service aws-cloud-controller-manager: "), "{text}");
    assert!(!text.contains("not shown"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (_, yaml, _) = status(&lab, &["-o", "yaml"]).await?;
    assert!(yaml.contains("healthy: true\n") && yaml.contains("state: leading\n"), "{yaml}");

    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let (code, text, _) = status(&lab, &[]).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Operator   NOT RUNNING: nobody holds its lease"), "nothing is repaired: {text}");
    Ok(())
}

#[tokio::test]
async fn the_reason_of_a_pending_rollout_is_shown() -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let operator = lab.start()?;
    eventually("the Deployment", LIMIT, async || Ok(lab.live("Deployment").await?.map(drop))).await?;
    let deployment = lab.live("Deployment").await?.context("a Deployment")?;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "aws-ccm-1", "namespace": NAMESPACE, "labels": deployment["spec"]["selector"]["matchLabels"],
    }});
    pod["spec"] = json!({"containers": [{"name": "ccm", "image": "x"}]});
    objects::apply(&lab.client, pod.clone()).await?;
    pod.as_object_mut().context("a pod")?.remove("spec");
    pod["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }]});
    objects::apply_status(&lab.client, pod.clone()).await?;
    let (_, text, _) = status(&lab, &["-o", "json"]).await?;
    objects::delete(&lab.client, &pod).await?;
    let report: Value = serde_json::from_str(&text)?;
    let rollout = &report["rollouts"][0];
    assert_eq!(rollout["state"], "progressing", "{report:#}");
    assert_eq!(
        rollout["waitsFor"],
        json!(["Pod aws-ccm-1 cannot be scheduled: 0/3 nodes are available: 3 Insufficient memory."])
    );
    drop(operator);
    Ok(())
}

#[tokio::test]
async fn unreadable_parts_are_named_and_the_rest_is_shown() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    // The operator itself gets no object by its name: it watches.
    let images = lab.images_file();
    let arguments = ["status", "--images-json", images.to_str().context("path")?];
    let output = run(lab.kubeconfig(), &arguments).await?;
    let text = String::from_utf8(output.stdout)?;
    assert!(text.contains("not shown: failed to read clusteroperators.config.openshift.io"), "{text}");
    assert!(text.contains("Namespace  openshift-cloud-controller-manager"), "{text}");

    let nowhere = lab.dir.path().join("nowhere");
    std::fs::write(&nowhere, std::fs::read_to_string(lab.kubeconfig())?.replace("127.0.0.1:", "127.0.0.1:1"))?;
    let output = run(&nowhere, &arguments).await?;
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

#[tokio::test]
async fn a_watch_shows_only_changes_and_waits_out_an_outage() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(&lab.plane.kubeconfig_admin(), lab.dir.path()).await?;
    let images = format!("--images-json={}", lab.images_file().display());
    let arguments = ["status", "--watch", "-o", "json", &images];
    let watch = crate::support::operator::Operator::start(crate::lab::binary(), proxy.kubeconfig(), &arguments, &[])?;
    let shown = |log: &str| log.matches("\"healthy\":").count();
    eventually("the first report", LIMIT, async || Ok((shown(&watch.log()) == 1).then_some(()))).await?;
    // Two more reads of the cluster show nothing new.
    let reads = || proxy.seen().iter().filter(|seen| seen.path.ends_with("/infrastructures/cluster")).count();
    let before = reads();
    eventually("two more reads", LIMIT, async || {
        ensure!(reads() >= before + 2, "{} reads, {before} before", reads());
        Ok(Some(()))
    })
    .await?;
    assert_eq!(shown(&watch.log()), 1, "{}", watch.log());

    // It waits out an outage of the API server.
    let outage = Rule { fault: Fault::Cut, applies: |_| true, times: usize::MAX };
    proxy.inject(vec![outage]);
    eventually("the outage", LIMIT, async || Ok(watch.log().contains("failed to read").then_some(()))).await?;
    proxy.forget();
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    eventually("the change", LIMIT, async || Ok(watch.log().contains("\"healthy\": true").then_some(())))
        .await
        .with_context(|| watch.log())
}
