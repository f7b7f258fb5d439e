//! Quotes words for a shell (pure), because people copy printed commands.

use std::fmt::Write as _;

/// Quotes a word for a shell, on one line whatever it contains.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.contains(char::is_control) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut escaped = "$'".to_owned();
    for character in word.chars() {
        match character {
            '\'' | '\\' => escaped.extend(['\\', character]),
            '\n' => escaped += "\\n",
            control if control.is_control() => {
                for byte in control.to_string().bytes() {
                    // Octal: not every shell limits the number of hexadecimal digits.
                    let _ = write!(escaped, "\\{byte:03o}");
                }
            }
            other => escaped.push(other),
        }
    }
    escaped + "'"
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_each_word_as_it_is() {
        for word in
            ["plain-1.x/y:z", "", "a b", "$(touch x)", "'; touch x; '", "`x`", "a\nb\t\u{85}'\\n1", "ü*?~#&|<>!"]
        {
            let quoted = quoted(word);
            assert!(!quoted.contains(char::is_control), "{quoted}");
            let output = Command::new("bash").args(["-c", &format!("printf %s {quoted}")]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{quoted}");
        }
    }
}
