//! Notices that files may have changed (IO): by inotify, and by periodic checks, because not every file system reports
//! changes.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use inotify::{Event, EventStream, Inotify, WatchMask};
use tokio::time::Instant;
use tracing::warn;

/// The period after which files are checked even if nothing was reported.
const CHECK_PERIOD: Duration = Duration::from_secs(10);

/// The size of the buffer for reports, in bytes; a report takes at most 272.
const BUFFER: usize = 4096;

/// The pause between a report and the check of the files, because a file may be deleted and created, or written piece by piece.
const SETTLE: Duration = Duration::from_millis(50);

/// The link that a kubelet renames when it replaces all files of a volume.
const VOLUME_LINK: &str = "..data";

/// The changes of some files.
pub struct Changes {
    paths: Vec<PathBuf>,
    /// The watcher of inotify; `None` if the system refuses to create it.
    reports: Option<EventStream<Vec<u8>>>,
    due: Instant,
}

impl Changes {
    /// Watches these files and their folders. Must be called in a runtime.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        let reports = Inotify::init().and_then(|inotify| inotify.into_event_stream(vec![0; BUFFER]));
        let reports = reports.inspect_err(|error| {
            let seconds = CHECK_PERIOD.as_secs();
            warn!("failed to watch files, which are looked at every {seconds} s instead: {error}");
        });
        let changes = Self { paths, reports: reports.ok(), due: Instant::now() + CHECK_PERIOD };
        changes.watch();
        changes
    }

    /// Waits until one of the files may have changed. Cancelling the wait loses no change.
    pub async fn next(&mut self) {
        loop {
            let reported = async {
                match &mut self.reports {
                    Some(reports) => reports.next().await,
                    None => None,
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.due) => {
                    self.due = Instant::now() + CHECK_PERIOD;
                    // For replaced files, and for folders that did not exist.
                    self.watch();
                    return;
                }
                Some(report) = reported => {
                    if is_about(&report, &self.paths) {
                        self.due = self.due.min(Instant::now() + SETTLE);
                    }
                }
            }
        }
    }

    fn watch(&self) {
        let Some(reports) = &self.reports else { return };
        let of_folder = WatchMask::CREATE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::CLOSE_WRITE;
        for path in &self.paths {
            // Paths that cannot be watched are checked periodically.
            let _ = reports.watches().add(folder(path), of_folder);
            // A file that is mounted by itself changes in another folder.
            let _ = reports.watches().add(path, WatchMask::CLOSE_WRITE | WatchMask::DELETE_SELF);
        }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a report may be about one of the files. A report without a name is about a file or a folder itself, or about lost reports.
fn is_about(report: &io::Result<Event<OsString>>, paths: &[PathBuf]) -> bool {
    let name = report.as_ref().ok().and_then(|event| event.name.as_deref());
    name.is_none_or(|name| name == VOLUME_LINK || paths.iter().any(|path| path.file_name() == Some(name)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Less than the period of the checks.
    const LIMIT: Duration = Duration::from_secs(8);

    async fn is_noticed(changes: &mut Changes) -> bool {
        tokio::time::timeout(LIMIT, changes.next()).await.is_ok()
    }

    #[tokio::test]
    async fn a_file_that_a_kubelet_or_an_editor_replaces_is_noticed_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for volume in ["..1", "..2"] {
            fs::create_dir(at(volume)).unwrap();
            fs::write(at(volume).join("file"), volume).unwrap();
        }
        symlink("..1", at(VOLUME_LINK)).unwrap();
        symlink("..data/file", at("file")).unwrap();
        let mut changes = Changes::of(vec![at("file")]);

        symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at(VOLUME_LINK)).unwrap();
        assert!(is_noticed(&mut changes).await, "a volume");

        fs::write(at("new"), "").unwrap();
        fs::rename(at("new"), at("file")).unwrap();
        assert!(is_noticed(&mut changes).await, "a rename");

        fs::write(at("file"), "x").unwrap();
        assert!(is_noticed(&mut changes).await, "a write");

        fs::remove_file(at("file")).unwrap();
        assert!(is_noticed(&mut changes).await, "a deletion");

        fs::write(at("other"), "").unwrap();
        let due = changes.due;
        let _ = tokio::time::timeout(SETTLE * 4, changes.next()).await;
        assert_eq!(changes.due, due, "another file");
    }

    #[tokio::test]
    async fn a_file_in_a_folder_that_did_not_exist_is_noticed_by_looking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/file");
        let mut changes = Changes::of(vec![path.clone()]);
        fs::create_dir(folder.path().join("later")).unwrap();
        changes.due = Instant::now();
        changes.next().await;
        fs::write(&path, "").unwrap();
        assert!(is_noticed(&mut changes).await);
    }
}
