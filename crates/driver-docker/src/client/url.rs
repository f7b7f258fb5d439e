//! The parts of URLs (pure).

use serde_json::{Map, Value};

/// Encodes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    encode(text)
}

/// Returns a path with a query.
pub(crate) fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let all: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if all.is_empty() { path.to_owned() } else { format!("{path}?{}", all.join("&")) }
}

/// Returns the Engine's form of filters. All have to fit.
pub(crate) fn filters(all: &[(&str, String)]) -> String {
    let mut filters: Map<String, Value> = Map::new();
    for (name, value) in all {
        let values = filters.entry(*name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(value.as_str().into());
        }
    }
    Value::Object(filters).to_string()
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for at in text.bytes() {
        if at.is_ascii_alphanumeric() || b"-._~".contains(&at) {
            encoded.push(char::from(at));
        } else {
            let digit = |half: u8| char::from(b"0123456789ABCDEF"[usize::from(half)]);
            encoded.extend(['%', digit(at >> 4), digit(at & 15)]);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_is_encoded() {
        assert_eq!(segment("a-Z_9.~/é?"), "a-Z_9.~%2F%C3%A9%3F");
        assert_eq!(query("/x", &[]), "/x");
        assert_eq!(query("/x", &[("a", "b c"), ("d", "&=")]), "/x?a=b%20c&d=%26%3D");
        let all = [("label", "a=b".to_owned()), ("label", "c".to_owned()), ("name", "^/x$".to_owned())];
        assert_eq!(filters(&all), r#"{"label":["a=b","c"],"name":["^/x$"]}"#);
    }
}
