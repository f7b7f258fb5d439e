//! docs/drivers/write-a-driver.md is followed from its own text: the cloud, each edit of the driver, and each command with what it
//! prints.

use std::{fs, net::TcpListener, os::unix::fs::symlink, path::Path};

use crate::page::{self, Edit, Shell, Step};

/// The port of the page's cloud, which may be taken here.
const PORT: &str = "8877";

#[test]
fn the_page_leads_from_nothing_to_a_driver_that_passes() {
    let (folder, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(env!("CARGO_BIN_EXE_ccm-cloud"), programs.path().join("ccm-cloud")).unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drivers/write-a-driver.md");
    let mut shell = Shell::start(folder.path(), programs.path(), &[]);
    let (mut commands, mut failures) = (0, 0);
    for (line, step) in page::steps(&page) {
        let place = format!("write-a-driver.md:{line}");
        println!("{place}");
        match step {
            Step::Save { file, text } => fs::write(folder.path().join(file), text).unwrap(),
            Step::Edit { file, edit } => {
                let file = folder.path().join(file);
                let edited = edit.apply(&fs::read_to_string(&file).unwrap());
                // In place: the file stays executable.
                fs::write(file, edited).unwrap();
            }
            Step::Run(block) => {
                let followed = shell.follow(&block, |text| text.replace(PORT, &port));
                followed.unwrap_or_else(|problem| panic!("{place}: {problem}"));
                failures += usize::from(block.exit_code != 0);
                commands += block.all.len();
            }
        }
    }
    assert!(commands > 15 && failures > 3, "{commands} commands, {failures} blocks that fail");
}

#[test]
fn what_a_page_shows_is_printed() {
    let is_shown = |shown: &[&str], output| {
        page::is_shown(&shown.iter().map(ToString::to_string).collect::<Vec<_>>(), output).is_ok()
    };
    assert!(is_shown(&["a…c", "d…"], "a bc\nx\nde\n"));
    for (shown, printed) in [("a…c", "ab"), ("a", "ab"), ("…b", "a"), ("b", "")] {
        assert!(!is_shown(&[shown], printed), "{shown}");
    }
    assert!(!is_shown(&["b", "a"], "a\nb\n"));
}

#[test]
fn an_edit_changes_what_it_names_and_nothing_else() {
    let file = "import a\n\nONE = [\n    1,\n]\n\n\nclass Two:\n    # Why.\n    @staticmethod\n    def two():\n        return 2\n\n    def three(self):\n        three = 3\n        return three\n\n\ndef main():\n    # What.\n    Two.two()\n\n\nmain()\n";
    let by = "    # New.\n    SIX = 6\n\n    def two():\n        return 4\n\n    def five(self):\n        return 5\n";
    let replaced = file
        .replace("    # Why.\n    @staticmethod\n", "    # New.\n    SIX = 6\n\n")
        .replace("return 2\n", "return 4\n\n    def five(self):\n        return 5\n");
    assert_eq!(Edit::Replace(by.to_owned()).apply(file), replaced);
    assert_eq!(Edit::Replace("ONE = 1\n".to_owned()).apply(file), file.replace("[\n    1,\n]", "1"));
    let diff = "     @staticmethod\n-    def two():\n+    def six():\n".to_owned();
    assert_eq!(Edit::Diff(diff).apply(file), file.replace("def two", "def six"));
    let delete = Edit::Delete(vec!["three".to_owned()]).apply(file);
    assert_eq!(delete, file.replace("\n    def three(self):\n        three = 3\n        return three\n", ""));
    assert_eq!(
        Edit::Delete(vec!["\"a\"".to_owned()]).apply("x = {\n    \"a\": 1,\n    \"ab\": 2,\n}\n"),
        "x = {\n    \"ab\": 2,\n}\n"
    );
    for wrong in [
        Edit::Diff("-nothing\n".to_owned()),
        Edit::Delete(vec!["nothing".to_owned()]),
        Edit::Replace("x()\n".to_owned()),
    ] {
        assert!(std::panic::catch_unwind(|| wrong.apply(file)).is_err(), "{wrong:?}");
    }
}
