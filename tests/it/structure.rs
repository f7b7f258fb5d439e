//! The structure of the source tree: layers that import only layers above them, IO only in files whose names say so, no
//! import cycles. ARCHITECTURE.md describes the same layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::lab::repository;

/// A top-level module of a crate, in the order of data flow.
struct Layer {
    name: &'static str,
    /// The folder of the crate's sources.
    sources: &'static str,
    /// Whether only the files in [`IO_FILES`] may do IO.
    is_pure: bool,
}

const BASE: &str = "crates/base/src";
const CORE: &str = "crates/core/src";
const KIT: &str = "crates/kit/src";
const DRIVERS: &str = "crates/drivers/src";
const OPERATOR: &str = "src";

/// The crates whose modules are layers.
const LAYERED: [&str; 5] = [BASE, CORE, KIT, DRIVERS, OPERATOR];

/// The programs that use drivers, and their table. They and each driver are small enough to have no layers.
const ALL_DRIVERS: &str = "crates/all-drivers/src";
const CCM_CLOUD: &str = "crates/ccm-cloud/src";
const CLOUD_CONTROLLER_MANAGER: &str = "crates/cloud-controller-manager/src";

/// The sources of single drivers.
fn drivers() -> Result<Vec<String>> {
    let folders = fs::read_dir(repository().join("crates"))?.collect::<Result<Vec<_>, _>>()?;
    let names = folders.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with("driver-")).map(|name| format!("crates/{name}/src")).collect())
}

/// The sources that have no layers.
fn without_layers() -> Result<Vec<String>> {
    let mut all = drivers()?;
    ensure!(all.len() > 1, "{all:?}");
    all.extend([ALL_DRIVERS, CCM_CLOUD, CLOUD_CONTROLLER_MANAGER].map(str::to_owned));
    Ok(all)
}

const fn pure(name: &'static str, sources: &'static str) -> Layer {
    Layer { name, sources, is_pure: true }
}

const fn io(name: &'static str, sources: &'static str) -> Layer {
    Layer { name, sources, is_pure: false }
}

/// A layer imports only layers above it in this list.
const LAYERS: [Layer; 25] = [
    pure("version", BASE),
    pure("error", BASE),
    pure("grace", BASE),
    io("files", BASE),
    pure("object", BASE),
    pure("text", BASE),
    pure("api", CORE),
    pure("facts", CORE),
    pure("config", CORE),
    pure("provider", CORE),
    pure("plan", CORE),
    pure("nodes", CORE),
    io("cluster", KIT),
    io("process", KIT),
    pure("settings", DRIVERS),
    pure("contract", DRIVERS),
    io("middleware", DRIVERS),
    io("conformance", DRIVERS),
    pure("apply", OPERATOR),
    io("evidence", OPERATOR),
    pure("preflight", OPERATOR),
    pure("proposal", OPERATOR),
    pure("status", OPERATOR),
    io("controllers", OPERATOR),
    io("cli", OPERATOR),
];

/// In a pure layer the files of these names do IO, and no others.
const IO_FILES: [&str; 3] = ["read", "write", "dry_run"];

/// Paths that pure code neither imports nor names.
const IO_PATHS: [&str; 14] = [
    "kube::",
    "tokio::",
    "axum::",
    "std::fs",
    "std::env",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "Timestamp::now",
    "tempfile::",
    "rustix::",
];

/// A source file of one of the crates.
struct Module {
    /// The path in the crate, such as `text::yaml`.
    path: String,
    /// The imports, flattened: `crate::text::yaml`, `std::fs`.
    imports: Vec<String>,
    code: String,
    lines: usize,
}

impl Module {
    fn layer(&self) -> &str {
        self.path.split("::").next().unwrap_or_default()
    }

    /// Whether the module may do IO.
    fn is_io(&self) -> bool {
        let is_pure = LAYERS.iter().any(|layer| layer.name == self.layer() && layer.is_pure);
        !is_pure || IO_FILES.contains(&self.path.rsplit("::").next().unwrap_or_default())
    }
}

