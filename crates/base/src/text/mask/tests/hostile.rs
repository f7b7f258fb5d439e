//! The work for hostile texts, which try to cause much of it (tests, pure).

use super::*;

/// Pieces that are repeated, and the text after them all. They name many secrets whose ends are hard to find.
const SHAPES: [(&str, &str); 18] = [
    ("://a:b/", ""),
    ("://a:b/", "@host"),
    ("://a:b@c/", " "),
    ("://a:b/@", ""),
    ("token:x,", ""),
    ("token:", "x"),
    ("token=", ",,,,"),
    ("token:true,", ""),
    ("token:\"x", ""),
    ("token:'\"", ""),
    ("password \"/x", ""),
    ("password \\\"/x", ""),
    ("token \"x\\\"", ""),
    ("bearer:", ""),
    ("basic ", ""),
    ("?token=&", ""),
    ("--token=", ""),
    ("secret \"token\":{},", ""),
];

#[test]
fn the_work_of_masking_grows_with_the_text() {
    for (piece, end) in SHAPES {
        // The end of a value may be as long as all keys before it.
        for filler in ["", ",", "\\", "\"", " ", "/"] {
            let steps = |n: usize| {
                let all = format!("{}{}{end}", piece.repeat(n), filler.repeat(n));
                work::of(|| assert!(!text(&all).is_empty() && !message(&all).is_empty()))
            };
            let (small, large) = (steps(200), steps(400));
            assert!(
                small > 0 && large < 3 * small,
                "{piece:?} {filler:?}: {small} steps, and {large} for twice the size"
            );
        }
    }
}

#[test]
fn a_password_is_masked_however_far_its_url_goes() {
    let slashes = "a/b:c://d".repeat(10_000);
    assert_eq!(text(&format!("x https://user:{slashes}@host/path")), "x https://user:***@host/path");
    let (first, second) = (format!("get https://u:{slashes}, "), "https://u:p/q@h");
    assert_eq!(message(&format!("{first}{second}")), format!("{first}https://u:***@h"));
    let keys = "token:".repeat(10_000);
    assert_eq!(message(&format!("{keys}x1,")), "token:***");
}
