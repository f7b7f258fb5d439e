//! Converts the legacy INI of vSphere to YAML (pure).
//!
//! Each key keeps its value under its name in YAML: `insecure-flag` becomes `insecureFlag`. Comments and order are not
//! kept; unknown keys are dropped with a warning.

use serde_json::{Map, Value};

use crate::{
    config::{
        Change, Output, Problem,
        keys::{KEYS, Kind, Section},
    },
    text::{
        ini::{Document, Header, Placed},
        suggest::Hints,
        yaml,
    },
};

/// Sections of the in-tree provider that do not exist in YAML.
const DROPPED: &[&str] = &["Workspace", "Network", "Disk"];

struct Converted {
    document: Map<String, Value>,
    output: Output,
    hints: Hints,
}

/// Whether a text that is not a YAML mapping is INI: it begins with a section.
pub(super) fn is_ini(text: &str) -> bool {
    let mut lines = text.lines().map(|line| line.trim_start_matches('\u{feff}').trim());
    lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';'])).is_some_and(|line| line.starts_with('['))
}

pub(super) fn convert(text: &str) -> Result<Output, Problem> {
    let ini = Document::parse(text)?;
    let format = Change {
        rule: "the legacy INI is converted to YAML",
        key: "format".to_owned(),
        before: Some("INI".to_owned()),
        after: Some("YAML".to_owned()),
    };
    let output = Output { changes: vec![format], ..Output::default() };
    let mut converted = Converted { document: Map::new(), output, hints: Hints::default() };
    for (line, header) in ini.headers() {
        converted.add_section(line, header)?;
    }
    for placed in ini.entries() {
        converted.add_key(placed)?;
    }
    Ok(Output { text: yaml::to_string(&converted.document)?, ..converted.output })
}

fn known(header: &Header) -> Option<&'static Section> {
    KEYS.vsphere.iter().find(|section| section.legacy().eq_ignore_ascii_case(&header.name))
}

impl Converted {
    /// A header without keys is enough for a vCenter.
    fn add_section(&mut self, line: usize, header: &Header) -> Result<(), Problem> {
        if DROPPED.iter().any(|name| name.eq_ignore_ascii_case(&header.name)) {
            return Ok(());
        }
        let Some(section) = known(header) else {
            let hint = self.hints.of(&header.name, KEYS.vsphere.iter().map(Section::legacy));
            let what = if hint.is_empty() { "this section".to_owned() } else { format!("`[{}]`", header.name) };
            self.warn(line, format!("{what} is unknown and has no effect{hint}"));
            return Ok(());
        };
        if section.each && header.sub.is_empty() {
            return self.refuse(section, line, format!("`[{0}]` needs a name: `[{0} \"name\"]`", section.legacy()));
        }
        self.members(section, header);
        Ok(())
    }

    fn add_key(&mut self, Placed { header, line, entry }: Placed<'_>) -> Result<(), Problem> {
        let key = &entry.key;
        if let Some(name) = DROPPED.iter().find(|name| name.eq_ignore_ascii_case(&header.name)) {
            self.output.changes.push(Change {
                rule: "the section of the in-tree provider does not exist in YAML",
                key: format!("[{name}] {key}"),
                before: Some(entry.value.clone().unwrap_or_default()),
                after: None,
            });
            return Ok(());
        }
        let Some(section) = known(header).filter(|section| !section.each || !header.sub.is_empty()) else {
            return Ok(());
        };
        let found = section.keys.iter().find(|(name, _)| dashes(name).eq_ignore_ascii_case(key));
        let Some((name, kind)) = found else {
            let hint = self.hints.of(key, section.keys.keys().map(|name| dashes(name)));
            let what = if hint.is_empty() { "this key".to_owned() } else { format!("`{key}`") };
            self.warn(line, format!("{what} of `[{}]` is unknown and has no effect{hint}", section.legacy()));
            return Ok(());
        };
        match value(name, *kind, entry.value.as_deref()) {
            Ok(Some(value)) => drop(self.members(section, header).map(|members| members.insert(name.clone(), value))),
            Ok(None) => {}
            Err(wanted) => {
                return self.refuse(section, line, format!("`{key}` of `[{}]` must be {wanted}", section.legacy()));
            }
        }
        Ok(())
    }

    /// Returns the mapping for a section's keys.
    fn members(&mut self, section: &Section, header: &Header) -> Option<&mut Map<String, Value>> {
        let mut members = object(&mut self.document, &section.name)?;
        if section.each {
            members = object(members, &header.sub)?;
            if section.name == "vcenter" {
                // In YAML it is required.
                members.entry("server").or_insert_with(|| header.sub.as_str().into());
            }
        }
        Some(members)
    }

    /// Fails if the cloud-controller-manager would fail; warns if it would disable the section.
    fn refuse(&mut self, section: &Section, line: usize, message: String) -> Result<(), Problem> {
        if section.is_required() {
            return Err(Problem::at(line, message));
        }
        self.warn(line, message);
        Ok(())
    }

    fn warn(&mut self, line: usize, message: String) {
        self.output.warnings.push(Problem::at(line, message));
    }
}

fn object<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.entry(key).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// Returns the name of a key in INI: `internal-vm-network-name` for `internalVmNetworkName`.
fn dashes(key: &str) -> String {
    let dash = |letter: char| letter.is_ascii_uppercase().then_some('-');
    key.chars().flat_map(|letter| dash(letter).into_iter().chain([letter.to_ascii_lowercase()])).collect()
}

/// Converts a value to YAML; a blank value is unset. The error is the expected type.
fn value(name: &str, kind: Kind, written: Option<&str>) -> Result<Option<Value>, &'static str> {
    let Some(text) = written else {
        // A key without a value is true, if it is a boolean.
        return Ok((kind == Kind::Bool).then_some(Value::Bool(true)));
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(match kind {
        Kind::Text | Kind::Word | Kind::Duration => Value::from(text),
        Kind::Float | Kind::Int | Kind::Int32 | Kind::Uint => {
            Value::from(text.parse::<u64>().map_err(|_| "a whole number")?)
        }
        Kind::Bool => Value::from(match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => true,
            "false" | "no" | "off" | "0" => false,
            _ => return Err("`true` or `false`"),
        }),
        Kind::List => {
            let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
            let is_family = |item: &&str| ["ipv4", "ipv6"].iter().any(|family| family.eq_ignore_ascii_case(item));
            if name == "ipFamily" && !items.iter().all(is_family) {
                return Err("`ipv4`, `ipv6` or both");
            }
            items.into()
        }
        Kind::Map => serde_json::from_str::<Map<String, Value>>(text).map_err(|_| "a JSON object of strings")?.into(),
    }))
}
