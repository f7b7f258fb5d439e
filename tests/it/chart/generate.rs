//! Writes the chart from the objects of `install/`: each file is filled in with tokens where the values of the chart enter, and
//! once for each value that adds lines. So the chart has what `render` prints, comments included.

mod pods;
mod readme;

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    api::placement::{ApiServer, Distribution},
    plan::{
        install::{Installation, external::CarriedProviders},
        limits::Limits,
    },
    provider::{catalog::Catalog, embedded, kubernetes::KubernetesProvider},
    text::yaml,
};
use serde_json::{Value, json};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::lab::repository;

/// The chart's folder.
pub(super) const CHART: &str = "charts/ccm-operator";

pub(super) const GENERATED: &str = "Generated from install/ by `make generate`.";

/// The argument with the managed namespaces.
const NAMESPACES: &str = "--namespaces=namespaces-of-the-chart";

/// The argument with the names of `CloudControllerManager`s.
const NAMES: &str = "--names=name-of-the-chart";

/// The texts in the files that a value of the chart replaces, and the template for each.
const TOKENS: [(&str, &str); 13] = [
    (NAMESPACES, "--namespaces={{ join \",\" $.Values.namespaces }}"),
    (NAMES, pods::NAMED),
    ("[leases-of-the-chart]", "{{ toJson . }}"),
    ("leases-of-the-chart", "{{ join \",\" . }}"),
    ("repositories-of-the-chart", "{{ join \",\" . }}"),
    ("mirrors-of-the-chart", "{{ . }}"),
    ("pull-secrets-of-the-chart", "{{ join \",\" . }}"),
    ("namespaces-of-the-chart", "{{ . | quote }}"),
    ("operator-namespace-of-the-chart", "{{ $.Release.Namespace | quote }}"),
    ("image-of-the-chart", "{{ include \"ccm-operator.image\" $ | quote }}"),
    ("[secrets-of-the-chart]", "{{ . }}"),
    ("host-of-the-chart", "{{ .host | quote }}"),
    ("\"65001\"", "{{ .port | toString | quote }}"),
];

/// Lines that a value adds, or that replace others, and what stands around them.
struct Variant<'a> {
    installation: Installation<'a>,
    /// Only changes with this text.
    with: &'static str,
    open: &'static str,
    /// Whether the template contains the lines themselves.
    is_verbatim: bool,
}