/// The code of a file: without comments, and without the tests at its end.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Every path that a use statement imports.
fn flatten(prefix: &str, tree: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        if !tree.is_empty() {
            into.push(format!("{prefix}{tree}"));
        }
        return;
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&format!("{prefix}{head}"), inner.get(start..at).unwrap_or_default(), into);
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn imports_of(path: &str, code: &str) -> Vec<String> {
    let statements = code.split(';').filter_map(|statement| {
        let statement = statement.trim_start().trim_start_matches('}').trim_start();
        let statement = statement.strip_prefix("pub ").unwrap_or(statement);
        let statement = statement.strip_prefix("pub(crate) ").unwrap_or(statement);
        statement.strip_prefix("use ")
    });
    let mut imports = Vec::new();
    for statement in statements {
        flatten("", &statement.split_whitespace().collect::<Vec<_>>().join(" "), &mut imports);
    }
    // Paths in the code are imports, too.
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let inline = code.match_indices("crate::").map(|(at, _)| &code[at..]);
    imports.extend(inline.map(|text| text.split(ends).next().unwrap_or_default().trim_end_matches(':').to_owned()));
    // `super` is the parent, one for each time that it is written.
    let imports: BTreeSet<_> = imports.into_iter().map(|import| absolute(path, &import)).collect();
    imports.into_iter().collect()
}

fn absolute(path: &str, import: &str) -> String {
    let mut parents: Vec<&str> = path.split("::").collect();
    let mut rest = import;
    let mut is_relative = false;
    while let Some(inner) = rest.strip_prefix("super::") {
        parents.pop();
        (rest, is_relative) = (inner, true);
    }
    if is_relative { format!("crate::{}::{rest}", parents.join("::")) } else { import.to_owned() }
}

fn collect(folder: &Path, prefix: &str, modules: &mut Vec<Module>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}::"), modules)?;
        } else if let Some(stem) = name.strip_suffix(".rs").filter(|stem| !["lib", "main", "tests"].contains(stem)) {
            let path = format!("{prefix}{stem}");
            let text = fs::read_to_string(entry.path())?;
            let code = code_of(&text);
            modules.push(Module { imports: imports_of(&path, &code), path, code, lines: text.lines().count() });
        }
    }
    Ok(())
}

/// The modules of all layers.
fn modules() -> Result<Vec<Module>> {
    modules_of(&LAYERED)
}

fn modules_of(crates: &[impl AsRef<str>]) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for sources in crates {
        collect(&repository().join(sources.as_ref()), "", &mut modules)?;
    }
    // What only tests use.
    let tested: Vec<String> = modules.iter().flat_map(only_for_tests).collect();
    modules.retain(|module| !tested.contains(&module.path));
    modules.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(modules)
}

fn only_for_tests(module: &Module) -> Vec<String> {
    let after = module.code.split("#[cfg(test)]").skip(1);
    let names = after.filter_map(|text| text.trim_start().strip_prefix("mod ")?.split(';').next());
    names.map(|name| format!("{}::{name}", module.path)).collect()
}

/// The module that an import is from: the longest path that is a file.
fn imported<'a>(import: &str, modules: &'a [Module]) -> Option<&'a Module> {
    let path = import.strip_prefix("crate::")?;
    let fits = |module: &&Module| path == module.path || path.starts_with(&format!("{}::", module.path));
    modules.iter().filter(fits).max_by_key(|module| module.path.len())
}

fn is_inside(inner: &str, outer: &str) -> bool {
    inner == outer || inner.starts_with(&format!("{outer}::"))
}

#[test]
fn a_layer_imports_only_layers_above_it() -> Result<()> {
    let position = |name: &str| LAYERS.iter().position(|layer| layer.name == name);
    for module in modules()? {
        let own = position(module.layer()).with_context(|| format!("{} is in no layer", module.path))?;
        for import in module.imports.iter().filter_map(|import| import.strip_prefix("crate::")) {
            let layer = import.split("::").next().unwrap_or_default();
            let above = position(layer).with_context(|| format!("{} imports {import}, of no layer", module.path))?;
            assert!(above <= own, "{} imports {import}, of a layer below", module.path);
        }
    }
    Ok(())
}

#[test]
fn the_crates_and_the_architecture_list_the_layers_in_this_order() -> Result<()> {
    let listed = LAYERS.map(|layer| layer.name);
    for sources in LAYERED {
        let library = fs::read_to_string(repository().join(sources).join("lib.rs"))?;
        let modules = library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        let layers = LAYERS.iter().filter(|layer| layer.sources == sources).map(|layer| layer.name);
        assert_eq!(modules.collect::<Vec<_>>(), layers.collect::<Vec<_>>(), "{sources}");
    }
    let architecture = fs::read_to_string(repository().join("ARCHITECTURE.md"))?;
    let rows = architecture.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let described: Vec<_> = rows.filter(|name| listed.contains(name)).collect();
    assert_eq!(described, listed, "ARCHITECTURE.md");
    Ok(())
}

