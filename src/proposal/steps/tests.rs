use serde_json::json;

use super::*;
use crate::{api::placement::Distribution, facts::version::Minor, provider::embedded};

const CLUSTER: Cluster = Cluster { minor: Minor(35), distribution: Distribution::Kubeadm, control_plane_nodes: 3 };

fn existing(kind: &str, name: &str, arguments: &Value, annotations: &Value) -> Existing {
    let pod = json!({"containers": [{"image": "cloud-controller-manager", "args": arguments}]});
    let metadata = json!({"name": name, "namespace": "kube-system", "annotations": annotations});
    let live = json!({"kind": kind, "metadata": metadata, "spec": {"template": {"spec": pod}}});
    let catalog = embedded::catalog().unwrap();
    let descriptors: Vec<_> = catalog.kubernetes().map(|one| &one.descriptor).collect();
    Existing::of(&live, &descriptors).unwrap()
}

fn input<'a>(proposed: &'a ProposedCcm, access: &'a Access) -> StepsInput<'a> {
    StepsInput {
        proposed,
        cluster: CLUSTER,
        folder: Path::new("."),
        has_operator: false,
        operator_namespace: NAME,
        has_namespace: true,
        access,
        flags: "",
    }
}

fn commands(steps: &[Step]) -> Vec<&str> {
    steps.iter().flat_map(|step| &step.commands).map(String::as_str).collect()
}

fn helm(release: &str, namespace: &str) -> Value {
    json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace})
}

#[test]
fn what_others_have_written_is_no_part_of_the_shell() {
    let evil = "x; curl evil|sh\n$ rm -rf /";
    let (proposed, access) =
        (ProposedCcm::new("main", "aws", evil), Access { context: Some(evil.into()), ..Access::default() });
    let mut of_helm = existing("DaemonSet", "a", &json!([]), &json!({}));
    of_helm.helm = Some((evil.into(), evil.into()));
    let told = ["leader-elect-resource-name", "leader-elect-resource-namespace"];
    of_helm.flags.extend(told.map(|flag| (flag.to_owned(), Some(evil.to_owned()))));
    assert!(of_helm.check().unwrap_err().contains("can be the name of no object"));
    let plain = existing("Deployment", evil, &json!(["--leader-elect=false"]), &json!({}));
    let permissions = Permissions {
        objects: vec![json!({"kind": "Role", "metadata": {"name": evil, "namespace": evil}})],
        ..Permissions::default()
    };
    let mut input = input(&proposed, &access);
    input.has_namespace = false;
    for all in [[of_helm.clone()], [plain.clone()]] {
        let InitSteps { next, back, clean_up } = input.migration(&all, &permissions);
        for command in commands(&next).into_iter().chain(commands(&back)).chain(commands(&clean_up)) {
            assert!(!command.contains('\n'), "{command}");
            // The untrusted text occurs only in quotes.
            let bare: String = command.split('\'').step_by(2).collect();
            assert!(!bare.contains("curl") && !bare.contains(['|', ';']), "{command}");
        }
    }
    let nameless = existing("DaemonSet", "a", &json!([]), &helm(evil, "ns"));
    assert_eq!(nameless.helm, None, "no release can be called so");
    assert!(existing("DaemonSet", "a", &json!([]), &helm("ccm", "ns")).check().is_ok());
}

#[test]
fn flags_in_a_title_are_words_of_the_shell() {
    let evil = "x; curl evil|sh\n$ rm -rf /";
    let mut proposed = ProposedCcm::new("main", "aws", "kube-system");
    proposed.set("image.repository", evil);
    proposed.set("leaderElection.leaseName", evil);
    proposed.set("credentials.secretRef.name", evil);
    let access = Access::default();
    let input = StepsInput { has_operator: true, ..input(&proposed, &access) };
    let titles: Vec<_> = input.first(&[]).next.into_iter().map(|step| step.title).collect();
    for flag in ["--image-repositories $'x; ", "--leases $'x; ", "--secrets $'x; "] {
        assert!(titles.iter().any(|title| title.contains(flag)), "{titles:?}");
    }
    for title in &titles {
        let bare: String = title.split('\'').step_by(2).collect();
        assert!(!bare.contains("curl") && !title.contains('\n'), "{title}");
    }
}

