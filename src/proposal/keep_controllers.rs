//! The controllers of an existing cloud-controller-manager (pure).

use std::collections::BTreeMap;

use super::{
    existing::Existing,
    proposed::{Handling, Input, ProposedCcm},
    values::VariableValue,
};
use crate::{
    facts::{Fact, ccm::Controller},
    provider::{
        CCM, FactOrText, Sources,
        kubernetes::{KubernetesProvider, NodeIpam},
    },
    text::boolean,
};

/// The flag that turns the routes of any cloud-controller-manager on. Its default is true.
const ROUTES: &str = "--configure-cloud-routes";

/// The names of the controller that assigns pod subnets to nodes.
const NODE_IPAM: [&str; 3] = ["node-ipam-controller", "node-ipam", "nodeipam"];

/// Keeps or reports which controllers are on.
pub(super) fn controllers(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    provider: &KubernetesProvider,
    input: &Input,
) {
    let mut on = existing.controllers();
    if !has_routes(proposed, existing, provider, input) {
        on.retain(|controller| *controller != Controller::Route);
    }
    let off = switched_off(existing, provider, input);
    on.retain(|controller| !off.contains(controller));
    // A node manager on each node replaces this controller.
    let has_node_manager = provider.descriptor.node_manager.is_some();
    for controller in Controller::ALL {
        let is_on = on.contains(&controller);
        let path = format!("controllers.{}", controller.field());
        match controller {
            Controller::Route if is_on && provider.descriptor.routes.is_none() => proposed.note(
                Handling::Unused,
                "the controller of routes",
                format!("the cloud-controller-manager of provider {} has none", provider.descriptor.name),
            ),
            Controller::Route if is_on => {
                proposed.set(&path, "Enabled");
                proposed.note(Handling::Kept, "the controller of routes", format!("spec.{path}: Enabled"));
            }
            Controller::CloudNodeLifecycle if is_on => proposed.note(
                Handling::Changed,
                "the deletion of nodes whose machines are gone",
                "spec.controllers.cloudNodeLifecycle is Rehearsal: the status names them, and nobody deletes them until you set \
                 Enabled",
            ),
            // The variable that turns it off has a line.
            _ if off.contains(&controller) => {}
            Controller::CloudNode if !is_on && has_node_manager => {}
            Controller::CloudNode | Controller::CloudNodeLifecycle | Controller::Service if !is_on => {
                proposed.set(&path, "Disabled");
                proposed.note(Handling::Kept, format!("{} is off", controller.field()), format!("spec.{path}: Disabled"));
            }
            _ => {}
        }
    }
    let subnets: Vec<_> = existing.flag("cluster-cidr").into_iter().flat_map(|given| given.split(',')).collect();
    let arguments = provider.descriptor.arguments.values().flat_map(BTreeMap::keys);
    if !subnets.is_empty() && arguments.into_iter().any(|flag| flag == "--cluster-cidr") {
        proposed.set("network.podCIDRs", subnets.clone());
        proposed.note(Handling::Kept, format!("--cluster-cidr={}", subnets.join(",")), "spec.network.podCIDRs");
    }
    node_ipam(proposed, existing, provider);
    let named = existing.flag("controllers").unwrap_or("*").split(',').map(str::trim);
    let is_known = |item: &&str| item.starts_with('-') || !Controller::of_argument(Some(item)).is_empty();
    let is_unknown = |item: &&str| !item.is_empty() && !is_known(item) && !NODE_IPAM.contains(item);
    for unknown in named.filter(is_unknown) {
        proposed.note(
            Handling::NotKept,
            format!("the controller {unknown} (--controllers)"),
            "a CloudControllerManager has none of this name: leave it to a cloud-controller-manager with no other controllers",
        );
    }
}

/// Returns the controllers that variables turn off.
fn switched_off(existing: &Existing, provider: &KubernetesProvider, input: &Input) -> Vec<Controller> {
    let switches = provider.descriptor.migration.switches.iter();
    let known = switches.filter_map(|(name, states)| match existing.value(name, input.found) {
        VariableValue::Known(value) => Some(off(states, &value)),
        VariableValue::Absent | VariableValue::Unknown => None,
    });
    known.flatten().collect()
}

/// Returns the controllers that a value of a variable turns off. Hetzner's variables are booleans of Go, Scaleway's a list.
pub(super) fn off(states: &BTreeMap<String, Vec<Controller>>, value: &str) -> Vec<Controller> {
    let is = |state: &str, one: &str| {
        one.eq_ignore_ascii_case(state) || boolean(one).is_some_and(|one| boolean(state) == Some(one))
    };
    let is_given = |state: &str| value.split(',').any(|one| is(state, one));
    states.iter().filter(|(state, _)| is_given(state)).flat_map(|(_, off)| off.iter().copied()).collect()
}