/// The names under `[dependencies]` in a crate's Cargo.toml.
fn dependencies(sources: &str) -> Result<BTreeSet<String>> {
    let manifest = fs::read_to_string(repository().join(sources).join("../Cargo.toml"))?;
    let (_, after) = manifest.split_once("[dependencies]\n").context("no dependencies")?;
    let names =
        after.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['.', ' ']).next());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Cargo proves what a crate cannot do by what it does not depend on.
#[test]
fn neither_the_base_nor_the_core_has_a_client_or_a_runtime() -> Result<()> {
    let (base, core) = (dependencies(BASE)?, dependencies(CORE)?);
    for absent in ["kube", "tokio", "futures", "hyper", "hyper-util", "axum", "tower", "rustls", "ccm-kit"] {
        assert!(!base.contains(absent) && !core.contains(absent), "{absent}");
        assert!(dependencies(KIT)?.contains(absent) || absent == "ccm-kit", "{absent} is no name of a dependency");
    }
    let ours = |names: BTreeSet<String>| names.into_iter().filter(|name| name.starts_with("ccm-")).collect::<Vec<_>>();
    assert_eq!(ours(base), [""; 0]);
    assert_eq!(ours(core), ["ccm-base"]);
    assert_eq!(ours(dependencies(KIT)?), ["ccm-base"]);
    Ok(())
}

/// The operator makes no instances, and a driver needs no API server.
#[test]
fn the_operator_depends_on_no_driver_and_a_driver_on_nothing_of_the_operator() -> Result<()> {
    let ours = |sources: &str| -> Result<Vec<String>> {
        Ok(dependencies(sources)?
            .into_iter()
            .filter(|name| name.starts_with("ccm-") || name.starts_with("cloud-"))
            .collect())
    };
    assert_eq!(ours(OPERATOR)?, ["ccm-base", "ccm-core", "ccm-kit"]);
    assert_eq!(ours(DRIVERS)?, ["ccm-base"]);
    for driver in drivers()? {
        assert_eq!(ours(&driver)?, ["ccm-base", "ccm-drivers"], "{driver}");
    }
    // The guard of nodes is in the core, so the cloud-controller-manager may have it, and the operator itself nobody.
    for (program, core) in [(ALL_DRIVERS, false), (CCM_CLOUD, false), (CLOUD_CONTROLLER_MANAGER, true)] {
        let ours = ours(program)?;
        assert_eq!(ours.iter().any(|name| name == "ccm-core"), core, "{program}: {ours:?}");
        assert!(!ours.iter().any(|name| name.starts_with("cloud-")), "{program}: {ours:?}");
    }
    for absent in ["kube", "hyper", "hyper-util", "rustls", "axum", "ccm-kit"] {
        assert!(!dependencies(DRIVERS)?.contains(absent), "the contract has no client: {absent}");
    }
    Ok(())
}

