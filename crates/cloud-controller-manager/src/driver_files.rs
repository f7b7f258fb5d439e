//! Notices that the files of the driver have changed (IO): the file of `--cloud-config`, and what the settings name, such as certificates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ccm_drivers::{
    contract::DriverType,
    settings::{Kind, Values},
};
use ccm_kit::process::changes::Changes;

use crate::files::{Stamp, stamp};

/// The link that a kubelet renames when it replaces all files of a volume.
const VOLUME_LINK: &str = "..data";

/// The files of a driver.
pub(crate) struct DriverFiles {
    /// Files, and folders whose files count.
    given: Vec<PathBuf>,
    changes: Changes,
    stamps: Vec<(PathBuf, Stamp)>,
}

impl DriverFiles {
    /// The files of a driver with these values. Must be called in a runtime.
    pub(crate) fn of(driver: &dyn DriverType, values: &Values, config: Option<&Path>) -> Self {
        let paths = ccm_all_drivers::settings(driver).filter(|setting| setting.kind == Kind::Path);
        let paths = paths.filter_map(|setting| values.text(&setting.name)).filter(|path| !path.is_empty());
        let given: Vec<PathBuf> = config.map(Path::to_owned).into_iter().chain(paths.map(PathBuf::from)).collect();
        // A folder is watched by a file in it, whether this file exists or not.
        let watched = |path: &PathBuf| if path.is_dir() { path.join(VOLUME_LINK) } else { path.clone() };
        let watched = given.iter().map(watched).chain(all(&given));
        Self { changes: Changes::of(watched.collect()), stamps: stamps(&given), given }
    }

    /// Waits until one of the files has changed.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.changes.next().await;
            let now = stamps(&self.given);
            if now != self.stamps {
                self.stamps = now;
                return;
            }
        }
    }
}

/// The files, and those that stand directly in the folders.
fn all(given: &[PathBuf]) -> Vec<PathBuf> {
    let below = |path: &PathBuf| match fs::read_dir(path) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => vec![path.clone()],
    };
    let mut files: Vec<_> = given.iter().flat_map(below).collect();
    files.sort();
    files
}

fn stamps(given: &[PathBuf]) -> Vec<(PathBuf, Stamp)> {
    all(given).into_iter().filter_map(|path| Some((path.clone(), stamp(&path).ok()?))).collect()
}
