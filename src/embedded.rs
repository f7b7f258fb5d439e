//! The providers that come with the program: `assets/` and `bootstrap/`, embedded (pure).
//!
//! The one place that knows about embedding; everything else takes paths and bytes.

use include_dir::{Dir, include_dir};

use crate::{catalog::Catalog, provider};

static ASSETS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/assets");
static BOOTSTRAP: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/bootstrap");

/// Every embedded file as (path from the repository's root, bytes).
pub fn files() -> Vec<(String, &'static [u8])> {
    let mut files = Vec::new();
    collect("assets", &ASSETS, &mut files);
    collect("bootstrap", &BOOTSTRAP, &mut files);
    files
}

/// The catalog of the embedded providers. An error here is a defect of this build; the tests exclude it.
pub fn catalog() -> Result<Catalog, provider::Error> {
    let files = files();
    Catalog::new(files.iter().map(|(path, bytes)| (path.as_str(), *bytes)))
}

fn collect(root: &str, dir: &Dir<'static>, files: &mut Vec<(String, &'static [u8])>) {
    files.extend(dir.files().map(|file| (format!("{root}/{}", file.path().display()), file.contents())));
    dir.dirs().for_each(|dir| collect(root, dir, files));
}