/// The table of dependencies is shared: a feature that a driver adds there would be compiled into the operator, too.
#[test]
fn the_operator_is_compiled_of_these_crates_with_these_features() -> Result<()> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "--package=cloud-controller-manager-operator", "--edges=normal"]);
    let output = tree.args(["--prefix=none", "--format={lib} {f}"]).current_dir(repository()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let lines: BTreeSet<_> = text.lines().map(|line| line.trim_end().trim_end_matches(" (*)").trim_end()).collect();
    insta::assert_snapshot!("operator_crates", lines.into_iter().collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// The words of this product that a crate for any process with controllers does not know.
#[test]
fn the_kit_knows_no_cloud_and_no_product() -> Result<()> {
    for module in modules()?.iter().filter(|module| ["cluster", "process"].contains(&module.layer())) {
        for word in ["CloudControllerManager", "ccm_operator", "ccm-operator", "OpenShift", "openshift"] {
            assert!(!module.code.contains(word), "{} names {word}", module.path);
        }
    }
    Ok(())
}

#[test]
fn pure_code_does_no_io() -> Result<()> {
    let modules = modules()?;
    for module in modules.iter().filter(|module| !module.is_io()) {
        for import in &module.imports {
            let does_io = IO_PATHS.iter().any(|path| format!("{import}::").starts_with(path));
            assert!(!does_io, "{} is pure and imports {import}", module.path);
            let io = imported(import, &modules).filter(|imported| imported.is_io());
            assert!(io.is_none(), "{} is pure and imports {import}, which does IO", module.path);
        }
        let named = IO_PATHS.iter().find(|path| module.code.contains(&format!(" {path}")));
        assert_eq!(named, None, "{} is pure", module.path);
    }
    Ok(())
}

#[test]
fn imports_form_no_cycle() -> Result<()> {
    form_no_cycle(&modules()?);
    for sources in without_layers()? {
        form_no_cycle(&modules_of(&[sources])?);
    }
    Ok(())
}

fn form_no_cycle(modules: &[Module]) {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for module in modules {
        let targets = module.imports.iter().filter_map(|import| imported(import, modules));
        // To other modules, a parent and its children are one module.
        let others =
            targets.filter(|other| !is_inside(&module.path, &other.path) && !is_inside(&other.path, &module.path));
        edges.insert(&module.path, others.map(|other| other.path.as_str()).collect());
    }
    // A module that imports only settled ones is settled. Modules that are left form a cycle, or import one.
    loop {
        let settled: Vec<&str> =
            edges.iter().filter(|(_, targets)| targets.is_empty()).map(|(path, _)| *path).collect();
        if settled.is_empty() {
            break;
        }
        edges.retain(|path, _| !settled.contains(path));
        for targets in edges.values_mut() {
            targets.retain(|target| !settled.contains(target));
        }
    }
    assert!(edges.is_empty(), "{edges:#?}");
}

/// The words that only one layer may use: OpenShift's documents, and the object that holds the status.
const ONLY_IN: [(&str, &str); 2] = [("facts", "facts::openshift"), ("status", "ClusterOperator")];

#[test]
fn only_one_layer_names_the_documents_and_only_one_the_status_object() -> Result<()> {
    for (layer, word) in ONLY_IN {
        for module in modules()?.iter().filter(|module| module.layer() != layer) {
            let names_it = |text: &str| text.contains(word);
            let import = module.imports.iter().find(|import| names_it(import));
            assert_eq!(import, None, "{} names {word}", module.path);
            let line = module.code.lines().find(|line| names_it(line));
            assert_eq!(line, None, "{} names {word}", module.path);
        }
    }
    Ok(())
}

/// A status says of objects that they are applied only if an executor has worked through them.
#[test]
fn only_the_executor_proves_that_objects_are_as_planned() -> Result<()> {
    let modules = modules()?;
    let proving = modules.iter().filter(|module| module.code.contains("Settled::after_pass"));
    assert_eq!(proving.map(|module| module.path.as_str()).collect::<Vec<_>>(), ["controllers::executor"]);
    Ok(())
}

/// The declarations of types and statics in a file, each with its body.
fn declarations(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in code.lines() {
        let words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
        let words: Vec<_> = words.skip_while(|word| word.ends_with(')')).collect();
        let begins = matches!(words.as_slice(), ["struct" | "enum" | "static" | "type", ..])
            || matches!(words.as_slice(), ["const", name, ..] if *name != "fn");
        if begins && !is_open {
            found.push(String::new());
            is_open = true;
        }
        if let Some(declaration) = found.last_mut().filter(|_| is_open) {
            *declaration += line;
            let count = |bracket| declaration.matches(bracket).count();
            is_open = count('{') != count('}') || !line.ends_with([';', '}']);
        }
    }
    found
}

/// A target holds all connections to one API server, so that a process may have several targets.
#[test]
fn in_the_controllers_only_a_target_keeps_a_client() -> Result<()> {
    let keeps_client = |declaration: &String| {
        let mut words = declaration.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|word| ["Client", "Api"].contains(&word))
    };
    let modules = modules()?;
    let controllers = modules.iter().filter(|module| module.layer() == "controllers");
    let keeping = controllers.filter(|module| declarations(&module.code).iter().any(keeps_client));
    assert_eq!(keeping.map(|module| module.path.as_str()).collect::<Vec<_>>(), ["controllers::target"]);
    Ok(())
}

#[test]
fn declarations_are_those_of_types_and_statics() {
    let code = "pub(super) struct A {\n    b: Option<kube::Client>,\n}\nfn f(\n    c: Client,\n) {\n}\nstruct D(Api<E>);\n\
                enum F {\n    G { h: u8 },\n}\nimpl A {\n    const I: u8 = 1;\n    const fn j() {}\n}\nstatic K: L = L {};\n";
    let expected = [
        "pub(super) struct A {    b: Option<kube::Client>,}",
        "struct D(Api<E>);",
        "enum F {    G { h: u8 },}",
        "    const I: u8 = 1;",
        "static K: L = L {};",
    ];
    assert_eq!(declarations(code), expected);
}

/// Every file of the repository, by its path, without what Git ignores.
fn files() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![repository().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(entry.path());
                }
                continue;
            }
            found.push(entry.path().strip_prefix(repository())?.display().to_string());
        }
    }
    Ok(found)
}

