use super::*;
use crate::text::yaml;

const MANIFEST: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: acme}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: acme}
rules:
- {apiGroups: [\"\"], resources: [pods, nodes], verbs: [get, list]}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: acme}
  spec:
    template:
      spec:
        containers:
        - name: manager
          image: acme/ccm:v1.2.3
          command: [/app/acme]
          args: [--cloud-provider=external-acme, --leader-elect=true, --cloud-config=/config/acme.conf, --acme-zone, a, --v=4]
          env:
          - {name: ACME_TOKEN, valueFrom: {secretKeyRef: {name: acme, key: token}}}
          - {name: ACME_PASSWORD, value: s3cret}
          - {name: ACME_REGION, value: west}
          - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          envFrom:
          - secretRef: {name: more}
          volumeMounts: [{name: config, mountPath: /config}, {name: certs, mountPath: /etc/ssl}]
        - {name: side, image: acme/side:1}
        volumes: [{name: config, secret: {secretName: acme}}, {name: certs, hostPath: {path: /etc/ssl}}]
";

fn of(text: &str) -> Result<Published, String> {
    read(&yaml::documents(text).unwrap())
}

#[test]
fn the_program_is_taken_over_and_the_rest_is_named() {
    let published = of(MANIFEST).unwrap();
    assert_eq!(published.image.as_ref().unwrap().as_ref().unwrap().to_string(), "acme/ccm:v1.2.3");
    assert_eq!(published.command.as_deref(), Some("/app/acme"));
    assert_eq!(published.cloud_provider.as_deref(), Some("external-acme"));
    assert_eq!(published.cloud_config, Some(CloudConfig { file: "acme.conf".into(), holds_credentials: true }));
    assert_eq!(published.credentials, [("ACME_TOKEN".to_owned(), "token".to_owned())].into());
    assert_eq!(published.environment, [("ACME_REGION".to_owned(), "west".to_owned())].into());
    assert_eq!(published.arguments, ["--acme-zone=a"]);
    assert!(!published.routes);
    let left = published.left.join("\n");
    for part in [
        "variable ACME_PASSWORD -> it looks secret",
        "variable NODE -> ",
        "the variables of more -> ",
        "volume certs -> ",
        "container side -> ",
        "ClusterRole acme (pods,nodes get,list) -> ",
    ] {
        assert!(left.contains(part), "{part}: {left}");
    }
    assert!(!left.contains("s3cret") && !left.contains("volume config"), "{left}");
}

#[test]
fn what_has_none_or_two_is_refused() {
    assert!(of("kind: ConfigMap\n").unwrap_err().starts_with("it has no Deployment"));
    let second = MANIFEST.replace("name: acme}\n  spec:", "name: other}\n  spec:");
    let error = of(&format!("{MANIFEST}---\n{second}")).unwrap_err();
    assert!(error.ends_with("Deployment acme, Deployment other"), "{error}");
    let error = of(&MANIFEST.replace("v1.2.3", "latest")).unwrap().image.unwrap().unwrap_err();
    assert!(error.contains("latest changes by itself"), "{error}");
    let error = of(&MANIFEST.replace("/app/acme", "/bin/sh, -c, exec x")).unwrap_err();
    assert!(error.starts_with("Deployment acme runs a shell"), "{error}");
}

#[test]
fn what_is_secret_or_not_plain_is_left_and_never_shown() {
    let flags = "[--cloud-provider=a, --acme-token=s3cret, --url=https://u:s3cret@h, '--zone=eu west', serve, --to=$(X), \"--x=a\\nb\", -p, \"9\"]";
    let from = MANIFEST.find("args: ").unwrap() + 6;
    let to = from + MANIFEST[from..].find('\n').unwrap();
    let published = of(&format!("{}{flags}{}", &MANIFEST[..from], &MANIFEST[to..])).unwrap();
    assert_eq!(published.arguments, ["--zone=eu west", "--p=9"]);
    let left = published.left.join("\n");
    assert!(!left.contains("s3cret"), "{left}");
    for part in ["--acme-token -> ", "--url -> ", "argument \"serve\" -> ", "--to -> ", "--x -> "] {
        assert!(left.contains(part), "{part}: {left}");
    }
}
