//! The page of each reason (pure): a section of docs/nodes.md, so that `explain` prints the text of the documentation.

use crate::nodes::reason::Reason;

const DOCUMENT: &str = include_str!("../../../../docs/nodes.md");

/// The beginning of a page heading.
const HEADING: &str = "\n## ";

/// Returns the page of a reason, starting with its heading; `None` if the document has none.
pub fn page(reason: Reason) -> Option<&'static str> {
    let heading = format!("{reason}: {}\n", reason.title());
    let pages = DOCUMENT.split(HEADING).skip(1);
    pages.filter(|page| page.starts_with(&heading)).map(str::trim_end).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_one_complete_page_and_each_page_a_reason() {
        let titles: Vec<&str> = DOCUMENT.split(HEADING).skip(1).filter_map(|page| page.lines().next()).collect();
        let mut expected: Vec<String> =
            Reason::ALL.iter().map(|reason| format!("{reason}: {}", reason.title())).collect();
        expected.sort_unstable();
        assert_eq!(titles, expected, "in the order of the ids");
        for reason in Reason::ALL {
            let page = page(*reason).unwrap();
            let parts = ["**What you see.** ", "**Why.** ", "**What to do.** "];
            let places: Vec<usize> = parts.iter().map(|part| page.find(&format!("\n\n{part}")).expect(part)).collect();
            assert!(places.is_sorted(), "{reason}");
            assert!(parts.iter().all(|part| page.matches(part).count() == 1), "{reason}");
            let sections = [&places[1..], &[page.len()]].concat();
            for (from, to) in places.iter().zip(sections) {
                assert!(to - from > 60, "{reason}: {}", &page[*from..to]);
            }
            assert!(page.contains("```console\n$ "), "{reason} names no command");
            assert_eq!(page.matches("```").count() % 2, 0, "{reason}");
            let is_other = reason.fix_on_openshift().is_some();
            assert!(!is_other || page.contains("On OpenShift"), "{reason} says what only other clusters have");
        }
    }
}
