//! `nodes allow-delete`: a user confirms that a node may be deleted.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    api::{
        CLOUD_CONTROLLER_MANAGER,
        deletion::NodeLabels,
        spec::{Lifecycle, Spec},
    },
    cli::flags::{AnyCluster, print},
    cluster::{
        read::{self, Error},
        request::{self, NO_DEADLINE, api},
    },
    evidence,
    nodes::{
        guard::{self, Entry},
        node::{ALLOW_CONTROL_PLANE, KEEP, Node},
    },
    object::{NODE, condition},
    provider::{catalog::Catalog, owns},
    status::ccm::STALLED,
    text::{mask, output::printable},
};

/// The number of attempts if another client changes the object meanwhile.
const TRIES: usize = 5;

#[derive(Args, Debug)]
pub struct AllowDeleteArgs {
    /// The node.
    pub name: String,

    /// The `CloudControllerManager` of the node's cloud [default: the only one].
    #[arg(long, value_name = "NAME")]
    pub ccm: Option<String>,

    #[command(flatten)]
    pub cluster: AnyCluster,
}

/// Adds the node to the list, unless the rules for deletions would keep it anyway.
pub(super) async fn run(args: &AllowDeleteArgs, catalog: &Catalog) -> anyhow::Result<ExitCode> {
    let (client, name) = (args.cluster.client().await?, args.name.as_str());
    let nodes = read::list(&client, &NODE, "", &kube::api::ListParams::default()).await?;
    let nodes: Vec<_> = nodes.iter().map(Node::of).collect();
    let Some(node) = nodes.iter().find(|node| node.name == name) else {
        bail!("there is no node {name:?}: nothing is left to delete")
    };
    for _ in 0..TRIES {
        let live = ccm(&client, args.ccm.as_deref()).await?;
        let ccm = live["metadata"]["name"].as_str().unwrap_or_default();
        let spec: Spec = serde_json::from_value(live["spec"].clone())
            .with_context(|| format!("failed to parse the CloudControllerManager {ccm}"))?;
        let provider = catalog.kubernetes_of(&spec.provider).map_err(anyhow::Error::msg)?;
        if let Some(why) =
            obstacle(node, &nodes, (&provider.descriptor.nodes.provider_ids, &spec.node_deletion.selector))
        {
            bail!("{name} is not allowed to be deleted: {}", printable(&why));
        }
        // The rules above have it.
        let entry = Entry::of(node).context("its name, uid or the time of its condition Ready cannot be read")?;
        let mut allow = spec.node_deletion.allow.clone();
        if allow.contains(&entry.to_string()) {
            print(&format!("{name} is in spec.nodeDeletion.allow of CloudControllerManager {ccm} already\n"))?;
        } else {
            // An entry for an earlier state of the node is obsolete.
            allow.retain(|other| !other.starts_with(&format!("{}/", entry.node())));
            allow.push(entry.to_string());
            // The resourceVersion of the read keeps entries that another client has added meanwhile.
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
                "spec": {"nodeDeletion": {"allow": allow}},
            }));
            let ccms = api(&client, &CLOUD_CONTROLLER_MANAGER, "");
            match request::send(NO_DEADLINE, ccms.patch(ccm, &PatchParams::default(), &patch)).await {
                Err(cause) if cause.is_conflict() => continue,
                done => done.with_context(|| format!("failed to change the CloudControllerManager {ccm}"))?,
            };
            print(&format!("{name} is now in spec.nodeDeletion.allow of CloudControllerManager {ccm}\n"))?;
        }
        print(&outlook(name, spec.controllers.cloud_node_lifecycle, stalled(&live)))?;
        return Ok(ExitCode::SUCCESS);
    }
    bail!("others have changed the CloudControllerManager {TRIES} times meanwhile; try again")
}

/// Returns the `CloudControllerManager` of this name, or the only one.
async fn ccm(client: &kube::Client, named: Option<&str>) -> anyhow::Result<Value> {
    const NO_KIND: &str = "this cluster has no CloudControllerManagers: deletions of nodes are guarded only with them, and not on OpenShift";
    if let Some(name) = named {
        let live = match read::get(client, &CLOUD_CONTROLLER_MANAGER, "", name).await {
            Err(Error::NotServed(_)) => bail!(NO_KIND),
            live => live?,
        };
        return live.with_context(|| format!("there is no CloudControllerManager {name:?}"));
    }
    let Some(mut all) = evidence::ccms(client).await? else { bail!(NO_KIND) };
    let known: Vec<_> = all.iter().filter_map(|one| one["metadata"]["name"].as_str()).map(ToOwned::to_owned).collect();
    match all.pop() {
        Some(only) if all.is_empty() => Ok(only),
        Some(_) => bail!("there are several CloudControllerManagers: give one with --ccm: {}", known.join(", ")),
        None => bail!(NO_KIND),
    }
}

