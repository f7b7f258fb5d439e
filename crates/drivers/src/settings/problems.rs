//! Checks the declarations of a driver (pure). Every driver's test calls it.

use std::collections::BTreeMap;

use super::{COMMON, Setting};

/// Returns what is wrong with the name of a driver, its settings and its options: names of another form, defaults of another type,
/// and names, flags or variables that two settings have, [`COMMON`] included.
pub fn problems(driver: &str, settings: &[Setting], options: &[Setting]) -> Vec<String> {
    let mut problems = Vec::new();
    if !is_driver_name(driver) {
        problems.push(format!(
            "driver {driver:?}: a name has lowercase letters, digits and hyphens between them, and begins with a letter"
        ));
    }
    let all = COMMON.iter().chain(settings);
    problems.extend(clashes("setting", all.map(|setting| (setting, setting.flag()))));
    problems.extend(clashes("option", options.iter().map(|option| (option, option.name.clone().into_owned()))));
    for (what, declared) in [("setting", settings), ("option", options)] {
        for Setting { name, kind, default, .. } in declared {
            if !is_camel_case(name) {
                problems.push(format!("{what} {name:?}: a name is written in camelCase, of letters and digits"));
            }
            if let Some(default) = default.as_ref().filter(|default| !kind.accepts(default)) {
                problems.push(format!("{what} {name:?}: the default {default:?} is not {}", kind.words()));
            }
        }
    }
    problems
}

fn is_driver_name(name: &str) -> bool {
    let is_allowed = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-';
    name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.ends_with('-') && name.chars().all(is_allowed)
}

fn is_camel_case(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.chars().all(|one| one.is_ascii_alphanumeric())
}

/// Declarations that cannot be told apart. Names that differ only in case have one flag and one variable.
fn clashes<'a>(what: &str, declared: impl Iterator<Item = (&'a Setting, String)>) -> Vec<String> {
    let (mut seen, mut problems) = (BTreeMap::new(), Vec::new());
    for (setting, flag) in declared {
        let name = &setting.name;
        if let Some(other) = seen.insert(flag, name) {
            problems.push(format!("{what} {name:?}: it has the name, the flag or the variable of {other:?}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Kind;

    #[test]
    fn each_wrong_declaration_is_a_problem() {
        const fn text(name: &'static str) -> Setting {
            Setting::new(name, Kind::Text, "")
        }
        let limit = |default| Setting::with_default("limit", Kind::Duration, default, "");
        let right = [text("certPath"), text("ipv6Prefix"), text("host"), limit("5s")];
        assert_eq!(problems("my-cloud2", &right, &[text("host"), limit("1m")]), [""; 0]);
        for (driver, settings, options, problem) in [
            ("My", vec![], vec![], "driver \"My\": a name has"),
            ("2cloud", vec![], vec![], "driver \"2cloud\": a name has"),
            ("cloud-", vec![], vec![], "driver \"cloud-\": a name has"),
            ("", vec![], vec![], "driver \"\": a name has"),
            ("c", vec![text("CertPath")], vec![], "setting \"CertPath\": a name is"),
            ("c", vec![text("cert-path")], vec![], "setting \"cert-path\": a name is"),
            ("c", vec![], vec![text("cert_path")], "option \"cert_path\": a name is"),
            ("c", vec![limit("5")], vec![], "setting \"limit\": the default \"5\" is not a duration such as 30s"),
            ("c", vec![], vec![limit("")], "option \"limit\": the default \"\" is not"),
            ("c", vec![text("timeout")], vec![], "setting \"timeout\": it has the name, the flag or the variable of"),
            (
                "c",
                vec![text("accountId")],
                vec![],
                "setting \"accountId\": it has the name, the flag or the variable of \"accountID\"",
            ),
            ("c", vec![text("host"), text("host")], vec![], "setting \"host\": it has the name"),
            ("c", vec![], vec![text("ports"), text("ports")], "option \"ports\": it has the name"),
        ] {
            let found = problems(driver, &settings, &options);
            assert!(found.len() == 1 && found[0].starts_with(problem), "{found:?}");
        }
    }
}
