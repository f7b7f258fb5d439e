//! Prints the declarations of settings and their values (pure).

use serde::Serialize;

use super::{Given, Kind, Problem, Setting, Values};
use crate::text::{
    output::{printable, wrap},
    shell,
    yaml::quoted,
};

/// A format that a deployment takes settings in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines `KEY=value` for a shell, and for `docker run --env-file` if no value needs quotes. It has no secret values.
    Env,
    /// A manifest of a `ConfigMap` with all values that are not secret.
    ConfigMap,
    /// A manifest of a `Secret` with the secret values. No other format has them.
    Secret,
}

/// The declaration of a setting for tables and for JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Declaration {
    /// Its name in a file.
    pub name: String,
    /// Its flag, such as `--cert-path`.
    pub flag: String,
    /// Its environment variable, and its key in a `ConfigMap` or in a `Secret`.
    pub variable: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The value if none is given.
    pub default: Option<String>,
    /// Whether a value has to be given.
    pub required: bool,
    /// Whether the value belongs into a `Secret`.
    pub secret: bool,
    /// What it is for.
    pub help: String,
}

/// Returns the declarations of a driver's settings.
pub fn declarations<'a>(driver: &str, settings: impl IntoIterator<Item = &'a Setting>) -> Vec<Declaration> {
    let declaration = |setting: &Setting| Declaration {
        name: setting.name.clone().into_owned(),
        flag: format!("--{}", setting.flag()),
        variable: setting.variable(driver),
        kind: setting.kind,
        default: setting.default.as_deref().map(str::to_owned),
        required: setting.required,
        secret: setting.secret,
        help: setting.help.clone().into_owned(),
    };
    settings.into_iter().map(declaration).collect()
}

/// Returns a text with the values of a driver's settings, also where they are defaults. A comment explains each setting. A setting
/// without a value is a comment as well, to be filled in: also a required one. Fails for a value of the wrong type and for a name
/// that no setting has.
pub fn show<'a>(
    driver: &str,
    settings: impl IntoIterator<Item = &'a Setting> + Clone,
    given: &Given,
    format: Format,
) -> Result<String, Problem> {
    let all: Vec<_> = settings.into_iter().collect();
    let optional: Vec<_> = all.iter().map(|setting| Setting { required: false, ..(*setting).clone() }).collect();
    let values = Values::resolve(driver, &optional, given)?;
    let (kind, field) = match format {
        Format::Env => return Ok(HEAD_OF_ENV.to_owned() + &entries(driver, all, &values, format)),
        Format::ConfigMap => ("ConfigMap", "data"),
        Format::Secret => ("Secret", "stringData"),
    };
    let shown: Vec<_> = all.into_iter().filter(|setting| setting.secret == (format == Format::Secret)).collect();
    // A mapping of comments alone is null, which Kubernetes takes for an empty one.
    let empty = if shown.is_empty() { " {}" } else { "" };
    let name = quoted(&format!("ccm-cloud-{driver}"));
    let head = format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n{field}:{empty}\n");
    Ok(head + &entries(driver, shown, &values, format))
}

const HEAD_OF_ENV: &str = "\
# For a shell: set -a; . ./FILE; set +a
# docker run --env-file takes quotes as a part of the value, so it reads this file only if no value has quotes.
";

/// Each setting with its comment and its value.
fn entries(driver: &str, settings: Vec<&Setting>, values: &Values, format: Format) -> String {
    let indent = if format == Format::Env { "" } else { "  " };
    let entry = |setting: &Setting| {
        let (key, value) = (setting.variable(driver), values.text(&setting.name));
        let line = match (format, value) {
            (Format::Env, _) if setting.secret => format!("# {key} is secret: see --format secret"),
            (Format::Env, Some(value)) => format!("{key}={}", shell::quoted(value)),
            (Format::Env, None) => format!("# {key}="),
            (_, Some(value)) => format!("{key}: {}", quoted(value)),
            (_, None) => format!("# {key}: \"\""),
        };
        let mut lines: Vec<_> = comment(setting).into_iter().map(|line| format!("# {line}")).collect();
        lines.push(line);
        format!("{indent}{}\n", lines.join(&format!("\n{indent}")))
    };
    settings.into_iter().map(entry).collect()
}