/// Returns the reason why the rules for deletions would keep a node despite the list.
fn obstacle(node: &Node, nodes: &[Node], (provider_ids, selector): (&[String], &NodeLabels)) -> Option<String> {
    let is_of_cloud = owns(provider_ids, &node.provider_id);
    let (name, id) = (&node.name, mask::message(&node.provider_id));
    match () {
        () if node.is_ready() => Some("it is Ready, so that its machine runs".to_owned()),
        () if !is_of_cloud && id.is_empty() => Some(format!(
            "it has no providerID, so that no cloud can be asked for its machine; `kubectl delete node {name}` deletes it"
        )),
        () if !is_of_cloud => Some(format!("its providerID {id} does not begin with {}", provider_ids.join(" or "))),
        () if node.is_uninitialized() => Some("it waits for its initialization".to_owned()),
        () if node.is_kept => Some(format!("it has the annotation {KEEP}; remove it first")),
        () if (node.is_control_plane || node.is_etcd) && !node.allows_control_plane_deletion => Some(format!(
            "it belongs to the control plane or etcd; `kubectl annotate node {name} {ALLOW_CONTROL_PLANE}=true` allows that"
        )),
        () => guard::fixed_rules(nodes, (provider_ids, selector), node).err().map(|why| why.to_string()),
    }
}

/// Returns the reason why the operator currently does nothing for the object.
fn stalled(live: &Value) -> Option<&str> {
    let stalled = condition(live, STALLED);
    stalled["message"].as_str().filter(|_| stalled["status"] == "True")
}

/// Describes the operator's next action on the node.
fn outlook(name: &str, lifecycle: Lifecycle, stalled: Option<&str>) -> String {
    match (lifecycle, stalled) {
        (Lifecycle::Enabled, Some(why)) => {
            format!("{name} is not deleted while the CloudControllerManager is stalled: {}\n", printable(why))
        }
        (Lifecycle::Enabled, None) => format!(
            "as soon as the cloud-controller-manager asks for it, the operator lets it delete {name}: within about a minute, unless \
             {name} becomes Ready before\n"
        ),
        (Lifecycle::Rehearsal, _) => format!(
            "{name} is not deleted: spec.controllers.cloudNodeLifecycle is Rehearsal; with Enabled it would be\n"
        ),
        (Lifecycle::Disabled, _) => format!(
            "{name} is not deleted: spec.controllers.cloudNodeLifecycle is Disabled, so that nobody asks the cloud\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::node::{Ready, UNINITIALIZED};

    #[test]
    fn nothing_is_promised_for_an_object_that_is_stalled() {
        let of = |status: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "message": "no"},
                {"type": "Stalled", "status": status, "message": "spec.image: bad"},
            ]}})
        };
        assert_eq!(stalled(&of("False")), None);
        assert_eq!(stalled(&json!({})), None);
        let text = outlook("a", Lifecycle::Enabled, stalled(&of("True")));
        assert_eq!(text, "a is not deleted while the CloudControllerManager is stalled: spec.image: bad\n");
        assert!(outlook("a", Lifecycle::Enabled, None).contains("within about a minute"));
    }

    #[test]
    fn a_node_that_the_rules_would_keep_is_not_put_on_the_list() {
        let prefixes = ["hcloud://".to_owned(), "hrobot://".to_owned()];
        let gone = Node {
            name: "a".into(),
            provider_id: "hcloud://1".into(),
            uid: "1-a".into(),
            ready: Some(Ready { status: "Unknown".into(), since: "2026-01-01T00:00:00Z".into(), ..Ready::default() }),
            ..Node::default()
        };
        let server = Node {
            is_control_plane: true,
            ready: Some(Ready { status: "True".into(), ..Ready::default() }),
            ..Node::default()
        };
        let nodes = [server];
        let selector = NodeLabels::default();
        let obstacle = |node: &Node| obstacle(node, &nodes, (&prefixes, &selector));
        assert_eq!(obstacle(&gone), None);
        let robot = Node { provider_id: "hrobot://1".into(), ..gone.clone() };
        assert_eq!(obstacle(&robot), None);
        let allowed = Node { is_control_plane: true, allows_control_plane_deletion: true, ..gone.clone() };
        assert_eq!(obstacle(&allowed), None);
        for (node, why) in [
            (Node { ready: Some(Ready { status: "True".into(), ..Ready::default() }), ..gone.clone() }, "it is Ready"),
            (Node { provider_id: String::new(), ..gone.clone() }, "it has no providerID"),
            (Node { provider_id: "aws:///i-1".into(), ..gone.clone() }, "does not begin with hcloud:// or hrobot://"),
            (Node { taints: vec![UNINITIALIZED.into()], ..gone.clone() }, "waits for its initialization"),
            (Node { is_kept: true, ..gone.clone() }, KEEP),
            (Node { is_control_plane: true, ..gone.clone() }, ALLOW_CONTROL_PLANE),
            (Node { is_etcd: true, ..gone.clone() }, ALLOW_CONTROL_PLANE),
            (Node { ready: None, ..gone.clone() }, "its kubelet has never reported"),
        ] {
            let obstacle = obstacle(&node).unwrap_or_default();
            assert!(obstacle.contains(why), "{obstacle:?}");
        }
        let last = super::obstacle(&allowed, &[], (&prefixes, &selector)).unwrap_or_default();
        assert!(last.contains("no other node of the control plane is ready"), "{last}");
    }
}
