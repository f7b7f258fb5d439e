//! Words for what was seen (pure).

use crate::{
    contract::{Error, ErrorKind, Filter, Instance, Marks, Result},
    error::brief,
};

/// What was seen, for a message.
pub(in super::super) fn seen<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "success".to_owned(),
        Err(error) => shown(error),
    }
}

/// An error, for a message.
pub(in super::super) fn shown(error: &Error) -> String {
    let field = match &error.kind {
        ErrorKind::InvalidArgument(field) => format!(" of {:?}", brief(field)),
        _ => String::new(),
    };
    format!("{}{field} ({})", error.kind.name(), brief(&error.message))
}

/// The id of what was returned, or the error.
pub(in super::super) fn name_of<T>(result: &Result<T>, id: fn(&T) -> &str) -> String {
    result.as_ref().map_or_else(shown, |one| format!("{:?}", brief(id(one))))
}

/// How many instances a list has, or the error.
pub(in super::super) fn count(listed: &Result<Vec<Instance>>) -> String {
    match listed.as_ref().map(Vec::len) {
        Ok(0) => "an empty list".to_owned(),
        Ok(1) => "a list of 1 instance".to_owned(),
        Ok(count) => format!("a list of {count} instances"),
        Err(error) => shown(error),
    }
}

/// Who an instance belongs to.
pub(in super::super) fn mark_words(marks: &Marks) -> String {
    let words = |what: &str, value: &Option<String>| match value {
        Some(value) => format!("the {what} {:?}", brief(value)),
        None => format!("no {what}"),
    };
    format!("{} and {}", words("owner", &marks.owner), words("cluster", &marks.cluster))
}

/// What a filter asks for.
pub(in super::super) fn filter_words(filter: &Filter) -> String {
    let Filter { region, zone, name, owner, labels } = filter;
    let fields = [("region", region), ("zone", zone), ("name", name), ("owner", owner)];
    let fields = fields.into_iter().filter_map(|(field, value)| Some(format!("{field} {:?}", value.as_ref()?)));
    let labels = labels.iter().map(|(name, value)| format!("label {name}={value:?}"));
    fields.chain(labels).collect::<Vec<_>>().join(" and ")
}
