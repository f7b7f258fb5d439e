//! Errors as one line (pure).

/// An error with its causes in one line, each stated once.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let words = cause.to_string();
        // Some libraries repeat the cause in the message.
        if !text.contains(&words) {
            text = if text.is_empty() { words } else { format!("{text}: {words}") };
        }
    }
    text.replace('\n', " ")
}