/// Returns the flags or variables of the program whose value says whether there are routes.
fn of_routes(sources: &Sources) -> impl Iterator<Item = &str> {
    let own = sources.get(CCM).into_iter().flatten();
    own.filter(|(_, source)| source.value == FactOrText::Fact(Fact::Routes)).map(|(name, _)| name.as_str())
}

/// Whether the value of a flag or a variable says whether there are routes. [`controllers`] reports these.
pub(super) fn is_of_routes(provider: &KubernetesProvider, name: &str) -> bool {
    let (arguments, environment) = (&provider.descriptor.arguments, &provider.descriptor.environment);
    of_routes(arguments).chain(of_routes(environment)).any(|one| one == name)
}

/// Whether the cloud's own flags and variables leave the routes on. Unlike the flag of the library, such a flag is off unless given,
/// and such a variable is on.
fn has_routes(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider, input: &Input) -> bool {
    let mut switches = Vec::new();
    for flag in of_routes(&provider.descriptor.arguments).filter(|flag| *flag != ROUTES) {
        match existing.flag(flag.trim_start_matches('-')) {
            Some(value) => switches.push((format!("{flag}={value}"), boolean(value))),
            // Only the missing flag keeps such a program from creating routes.
            None if existing.controllers().contains(&Controller::Route) => {
                switches.push((format!("no {flag}"), Some(false)));
            }
            None => {}
        }
    }
    for name in of_routes(&provider.descriptor.environment) {
        match existing.value(name, input.found) {
            VariableValue::Absent => {}
            VariableValue::Unknown => switches.push((format!("variable {name}"), None)),
            VariableValue::Known(value) => {
                let is_on = boolean(&value);
                let shown = is_on.map(|is_on| format!("={is_on}")).unwrap_or_default();
                switches.push((format!("variable {name}{shown}"), is_on));
            }
        }
    }
    let are_on = switches.iter().all(|(_, is_on)| *is_on == Some(true));
    let state = if are_on && existing.controllers().contains(&Controller::Route) { "Enabled" } else { "Disabled" };
    for (what, is_on) in switches {
        if is_on.is_some() {
            proposed.note(Handling::Kept, what, format!("spec.controllers.route: {state}"));
        } else {
            let how = "it turns routes on or off, and the API does not show its value: set spec.controllers.route to Enabled if there are \
                       routes today";
            proposed.note(Handling::NotKept, what, how);
        }
    }
    are_on
}

/// Whether the controller that assigns pod subnets to nodes runs; `None` if the program has none.
pub(super) fn runs_node_ipam(existing: &Existing, provider: &KubernetesProvider) -> Option<bool> {
    let node_ipam = provider.descriptor.node_ipam?;
    let is_asked = existing.flag("allocate-node-cidrs").and_then(boolean) == Some(true);
    let named = || existing.flag("controllers").unwrap_or("*").split(',').map(str::trim);
    let is_named = named().any(|item| item == "*" || NODE_IPAM.contains(&item));
    let is_off = named().any(|item| item.strip_prefix('-').is_some_and(|name| NODE_IPAM.contains(&name)));
    Some(is_asked && (node_ipam == NodeIpam::Flag || (is_named && !is_off)))
}

/// Reports the controller that assigns pod subnets to nodes.
fn node_ipam(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    if existing.flag("allocate-node-cidrs").and_then(boolean) != Some(true) {
        return;
    }
    let (flag, descriptor) = ("--allocate-node-cidrs", &provider.descriptor);
    let what = format!("{flag}=true");
    match runs_node_ipam(existing, provider) {
        None => {
            let how =
                format!("the cloud-controller-manager of provider {} has no controller that reads it", descriptor.name);
            proposed.note(Handling::Unused, what, how);
        }
        Some(false) => proposed.note(Handling::Unused, what, "its controller, node-ipam-controller, is off"),
        Some(true) => {
            let more = descriptor.migration.lost.get(flag).map(|lost| format!(". {lost}")).unwrap_or_default();
            let how = format!(
                "new nodes get no spec.podCIDR, which routes and many network plugins need, unless kube-controller-manager assigns it: \
                 give it {flag}=true, --cluster-cidr and the sizes of --node-cidr-mask-size first{more}"
            );
            proposed.note(Handling::NotKept, format!("{what}, the controller of the nodes' pod subnets"), how);
        }
    }
}