/// Whether a path fits a pattern in which `*` stands for any text.
fn fits(path: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => path == pattern,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            (0..=path.len()).filter(|at| path.is_char_boundary(*at)).any(|at| fits(&path[at..], rest))
        }),
    }
}

/// A page may name a file of a crate by its layer, and a file of the section's folder by its name alone.
fn is_named(file: &str, path: &str) -> bool {
    let pattern = path.replace("<cloud>", "*").replace("<name>", "*").replace('…', "*");
    let pattern = if pattern.ends_with('/') { format!("{pattern}*") } else { pattern };
    let in_crate = LAYERED.iter().find_map(|sources| file.strip_prefix(sources)?.strip_prefix('/'));
    let name = file.rsplit('/').next().filter(|_| !pattern.contains('/'));
    [Some(file), in_crate, name].into_iter().flatten().any(|file| fits(file, &pattern))
}

/// The single words of a text that are quoted as code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(char::is_whitespace))
}

#[test]
fn the_paths_in_the_guides_of_contributors_exist() -> Result<()> {
    let files = files()?;
    let mut paths = 0;
    for guide in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(repository().join(guide))?;
        for path in quoted(&text) {
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
            let is_file = ["rs", "md", "yaml", "toml", "json", "sh"].contains(&extension);
            if is_file || path.ends_with('/') {
                assert!(files.iter().any(|file| is_named(file, path)), "{guide}: {path} does not exist");
                paths += 1;
            }
        }
    }
    assert!(paths > 100, "{paths}");
    Ok(())
}

#[test]
fn the_names_of_code_where_a_change_goes_exist() -> Result<()> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let modules = modules()?;
    let words: BTreeSet<_> = modules.iter().flat_map(|module| module.code.split(|c| !is_part(c))).collect();
    let architecture = fs::read_to_string(repository().join("ARCHITECTURE.md"))?;
    let (_, section) = architecture.split_once("\n## Where a change goes\n").context("no section")?;
    let (section, _) = section.split_once("\n## ").context("no end of the section")?;
    let is_item = |name: &&str| {
        let is_code = name.contains(['_', ':']) || name.starts_with(|c: char| c.is_ascii_uppercase());
        is_code && name.chars().all(|c| is_part(c) || c == ':') && !name.starts_with("ccm_operator")
    };
    for item in quoted(section).filter(is_item) {
        let name = item.rsplit(':').next().unwrap_or_default();
        assert!(words.contains(name), "ARCHITECTURE.md names {item}, which no code has");
    }
    Ok(())
}

#[test]
fn no_file_has_more_than_400_lines() -> Result<()> {
    let all: Vec<_> = LAYERED.map(str::to_owned).into_iter().chain(without_layers()?).collect();
    let longest = modules_of(&all)?.into_iter().map(|module| (module.lines, module.path)).max();
    assert!(longest.as_ref().is_some_and(|(lines, _)| *lines <= 400), "{longest:?}");
    Ok(())
}

#[test]
fn imports_are_read_as_rust_reads_them() {
    let code = "use super::a::{b, c::{self, D}};\npub use crate::x;\nuse std::{fs, io};\nfn f() { crate::y::z() }\n";
    let expected = "crate::one::a::b crate::one::a::c::D crate::one::a::c::self crate::x crate::y::z std::fs std::io";
    assert_eq!(imports_of("one::two", code).join(" "), expected);
}
