//! Checks an INI configuration against the keys that the cloud-controller-manager knows (pure).
//!
//! gcfg ignores unknown sections and keys, and refuses values of the wrong type.

use std::ops::RangeInclusive;

use crate::{
    config::{
        Problem,
        keys::{Kind, Section},
    },
    text::{
        go::duration,
        ini::{Document, Header, Placed},
        suggest::Hints,
    },
};

/// Warns about ignored sections and keys, and refuses invalid values. Sections and keys for which `owned` returns true
/// are checked elsewhere.
pub(super) fn check(
    document: &Document,
    sections: &[Section],
    owned: impl Fn(&str, Option<&str>) -> bool,
) -> Result<Vec<Problem>, Problem> {
    let (mut warnings, hints) = (Vec::new(), Hints::default());
    for (line, header) in document.headers() {
        if section(sections, header).is_none() && !(header.sub.is_empty() && owned(&header.name, None)) {
            warnings.push(Problem::at(line, unknown_section(&hints, sections, header)));
        }
    }
    for placed in document.entries() {
        let Some(section) = section(sections, placed.header) else { continue };
        let Placed { line, entry, .. } = placed;
        if owned(&section.name, Some(&entry.key)) {
            continue;
        }
        let Some((key, kind)) = section.ini_key(&entry.key) else {
            warnings.push(Problem::at(line, unknown_key(&hints, sections, section, &entry.key)));
            continue;
        };
        if let Some(takes) = refuses(kind, entry.value.as_deref()) {
            let section = &section.name;
            let message = match &entry.value {
                Some(_) => {
                    format!("the cloud-controller-manager refuses this value of [{section}] {key}: give {takes}")
                }
                None => format!("[{section}] {key} has no value; write `{key} = {takes}`"),
            };
            return Err(Problem::at(line, message));
        }
    }
    warnings.sort_by_key(|warning| warning.place);
    Ok(warnings)
}

/// The section of this header, if its sub-section is allowed.
fn section<'a>(sections: &'a [Section], header: &Header) -> Option<&'a Section> {
    named(sections, &header.name).filter(|section| section.each || header.sub.is_empty())
}

fn named<'a>(sections: &'a [Section], name: &str) -> Option<&'a Section> {
    sections.iter().find(|section| section.name.eq_ignore_ascii_case(name))
}

fn unknown_section(hints: &Hints, sections: &[Section], header: &Header) -> String {
    let name = &header.name;
    match named(sections, name) {
        Some(Section { name, .. }) => format!(
            "the cloud-controller-manager ignores this section with all its keys: [{name}] has no sub-sections; remove \
             the name in quotes"
        ),
        None => match hints.of(name, sections.iter().map(|section| &section.name)) {
            hint if hint.is_empty() => {
                "the cloud-controller-manager does not know this section and ignores all its keys".to_owned()
            }
            hint => format!(
                "the cloud-controller-manager does not know the section [{name}] and ignores all its keys{hint}"
            ),
        },
    }
}

fn unknown_key(hints: &Hints, sections: &[Section], section: &Section, key: &str) -> String {
    let place = sections.iter().find(|other| other.ini_key(key).is_some());
    match place {
        Some(place) => format!(
            "the cloud-controller-manager ignores {key} in [{}]: it belongs in [{}]; move it there",
            section.name, place.name
        ),
        None => match hints.of(key, section.keys.keys()) {
            hint if hint.is_empty() => {
                format!("the cloud-controller-manager does not know this key of [{}] and ignores it", section.name)
            }
            hint => {
                format!("the cloud-controller-manager does not know [{}] {key} and ignores it{hint}", section.name)
            }
        },
    }
}

/// Returns the expected value if gcfg would refuse the given one; a `value` of `None` is a key without `=`.
fn refuses(kind: Kind, value: Option<&str>) -> Option<&'static str> {
    const NUMBER: &str = "a whole number in its range";
    let in_range = |range: RangeInclusive<i128>| {
        let number = value.and_then(|value| whole(value.trim(), *range.start() < 0));
        number.is_some_and(|number| range.contains(&number))
    };
    let is_boolean = |value: &str| {
        let known = ["true", "yes", "on", "1", "false", "no", "off", "0"];
        known.iter().any(|known| known.eq_ignore_ascii_case(value))
    };
    let (fits, takes) = match kind {
        Kind::List | Kind::Float | Kind::Map => return None,
        Kind::Text => (value.is_some(), "TEXT"),
        Kind::Word => (value.is_some_and(|value| value.split_whitespace().count() == 1), "one word"),
        Kind::Bool => (value.is_none_or(is_boolean), "`true` or `false`"),
        Kind::Int => (in_range(i64::MIN.into()..=i64::MAX.into()), NUMBER),
        Kind::Int32 => (in_range(i32::MIN.into()..=i32::MAX.into()), NUMBER),
        Kind::Uint => (in_range(0..=u64::MAX.into()), NUMBER),
        Kind::Duration => (value.is_some_and(|text| duration(text).is_some()), "a duration such as `5s` or `1m30s`"),
    };
    (!fits).then_some(takes)
}

/// Parses a number as Go scans it: decimal, or hexadecimal after `0x`.
fn whole(text: &str, signed: bool) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) if signed => (true, digits),
        _ => (false, text),
    };
    let magnitude = if let Some(hexadecimal) = digits.strip_prefix("0x") {
        if hexadecimal.contains("__") || hexadecimal.ends_with('_') || hexadecimal.contains(['+', '-']) {
            return None;
        }
        i128::from_str_radix(&hexadecimal.replace('_', ""), 16)
    } else {
        let digits = if signed && !negative { digits.strip_prefix('+').unwrap_or(digits) } else { digits };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse()
    };
    magnitude.ok().map(|magnitude| if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scanned_as_in_go() {
        for (text, signed, expected) in [
            ("12", false, Some(12)),
            ("-12", true, Some(-12)),
            ("+12", true, Some(12)),
            ("-12", false, None),
            ("+12", false, None),
            ("-+12", true, None),
            ("0x1_f", false, Some(31)),
            ("-0x1f", true, Some(-31)),
            ("0x1__f", false, None),
            ("0x1f_", false, None),
            ("0x-1", true, None),
            ("1_0", false, None),
            ("", false, None),
        ] {
            assert_eq!(whole(text, signed), expected, "{text}");
        }
    }
}