/// An installation without any provider, that has tokens for its values.
pub(super) fn base<'a>() -> Installation<'a> {
    Installation {
        providers: Vec::new(),
        namespaces: vec!["namespaces-of-the-chart".into()],
        operator_namespace: "operator-namespace-of-the-chart".into(),
        secrets: Vec::new(),
        image: Some("image-of-the-chart".into()),
        distribution: Distribution::Other,
        control_plane_nodes: 3,
        api_server: None,
        node_deletion: false,
        expose_metrics: false,
        metrics_certificate: None,
        limits: Limits { names: vec!["name-of-the-chart".into()], ..Limits::default() },
        external: CarriedProviders::default(),
    }
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn variants(any: &KubernetesProvider) -> [Variant<'_>; 11] {
    let variant = |installation, open| Variant { installation, with: "", open, is_verbatim: true };
    let limited = |change: fn(&mut Limits, Vec<String>), token: &str| {
        let mut installation = base();
        change(&mut installation.limits, vec![token.to_owned()]);
        installation
    };
    let api_server = Some(ApiServer { host: "host-of-the-chart".into(), port: 65001 });
    [
        Variant {
            is_verbatim: false,
            ..variant(Installation { providers: vec![any], ..base() }, "include \"ccm-operator.rules\"")
        },
        variant(
            limited(|limits, list| limits.image_repositories = list, "repositories-of-the-chart"),
            "with $.Values.imageRepositories",
        ),
        variant(
            limited(|limits, list| limits.registry_mirrors = list, "mirrors-of-the-chart"),
            "with include \"ccm-operator.mirrors\" $",
        ),
        variant(
            limited(|limits, list| limits.image_pull_secrets = list, "pull-secrets-of-the-chart"),
            "with $.Values.imagePullSecrets",
        ),
        variant(limited(|limits, list| limits.leases = list, "leases-of-the-chart"), "with $.Values.leases"),
        variant(
            Installation { expose_metrics: true, ..base() },
            "if or $.Values.exposeMetrics $.Values.serviceMonitor.enabled",
        ),
        variant(Installation { node_deletion: true, ..base() }, "if $.Values.nodeDeletion"),
        variant(
            Installation { secrets: vec!["secrets-of-the-chart".into()], ..base() },
            "with include \"ccm-operator.secrets\" $",
        ),
        variant(Installation { api_server, ..base() }, "with include \"ccm-operator.apiServer\" $ | fromYaml"),
        Variant {
            with: "requiredDuringSchedulingIgnoredDuringExecution",
            ..variant(
                Installation { distribution: Distribution::K3s, ..base() },
                "if and (eq $.Values.distribution \"k3s\") (not $.Values.apiServer.host) (gt (int $.Values.controlPlaneNodes) 0)",
            )
        },
        variant(Installation { control_plane_nodes: 1, ..base() }, "if eq (int $.Values.controlPlaneNodes) 1"),
    ]
}

/// A file of `install/` as a template.
fn template(file: &str, any: &KubernetesProvider) -> Result<String> {
    // A list that was written again has no quotes around it.
    let filled = |installation: &Installation<'_>| {
        let text = installation.of(file)?;
        let unquoted = |text: String, argument: &str| text.replace(&format!("\"{argument}\""), argument);
        anyhow::Ok([NAMESPACES, NAMES].into_iter().fold(text, unquoted))
    };
    let plain = filled(&base())?;
    ensure!(!plain.contains("{{"), "{plain}");
    let lines: Vec<&str> = plain.split_inclusive('\n').collect();
    // What stands before each line, and instead of it.
    let mut before = vec![String::new(); lines.len() + 1];
    let mut instead: BTreeMap<usize, String> = BTreeMap::new();
    let mut around = None;
    for variant in variants(any) {
        let text = filled(&variant.installation)?;
        let open = variant.open;
        if text.is_empty() {
            around = Some(open.replace("if eq", "if ne"));
            continue;
        }
        let other: Vec<&str> = text.split_inclusive('\n').collect();
        for change in capture_diff_slices(Algorithm::Myers, &lines, &other) {
            let (_, old, new) = change.as_tag_tuple();
            let added = other[new].concat();
            if matches!(change, DiffOp::Equal { .. }) || !added.contains(variant.with) {
                continue;
            }
            let removed = lines[old.clone()].concat();
            if added.is_empty() {
                // A list that was written again has no comments.
                ensure!(removed.lines().all(|line| line.trim_start().starts_with('#')), "{open}: {removed}");
            } else if removed.is_empty() {
                let place = &mut before[old.start];
                if variant.is_verbatim {
                    write!(place, "{{{{- {open} }}}}\n{added}{{{{- end }}}}\n")?;
                } else {
                    let of = if plain.contains("kind: ClusterRole\n") { "cluster" } else { "namespaces" };
                    writeln!(place, "{{{{ {open} (dict \"root\" $ \"of\" \"{of}\" \"namespace\" .) -}}}}")?;
                }
            } else {
                ensure!(old.len() == 1 && variant.is_verbatim, "{open}: {removed}");
                let either = format!("{{{{- {open} }}}}\n{added}{{{{- else }}}}\n{removed}{{{{- end }}}}\n");
                ensure!(instead.insert(old.start, either).is_none(), "{open}: two values change {removed}");
            }
        }
    }
    let mut text = String::new();
    for (index, before) in before.iter().enumerate() {
        text.push_str(before);
        let line = lines.get(index).copied().unwrap_or_default();
        text.push_str(instead.get(&index).map_or(line, String::as_str));
    }
    for (token, template) in TOKENS {
        text = text.replace(token, template);
    }
    if plain.contains("kind: Deployment\n") {
        text = pods::with_settings(&text)?;
    }
    if text.contains("{{ . | quote }}") {
        around = Some("range $.Values.namespaces".into());
        text = format!("---\n{text}");
    }
    Ok(match around {
        Some(open) => format!("{{{{- /* {GENERATED} */}}}}\n{{{{- {open} }}}}\n{text}{{{{- end }}}}\n"),
        None => format!("{{{{- /* {GENERATED} */}}}}\n{text}"),
    })
}

/// The lines that a provider adds to a file: those for every `CloudControllerManager`, and those for one by its name.
fn rules(file: &str, provider: &KubernetesProvider) -> Result<[String; 2]> {
    // Some are in one namespace only.
    let is_anywhere = provider.descriptor.namespaces.include("namespaces-of-the-chart");
    let namespaces = || if is_anywhere { base().namespaces } else { vec!["kube-system".to_owned()] };
    let of = |providers: Vec<_>, names: &[String]| {
        let limits = Limits { names: names.to_vec(), ..Limits::default() };
        Installation { providers, namespaces: namespaces(), limits, ..base() }.of(file)
    };
    let (plain, common) = (of(Vec::new(), &[])?, of(vec![provider], &[])?);
    let named = of(vec![provider], &base().limits.names)?;
    Ok([added(&plain, &common), added(&common, &named)])
}

/// The lines that one text has more than another.
fn added(plain: &str, text: &str) -> String {
    let (plain, text): (Vec<_>, Vec<_>) = (plain.split_inclusive('\n').collect(), text.split_inclusive('\n').collect());
    let changes = capture_diff_slices(Algorithm::Myers, &plain, &text);
    let added = changes.iter().filter(|change| matches!(change, DiffOp::Insert { .. }));
    added.flat_map(|change| text[change.new_range()].iter().copied()).collect()
}