/// The lines of the comment on a setting. Its texts may be those of an external driver.
fn comment(setting: &Setting) -> Vec<String> {
    const WIDTH: usize = 96;
    let required = if setting.required { ", required" } else { "" };
    let default = setting.default.as_ref().filter(|_| !setting.secret);
    let default = default.map(|default| format!(", default {default:?}")).unwrap_or_default();
    let Setting { name, kind, help, .. } = setting;
    let text = format!("{name} ({}{required}{default}): {help}", kind.words());
    wrap(&printable(&text), WIDTH)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, process::Command};

    use serde_json::{Value, json};

    use super::*;
    use crate::{settings::COMMON, text::yaml};

    fn own() -> [Setting; 4] {
        [
            Setting::new("host", Kind::Text, "The address.\nA second line.").required(),
            Setting::with_default("labels", Kind::List, "a=b,c", "Labels\u{1b}[2J for 'people'."),
            Setting::new("token", Kind::Text, "The token.").required().secret(),
            Setting::with_default("pin", Kind::Text, "swordfish", "Another one.").secret(),
        ]
    }

    fn shown(given: &[(&str, &str)], format: Format) -> String {
        let file = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        show("my-cloud", COMMON.iter().chain(&own()), &Given { file, ..Given::default() }, format).unwrap()
    }

    const GIVEN: [(&str, &str); 3] =
        [("host", "a: 'b' # \"c\"\n$(touch x)\u{1b}[2J"), ("token", "hunter2"), ("timeout", "1m")];

    #[test]
    fn a_shell_reads_the_values_of_env() {
        let text = shown(&GIVEN, Format::Env);
        assert!(!text.contains("hunter2") && text.contains("\n# MY_CLOUD_TOKEN is secret"), "{text}");
        let script =
            format!("set -a\n{text}\nprintf '%s|' \"$MY_CLOUD_HOST\" \"$MY_CLOUD_TIMEOUT\" \"$MY_CLOUD_LABELS\"");
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read, format!("{}|1m|a=b,c|", GIVEN[0].1), "{text}");
        let bare = shown(&[], Format::Env);
        assert!(!bare.contains("swordfish"), "{bare}");
        assert!(bare.contains("\n# MY_CLOUD_HOST=\n") && bare.contains("\nMY_CLOUD_READ_ONLY=false\n"), "{bare}");
    }

    #[test]
    fn manifests_have_the_values_and_only_a_secret_has_secrets() {
        let (config_map, secret) = (shown(&GIVEN, Format::ConfigMap), shown(&GIVEN, Format::Secret));
        let data = json!({
            "MY_CLOUD_HOST": GIVEN[0].1, "MY_CLOUD_LABELS": "a=b,c", "MY_CLOUD_OPERATIONS_PER_SECOND": "0",
            "MY_CLOUD_READ_ONLY": "false", "MY_CLOUD_TIMEOUT": "1m",
        });
        let metadata = json!({"name": "ccm-cloud-my-cloud"});
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        assert_eq!(yaml::from_str::<Value>(&config_map).unwrap(), expected, "{config_map}");
        assert!(
            config_map.contains("  # MY_CLOUD_ACCOUNT_ID: \"\"\n") && !config_map.contains("TOKEN"),
            "{config_map}"
        );
        let data = json!({"MY_CLOUD_TOKEN": "hunter2", "MY_CLOUD_PIN": "swordfish"});
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        assert_eq!(yaml::from_str::<Value>(&secret).unwrap(), expected, "{secret}");
        let bare = shown(&[], Format::Secret);
        assert!(
            bare.ends_with(
                "  # token (a text, required): The token.\n  # MY_CLOUD_TOKEN: \"\"\n  # pin (a text): \
            Another one.\n  MY_CLOUD_PIN: \"swordfish\"\n"
            ),
            "{bare}"
        );
        let none = show("fake", &COMMON, &Given::default(), Format::Secret).unwrap();
        assert_eq!(yaml::from_str::<Value>(&none).unwrap()["stringData"], json!({}), "{none}");
    }

    #[test]
    fn the_texts_of_a_declaration_stay_in_their_comment() {
        for format in [Format::Env, Format::ConfigMap] {
            let text = shown(&[], format);
            assert!(text.contains("# host (a text, required): The address. A second line.\n"), "{text}");
            assert!(text.contains("default \"a=b,c\"): Labels\u{fffd}[2J for"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        }
    }

    #[test]
    fn a_bad_value_or_a_wrong_name_is_an_error() {
        let given = |name: &str| Given { file: BTreeMap::from([(name.into(), "x".into())]), ..Given::default() };
        for name in ["timeout", "tiemout"] {
            assert!(show("fake", &COMMON, &given(name), Format::Env).is_err(), "{name}");
        }
    }

    #[test]
    fn a_declaration_has_all_names_of_its_setting() {
        let rows = serde_json::to_value(declarations("my-cloud", &own())).unwrap();
        assert_eq!(
            rows[2],
            json!({
                "name": "token", "flag": "--token", "variable": "MY_CLOUD_TOKEN", "type": "text", "default": null,
                "required": true, "secret": true, "help": "The token.",
            })
        );
        assert_eq!((&rows[1]["default"], &rows[1]["type"]), (&json!("a=b,c"), &json!("list")));
    }
}
