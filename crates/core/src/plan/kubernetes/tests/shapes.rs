//! The work for the plan of an external provider grows with the provider's size, or the provider is refused.

use std::fmt::Write as _;

use super::*;
use crate::{
    plan::kubernetes::objects,
    provider::{Flavor, folder::parsed_providers_of, kubernetes::KubernetesProvider},
    text::work,
};

/// Sizes that the plan could multiply: the files of a provider for a size, and whether ten times the size is too much.
type Shape = (&'static str, fn(usize) -> Vec<(String, String)>, bool);

/// The files of the scaffold, with texts changed in files of the flavor kubernetes.
fn changed(changes: &[(&str, &str, &str)]) -> Vec<(String, String)> {
    let mut files: Vec<_> = embedded::scaffold().into_iter().map(|(path, text)| (path, text.to_owned())).collect();
    for (file, from, to) in changes {
        let path = format!("assets/kubernetes/{file}");
        let (_, text) = files.iter_mut().find(|(known, _)| *known == path).unwrap();
        assert!(text.contains(from), "{from}");
        *text = text.replacen(from, to, 1);
    }
    files
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{}", line(n));
        text
    })
}

/// Several containers with the name of the cloud-controller-manager.
fn containers(count: usize) -> String {
    format!("      containers:\n{}", lines(count, |_| "      - {name: cloud-controller-manager}".to_owned()))
}

const CONTAINERS: &str = "      containers:\n";
const ARGUMENTS: &str = "arguments:\n  cloud-controller-manager:\n";
const VARIABLES: &str = "        env: #= /env\n          - {name: EXAMPLE_SETTING, value: text}\n";
const TOKEN: &str = "    EXAMPLE_TOKEN: token\n";
const BUNDLE: &str = "        - name: trust-bundle\n          mountPath: /etc/ssl/certs\n          readOnly: true\n";

const SHAPES: [Shape; 5] = [
    (
        "variables with a path, and mounts of a volume that is left out",
        |n| {
            let mounts = lines(n, |n| format!("        - {{name: trust-bundle, mountPath: /mnt/{n:05}}}"));
            let variables = lines(n, |n| format!("        - {{name: A{n:05}, value: /mnt/{n:05}/x}}"));
            changed(&[
                ("deployment.yaml", BUNDLE, &mounts),
                ("deployment.yaml", VARIABLES, &format!("        env:\n{variables}")),
            ])
        },
        false,
    ),
    (
        "variables of the manifest and of the descriptor",
        |n| {
            let variables = lines(n, |n| format!("        - {{name: A{n:05}, value: b}}"));
            let set = lines(n, |n| format!("    A{n:05}: {{value: c}}"));
            let set = format!("environment:\n  cloud-controller-manager:\n{set}{ARGUMENTS}");
            changed(&[
                ("deployment.yaml", VARIABLES, &format!("        env:\n{variables}")),
                ("provider.yaml", ARGUMENTS, &set),
            ])
        },
        false,
    ),
    (
        "variables with credentials",
        |n| {
            let variables = lines(n, |n| format!("    A{n:05}: token"));
            changed(&[("provider.yaml", TOKEN, &format!("{TOKEN}{variables}"))])
        },
        false,
    ),
    (
        "variables with credentials, and containers",
        |n| {
            let variables = lines(n, |n| format!("    A{n:05}: token"));
            changed(&[
                ("deployment.yaml", CONTAINERS, &containers(n)),
                ("provider.yaml", TOKEN, &format!("{TOKEN}{variables}")),
            ])
        },
        true,
    ),
    (
        "arguments, and containers",
        |n| {
            let arguments = lines(n, |n| format!("    --a{n:05}: {{value: b}}"));
            changed(&[
                ("deployment.yaml", CONTAINERS, &containers(n)),
                ("provider.yaml", ARGUMENTS, &format!("{ARGUMENTS}{arguments}")),
            ])
        },
        true,
    ),
];

fn read(files: &[(String, String)]) -> Result<KubernetesProvider, crate::provider::Error> {
    let files = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes()));
    parsed_providers_of("example", files).into_iter().find(|one| one.flavor == Flavor::Kubernetes).unwrap().kubernetes()
}

#[test]
fn the_work_for_a_plan_grows_with_the_size_of_the_provider() {
    let asked = json!({
        "cloudConfig": {"configMapRef": {"name": "a", "key": "b"}}, "credentials": {"secretRef": {"name": "s"}},
    });
    let ccm = ccm("example", asked);
    let steps = |files: &[(String, String)]| {
        work::of(|| {
            if let Ok(provider) = read(files) {
                assert!(objects(&provider, &ccm, Some(Digests::default())).is_ok());
            }
        })
    };
    assert!(read(&changed(&[])).is_ok());
    for (name, shape, is_too_much) in SHAPES {
        let (small, large) = (shape(25), shape(250));
        assert!(read(&small).is_ok(), "{name}: {:?}", read(&small).err());
        let refused = read(&large).err().map(|error| error.to_string());
        assert_eq!(refused.is_some(), is_too_much, "{name}: {refused:?}");
        let (small, large) = (steps(&small), steps(&large));
        // Allows for a logarithmic factor.
        assert!(small > 0 && large < 15 * small, "{name}: {small} steps, and {large} for ten times the size");
    }
}