/// The permissions of a provider, and the Secrets that it needs.
fn provider(provider: &KubernetesProvider, files: &[(String, &'static [u8])]) -> Result<String> {
    let mut text = format!("# {GENERATED}\n");
    let descriptor = &provider.descriptor;
    writeln!(text, "secrets: [{}]", if descriptor.has_secret() { &descriptor.name } else { "" })?;
    if let Some(words) = descriptor.namespaces.words() {
        let is_there = descriptor.namespaces.include("kube-system");
        writeln!(text, "onlyIn:\n  kubeSystem: {is_there}\n  because: {}", json!(words))?;
    }
    for (of, name) in [("cluster", "02_rbac.yaml"), ("namespaces", "03_rbac_managed.yaml")] {
        let (_, bytes) = files.iter().find(|(file, _)| file == name).context(name)?;
        let [common, named] = rules(std::str::from_utf8(bytes)?, provider)?;
        for (key, rules) in [(of.to_owned(), common), (format!("{of}ByName"), named)] {
            writeln!(text, "{key}: |")?;
            rules.lines().try_for_each(|line| writeln!(text, "  {line}"))?;
        }
    }
    Ok(text)
}

/// By which address the operator reaches the API server, with and without nodes of the control plane.
fn api_servers(deployment: &str) -> Result<String> {
    let mut all = json!({});
    for (of, control_plane_nodes) in [("with", 3), ("without", 0)] {
        all[of] = json!({});
        for distribution in Distribution::ALL {
            let text = Installation { distribution, control_plane_nodes, ..base() }.of(deployment)?;
            let deployment: Value = yaml::from_str(&text)?;
            let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().context("env")?;
            let value = |name| env.iter().find(|one| one["name"] == name)?["value"].as_str();
            if let (Some(host), Some(port)) = (value("KUBERNETES_SERVICE_HOST"), value("KUBERNETES_SERVICE_PORT")) {
                all[of][name(distribution)] = json!({"host": host, "port": port.parse::<u16>()?});
            }
        }
    }
    Ok(format!(
        "# {GENERATED} How the operator reaches the API server, with and without\n# nodes of the control plane.\n{}",
        yaml::to_string(&all)?
    ))
}

pub(super) fn name(distribution: Distribution) -> String {
    distribution.properties().flag.to_owned()
}

/// A file in which others write, too, with what follows from the program.
fn filled_in(path: &str, catalog: &Catalog) -> Result<String> {
    let read = |path: &str| fs::read_to_string(repository().join(CHART).join(path));
    let text = read(path)?;
    if path == "README.md" {
        return readme::with_table(&text, &read("values.yaml")?);
    }
    if path == "Chart.yaml" {
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {}\n", env!("CARGO_PKG_VERSION")),
            _ => format!("{line}\n"),
        });
        return Ok(lines.collect());
    }
    let mut schema: Value = serde_json::from_str(&text)?;
    let providers: Vec<_> = catalog.kubernetes().map(|one| one.descriptor.name.as_str()).collect();
    let distributions: Vec<_> = Distribution::ALL.into_iter().map(name).collect();
    schema["properties"]["providers"]["items"]["enum"] = json!(providers);
    schema["properties"]["replaceBuiltIn"]["items"]["enum"] = json!(providers);
    schema["properties"]["distribution"]["enum"] = json!(distributions);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// The files of the chart that follow from others, by their paths in it.
fn generated() -> Result<BTreeMap<String, String>> {
    let catalog = embedded::catalog()?;
    let files = embedded::install();
    let any = catalog.kubernetes().next().context("a provider")?;
    let mut all = BTreeMap::new();
    for (name, bytes) in &files {
        let text = std::str::from_utf8(bytes)?;
        if name.ends_with(".crd.yaml") {
            all.insert(format!("crds/{name}"), text.to_owned());
        } else if !text.contains("kind: Namespace\n") {
            all.insert(format!("templates/{name}"), template(text, any).context(name.clone())?);
        }
        if text.contains("kind: Deployment\n") {
            all.insert("files/api-servers.yaml".into(), api_servers(text)?);
        }
    }
    for one in catalog.kubernetes() {
        all.insert(format!("files/providers/{}.yaml", one.descriptor.name), provider(one, &files)?);
    }
    for path in ["Chart.yaml", "README.md", "values.schema.json"] {
        all.insert(path.into(), filled_in(path, &catalog)?);
    }
    Ok(all)
}

/// The files that stand in the folders of generated files and those besides.
fn existing(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for part in ["crds", "files", "files/providers", "templates"] {
        for entry in fs::read_dir(folder.join(part))? {
            let path = entry?.path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.lines().next().is_some_and(|line| line.contains("Generated from")) {
                found.push(path.strip_prefix(folder)?.display().to_string());
            }
        }
    }
    Ok(found)
}

#[test]
fn the_chart_is_generated_from_install() -> Result<()> {
    let folder = repository().join(CHART);
    let generated = generated()?;
    let is_update = std::env::var_os("UPDATE_GENERATED").is_some();
    for (path, text) in &generated {
        let path = folder.join(path);
        if is_update {
            fs::write(&path, text)?;
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == *text, "{} is out of date: run `make generate`", path.display());
    }
    for path in existing(&folder)?.into_iter().filter(|path| !generated.contains_key(path)) {
        if is_update {
            fs::remove_file(folder.join(&path))?;
        } else {
            panic!("nothing makes {CHART}/{path} any more: run `make generate`");
        }
    }
    Ok(())
}
