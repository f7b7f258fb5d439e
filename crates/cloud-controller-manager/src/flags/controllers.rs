//! The value of `--controllers` (pure).

use std::collections::BTreeSet;

use crate::text::suggest::did_you_mean;

/// A controller of k8s.io/cloud-provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    /// Initializes nodes, and keeps their addresses and labels up to date.
    CloudNode,
    /// Taints nodes whose instances are stopped, and deletes nodes whose instances are gone.
    CloudNodeLifecycle,
    /// Load balancers, which drivers do not have.
    Service,
    /// Routes, which drivers do not have.
    Route,
}

impl Controller {
    const ALL: [Self; 4] = [Self::CloudNode, Self::CloudNodeLifecycle, Self::Service, Self::Route];

    /// Its name in the library.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node-controller",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
        }
    }

    /// Its older name, which the library accepts as well.
    pub(crate) const fn alias(self) -> &'static str {
        match self {
            Self::CloudNode => "cloud-node",
            Self::CloudNodeLifecycle => "cloud-node-lifecycle",
            Self::Service => "service",
            Self::Route => "route",
        }
    }

    /// Whether this program has it.
    pub(crate) const fn is_supported(self) -> bool {
        matches!(self, Self::CloudNode | Self::CloudNodeLifecycle)
    }
}

/// The controllers that a command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The controllers to run.
    pub(crate) run: BTreeSet<Controller>,
    /// The controllers that are asked for by name and that this program does not have.
    pub(crate) not_supported: BTreeSet<Controller>,
}

/// Chooses as the library does: the first word about a controller decides, and without one `*` does. Fails if a name is unknown, or if
/// no controller is left that this program has: it would seem to work, and initialize no node. Who excludes each of them by name, and asks
/// for no other, means it: the operator does so to test the credentials. The error describes the problem.
pub(crate) fn choose(words: &[String]) -> Result<Chosen, String> {
    if matches!(words, [only] if only.is_empty()) {
        return Err(no_controller(words));
    }
    let mut is_star = false;
    let mut choices: Vec<(Controller, bool)> = Vec::new();
    for word in words {
        if word == "*" {
            is_star = true;
            continue;
        }
        let name = word.strip_prefix('-').unwrap_or(word);
        let known = Controller::ALL.into_iter().find(|one| [one.name(), one.alias()].contains(&name));
        choices.push((known.ok_or_else(|| unknown(name))?, !word.starts_with('-')));
    }
    let mut chosen = Chosen::default();
    for controller in Controller::ALL {
        let choice = choices.iter().find(|(one, _)| *one == controller);
        let is_on = choice.map_or(is_star, |(_, is_on)| *is_on);
        if is_on && controller.is_supported() {
            chosen.run.insert(controller);
        } else if is_on && choice.is_some() {
            chosen.not_supported.insert(controller);
        }
    }
    let is_excluded = |one: &Controller| choices.contains(&(*one, false));
    let are_all_excluded = Controller::ALL.iter().filter(|one| one.is_supported()).all(is_excluded);
    if chosen.run.is_empty() && !(are_all_excluded && chosen.not_supported.is_empty()) {
        return Err(no_controller(words));
    }
    Ok(chosen)
}

fn no_controller(words: &[String]) -> String {
    let supported = Controller::ALL.into_iter().filter(|one| one.is_supported());
    format!(
        "--controllers={} starts no controller: give * or one of those that this program has, {}",
        words.join(","),
        supported.map(Controller::name).collect::<Vec<_>>().join(" and ")
    )
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = Controller::ALL.iter().flat_map(|one| [one.name(), one.alias()]).collect();
    let hint = did_you_mean(name, names.iter().copied());
    format!("--controllers: there is no controller {name:?}{hint}; the controllers are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_in_the_library() {
        use Controller::{CloudNode, CloudNodeLifecycle, Route, Service};
        let cases: [(&str, &[Controller], &[Controller]); 13] = [
            ("*", &[CloudNode, CloudNodeLifecycle], &[]),
            ("*,service", &[CloudNode, CloudNodeLifecycle], &[Service]),
            ("cloud-node", &[CloudNode], &[]),
            ("cloud-node-controller,cloud-node-lifecycle-controller", &[CloudNode, CloudNodeLifecycle], &[]),
            ("cloud-node-lifecycle,service", &[CloudNodeLifecycle], &[Service]),
            ("*,-service,-route", &[CloudNode, CloudNodeLifecycle], &[]),
            ("-service-lb-controller,*", &[CloudNode, CloudNodeLifecycle], &[]),
            ("*,-cloud-node-lifecycle", &[CloudNode], &[]),
            ("-cloud-node,-cloud-node-lifecycle,-service,-route", &[], &[]),
            ("*,-cloud-node,-cloud-node-lifecycle", &[], &[]),
            ("cloud-node,route", &[CloudNode], &[Route]),
            // The first one decides.
            ("cloud-node,-cloud-node", &[CloudNode], &[]),
            ("-cloud-node,cloud-node-controller,*", &[CloudNodeLifecycle], &[]),
        ];
        for (given, run, not_supported) in cases {
            let words: Vec<_> = given.split(',').map(ToOwned::to_owned).collect();
            let expected =
                Chosen { run: run.iter().copied().collect(), not_supported: not_supported.iter().copied().collect() };
            assert_eq!(choose(&words), Ok(expected), "{given}");
        }
    }

    #[test]
    fn a_program_that_has_none_of_its_controllers_does_not_start() {
        for given in [
            "service,route",
            "route",
            "",
            "-cloud-node,service",
            "-cloud-node,cloud-node-controller",
            "-cloud-node-lifecycle",
            "-service",
            "-cloud-node,-cloud-node-lifecycle,service",
        ] {
            let words: Vec<_> = given.split(',').map(ToOwned::to_owned).collect();
            let error = choose(&words).unwrap_err();
            assert!(error.starts_with(&format!("--controllers={given} starts no controller: give *")), "{error}");
            assert!(error.ends_with("cloud-node-controller and cloud-node-lifecycle-controller"), "{error}");
        }
    }

    #[test]
    fn an_unknown_controller_is_an_error_with_the_known_ones() {
        for (given, hint) in [("cloud-nod", "cloud-node"), ("-servce", "service"), ("", ""), ("nodeipam", "")] {
            let error = choose(&["*".to_owned(), given.to_owned()]).unwrap_err();
            assert!(error.contains(hint) && error.ends_with("node-route-controller, route"), "{error}");
        }
    }
}
