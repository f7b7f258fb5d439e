//! What is pure stays pure: it imports no client, no async runtime, no clock, no environment and no files.

use std::{fs, path::Path};

use anyhow::Result;

use crate::lab::repository;

/// The modules of `src/` that may do IO; every other one is pure. ARCHITECTURE.md says the same.
const IO: [&str; 35] = [
    "apply.rs",
    "apply/error.rs",
    "azure_credentials/files.rs",
    "bundle/folder.rs",
    "cli.rs",
    "cli/controllers.rs",
    "client.rs",
    "reader.rs",
    "controllers.rs",
    "controllers/applying.rs",
    "controllers/authority.rs",
    "controllers/backoff.rs",
    "controllers/cloud_config.rs",
    "controllers/cluster.rs",
    "controllers/dry_run.rs",
    "controllers/images_file.rs",
    "controllers/operator.rs",
    "controllers/syncer.rs",
    "controllers/trusted_ca.rs",
    "events.rs",
    "diff/cluster.rs",
    "facts/files.rs",
    "lease.rs",
    "lib.rs",
    "look.rs",
    "main.rs",
    "observe.rs",
    "render.rs",
    "report/read.rs",
    "run.rs",
    "server.rs",
    "status/write.rs",
    "telemetry.rs",
    "verify/cluster.rs",
    "watch.rs",
];

/// What a pure module never names: the client, the runtime, the environment, files, processes, the network, the clock.
const FORBIDDEN: [&str; 12] = [
    "kube::",
    "tokio",
    "env::",
    "env,",
    "fs::",
    "fs,",
    "net::",
    "process::",
    "Instant",
    "SystemTime",
    "Timestamp::",
    "File::",
];

fn modules(folder: &Path, prefix: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(modules(&entry.path(), &format!("{name}/"))?);
        } else if !name.ends_with("tests.rs") {
            found.push(name);
        }
    }
    Ok(found)
}

fn pure_modules() -> Result<Vec<String>> {
    let mut all = modules(&repository().join("src"), "")?;
    assert!(IO.iter().all(|module| all.iter().any(|other| other == module)), "IO names a module that is not there");
    all.retain(|module| !IO.contains(&module.as_str()));
    Ok(all)
}

#[test]
fn pure_modules_name_nothing_that_is_not() -> Result<()> {
    for module in pure_modules()? {
        let text = fs::read_to_string(repository().join("src").join(&module))?;
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            // An address is data.
            let named = line.replace("std::net::IpAddr", "");
            let found = FORBIDDEN.iter().find(|word| named.contains(*word));
            assert!(found.is_none(), "src/{module}:{}: {line}", number + 1);
        }
    }
    Ok(())
}

#[test]
fn the_architecture_lists_the_pure_modules() -> Result<()> {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md"))?;
    for module in pure_modules()? {
        assert!(text.contains(&format!("`{module}`")), "ARCHITECTURE.md does not name {module}");
    }
    Ok(())
}