#[test]
fn every_command_reaches_the_cluster_that_was_looked_at() {
    let access = Access { context: Some("prod 1".into()), kubeconfig: Some("k".into()), ..Access::default() };
    let mut proposed = ProposedCcm::new("main", "aws", "kube-system");
    proposed.set("credentials.secretRef.name", "aws");
    proposed.skips = Some("other-ccm");
    proposed.secret("aws").put("a", b"b");
    let permissions =
        Permissions { objects: vec![json!({"kind": "Role", "metadata": {"name": "r"}})], ..Permissions::default() };
    let of_helm = existing("DaemonSet", "a", &json!([]), &helm("ccm", "ns"));
    let plain = existing("Deployment", "b", &json!(["--leader-elect=false"]), &json!({}));
    let mut seen = 0;
    for has_operator in [true, false] {
        for all in [[of_helm.clone()], [plain.clone()]] {
            let input = StepsInput { has_operator, ..input(&proposed, &access) };
            let InitSteps { next, back, clean_up } = input.migration(&all, &permissions);
            let first = input.first(&all).next;
            for command in [&next, &back, &clean_up, &first].map(|steps| commands(steps)).concat() {
                let flag = if command.starts_with("helm ") { "--kube-context" } else { "--context" };
                let has_it = command.contains(&format!("--kubeconfig=k {flag}='prod 1'"));
                assert_eq!(has_it, !command.starts_with("ccm-operator render install"), "{command}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn a_release_is_uninstalled_once_and_only_if_nothing_else_is_seen_in_it() {
    let (proposed, access) = (ProposedCcm::new("main", "azure", "kube-system"), Access::default());
    let mut both = ["a", "b"].map(|name| existing("DaemonSet", name, &json!([]), &helm("ccm", "ns")));
    let keys = both.clone().map(|one| one.key()).to_vec();
    for one in &mut both {
        one.of_release.clone_from(&keys);
    }
    let input = input(&proposed, &access);
    let InitSteps { next, back, .. } = input.migration(&both, &Permissions::default());
    let of_helm = |steps| commands(steps).into_iter().filter(|one| one.starts_with("helm ")).collect::<Vec<_>>();
    let [manifest, history] =
        ["helm get manifest ccm --namespace ns", "helm history ccm --namespace ns"].map(str::to_owned);
    assert_eq!(
        of_helm(&next),
        [&manifest, &history, "helm uninstall ccm --namespace ns --keep-history --wait --cascade=foreground"]
    );
    assert_eq!(of_helm(&back), [&history, "helm rollback ccm REVISION --namespace ns"]);

    both[0].of_release.push("Deployment shop/web".into());
    let next = input.migration(&both, &Permissions::default()).next;
    assert_eq!(of_helm(&next), [manifest, history]);
    assert!(next.iter().any(|step| step.title.starts_with("TO DO: ") && step.title.contains("Deployment shop/web")));
}

#[test]
fn without_a_lease_the_operator_runs_before_the_old_one_is_stopped() {
    let mut proposed = ProposedCcm::new("main", "hcloud", "clouds");
    proposed.set("placement.apiServer", json!({"host": "fd00::10", "port": 6443}));
    let (access, old) = (Access::default(), existing("Deployment", "b", &json!(["--leader-elect=F"]), &json!({})));
    let mut input = input(&proposed, &access);
    input.has_namespace = false;
    let next = input.migration(std::slice::from_ref(&old), &Permissions::default()).next;
    let all = commands(&next);
    let at =
        |part: &str| all.iter().position(|command| command.contains(part)).unwrap_or_else(|| panic!("{part}: {all:?}"));
    let order = [
        "kubectl create namespace clouds",
        "kubectl label namespace clouds pod-security.kubernetes.io/enforce=privileged",
        "--namespaces kube-system,clouds --api-server '[fd00::10]:6443'",
        "get lease cluster-cloud-controller-manager-leader",
        "delete deployment b",
        "apply --server-side -f ccm.yaml",
    ];
    assert!(order.map(at).is_sorted(), "{all:?}");

    input.has_namespace = true;
    input.flags = " --provider hcloud";
    input.folder = Path::new("-");
    let first = input.first(&[old]).next;
    assert_eq!(commands(&first)[0], "ccm-operator init --from-existing --provider hcloud --dest-dir ./-/migration");
    assert!(!commands(&first).concat().contains("create namespace"));
}

#[test]
fn two_node_managers_act_until_the_old_one_is_deleted() {
    let (proposed, access) = (ProposedCcm::new("main", "azure", "kube-system"), Access::default());
    let ccm = existing("Deployment", "ccm", &json!([]), &json!({}));
    let mut manager = existing("DaemonSet", "manager", &json!([]), &json!({}));
    manager.is_node_manager = true;
    let input = input(&proposed, &access);
    let titles = |all: &[Existing]| {
        let next = input.migration(all, &Permissions::default()).next;
        next.into_iter().map(|step| step.title).collect::<Vec<_>>().join("\n")
    };
    let alone = titles(std::slice::from_ref(&ccm));
    assert!(alone.contains("nothing acts twice") && !alone.contains("node manager"), "{alone}");
    let both = titles(&[ccm, manager]);
    assert!(!both.contains("nothing acts twice") && both.contains("until the old one is deleted"), "{both}");
}

#[test]
fn a_flag_that_replaces_its_defaults_is_not_printed_as_if_it_added_to_them() {
    let mut proposed = ProposedCcm::new("main", "hcloud", "kube-system");
    proposed.set("credentials.secretRef.name", "own");
    let access = Access::default();
    let input = StepsInput { has_operator: true, ..input(&proposed, &access) };
    let titles: Vec<_> = input.first(&[]).next.into_iter().map(|step| step.title).collect();
    let title = titles.iter().find(|title| title.contains("--secrets own")).unwrap();
    assert!(title.contains("the names that this flag has already"), "{title}");
}
