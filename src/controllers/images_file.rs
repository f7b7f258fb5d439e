//! The images file of a running operator (IO): read again and again, because a kubelet swaps it without a sign that every
//! file system gives.

use std::{fs, path::PathBuf};

use crate::facts::images::{self, Images};

/// The images file, read again and again.
pub(super) struct ImagesFile {
    path: PathBuf,
    text: Result<String, String>,
    changed: bool,
}

impl ImagesFile {
    /// A file that was not read yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, text: Ok(String::new()), changed: true }
    }

    /// Reads the file; answers whether it has changed since it was last read.
    pub(super) fn read(&mut self) -> bool {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        let changed = text != self.text;
        self.text = text;
        self.changed |= changed;
        changed
    }

    /// Whether it has changed since the images were last taken.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// The images, if they have changed since they were last taken.
    pub(super) fn take(&mut self) -> Option<Result<Images, images::Error>> {
        let from = self.path.display().to_string();
        std::mem::take(&mut self.changed).then(|| match &self.text {
            Ok(text) => Images::parse(text, &from),
            Err(why) => Err(images::Error::Unreadable { from, why: why.clone() }),
        })
    }
}
