//! What is pure stays pure: it imports no client, no async runtime, no clock, no environment and no files.

use std::fs;

use anyhow::{Context, Result};

use crate::lab::repository;

/// The pure modules of `src/`; ARCHITECTURE.md lists the same.
const PURE: [&str; 14] = [
    "apply/ownership.rs",
    "catalog.rs",
    "embedded.rs",
    "facts.rs",
    "facts/images.rs",
    "facts/tls.rs",
    "object.rs",
    "openshift.rs",
    "plan.rs",
    "plan/substitute.rs",
    "provider.rs",
    "rollout.rs",
    "status.rs",
    "yaml.rs",
];

/// What none of them may name.
const FORBIDDEN: [&str; 9] =
    ["kube::", "tokio", "std::env", "std::fs", "std::net", "std::process", "Instant::now", "SystemTime", "Timestamp"];

#[test]
fn pure_modules_name_nothing_that_is_not() -> Result<()> {
    for module in PURE {
        let text = fs::read_to_string(repository().join("src").join(module)).context(module)?;
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (number, line) in code.enumerate() {
            let found = FORBIDDEN.iter().find(|word| line.contains(*word));
            assert!(found.is_none(), "src/{module}, code line {number}: {line}");
        }
    }
    Ok(())
}

#[test]
fn the_architecture_lists_the_pure_modules() -> Result<()> {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md"))?;
    for module in PURE {
        assert!(text.contains(&format!("`{module}`")), "ARCHITECTURE.md does not name {module}");
    }
    Ok(())
}
