//! Unified diffs (pure).

use diffy::{DiffOptions, PatchFormatter};

/// Returns the unified diff of two texts, each given with its title, and this many lines of context; empty if they are equal.
pub fn unified((from, before): (&str, &str), (to, after): (&str, &str), context_lines: usize) -> String {
    if before == after {
        return String::new();
    }
    let mut options = DiffOptions::new();
    options.set_context_len(context_lines).set_original_filename(from.to_owned()).set_modified_filename(to.to_owned());
    // The blank before an empty line stays, as in the diffs of kubectl.
    let formatter = PatchFormatter::new().suppress_blank_empty(false);
    formatter.fmt_patch(&options.create_patch(before, after)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_text_and_a_last_line_without_its_break_are_shown_as_diff_shows_them() {
        let added = unified(("/dev/null", ""), ("Deployment a (planned)", "a: 1\n"), 3);
        assert_eq!(added, "--- /dev/null\n+++ Deployment a (planned)\n@@ -0,0 +1 @@\n+a: 1\n");
        let changed = unified(("a", "1\n\n3"), ("b", "1\n\n4"), 3);
        let expected = "--- a\n+++ b\n@@ -1,3 +1,3 @@\n 1\n \n-3\n\\ No newline at end of file\n+4\n\\ No newline at end of file\n";
        assert_eq!(changed, expected);
        assert_eq!(unified(("a", "1\n"), ("b", "1\n"), 3), "");
    }
}
