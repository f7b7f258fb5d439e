//! Reads files as a whole, and writes them atomically (IO).

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use tempfile::NamedTempFile;

pub mod folder;

/// The first part of the name of an incomplete file. A kubelet that reads static pods from the folder ignores names that
/// begin with a dot.
const PREFIX: &str = ".ccm-operator-";

/// The time of a file's last change, and its length: a different stamp means that the file has changed.
pub type Stamp = (SystemTime, u64);

/// Returns the stamp of a file.
pub fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = fs::metadata(path)?;
    Ok((meta.modified()?, meta.len()))
}

/// The maximum size of a file that is read as a whole.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a regular file. A pipe would block the process, and a device would never end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_within(path, MAX_BYTES)
}

/// Reads a regular file of at most `max` bytes.
fn read_within(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    read_all(File::open(path)?, max)
}

/// Reads to the end. Fails after more than `max` bytes.
pub fn read_all(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("larger than {} MiB", max >> 20)));
    }
    Ok(bytes)
}

/// Reads the text of a regular file.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// The value of a file or folder flag that means standard input or standard output.
pub const STANDARD: &str = "-";

/// Reads a text from the path that a user gives: a file, a pipe such as `<(command)`, or standard input.
pub fn read_given(path: &Path) -> io::Result<String> {
    let bytes = if path.as_os_str() == STANDARD {
        read_all(io::stdin(), MAX_BYTES)
    } else {
        read_all(File::open(path)?, MAX_BYTES)
    };
    text(bytes?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8: save it in this encoding"))
}

/// The users besides the owner who may read a file, as far as the umask allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Everybody.
    All,
    /// The group: the file may hold credentials.
    Group,
    /// Nobody.
    Owner,
}

/// Creates a complete and synced file in a folder. The caller renames it to its final path.
pub fn beside(folder: &Path, bytes: impl AsRef<[u8]>, readers: Readers) -> io::Result<NamedTempFile> {
    let mode = match readers {
        Readers::All => 0o644,
        Readers::Group => 0o640,
        Readers::Owner => 0o600,
    };
    // The umask applies to the mode of a new file. A mode that is set later would ignore it.
    let permissions = Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new().prefix(PREFIX).permissions(permissions).tempfile_in(folder)?;
    file.write_all(bytes.as_ref())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// The mode of a folder that everybody may read, as far as the umask allows.
const FOLDER_MODE: u32 = 0o755;

/// Returns the folder of a file.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a folder with files, given by their relative paths, completely or not at all. It appears by a rename, which the kernel
/// refuses if the path is a file or a folder that is not empty.
pub fn write_folder(
    path: &Path,
    files: impl IntoIterator<Item = (impl AsRef<Path>, impl AsRef<[u8]>)>,
) -> io::Result<()> {
    let permissions = Permissions::from_mode(FOLDER_MODE);
    let prepared = tempfile::Builder::new().prefix(PREFIX).permissions(permissions).tempdir_in(parent(path))?;
    for (name, bytes) in files {
        let file = prepared.path().join(name);
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(parent(&file))?;
        beside(parent(&file), bytes, Readers::All)?.persist(&file)?;
    }
    fs::rename(prepared.path(), path)?;
    // The folder was renamed.
    let _ = prepared.keep();
    Ok(())
}

/// The age at which an incomplete file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(600);

/// Removes incomplete files of a killed process from a folder. Ignores failures, because the write that follows reports them.
pub fn remove_incomplete(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, meta) = (entry.file_name(), entry.metadata());
        let suffix = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_ours =
            suffix.is_some_and(|suffix| suffix.len() == 6 && suffix.bytes().all(|b| b.is_ascii_alphanumeric()));
        let is_abandoned = |meta: &Metadata| {
            let age = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
            meta.is_file() && age.is_some_and(|age| age >= ABANDONED)
        };
        if is_ours && meta.is_ok_and(|meta| is_abandoned(&meta)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_device_nor_a_large_file_is_read() {
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "not a regular file");
        assert_eq!(read_given(Path::new("/dev/zero")).unwrap_err().to_string(), "larger than 16 MiB");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0xff]).unwrap();
        assert_eq!(read_text(file.path()).unwrap_err().to_string(), "not UTF-8: save it in this encoding");
        assert!(read_within(file.path(), 0).is_err() && read_within(file.path(), 1).is_ok());
    }

    #[test]
    fn a_kubelet_ignores_an_incomplete_file_and_the_next_start_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = beside(folder.path(), "a", Readers::All).unwrap().keep().unwrap();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with('.'));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o644, 0);
        for other in ["other", ".ccm-operator-settings.yaml"] {
            fs::write(folder.path().join(other), "").unwrap();
        }
        remove_incomplete(folder.path());
        assert!(path.exists(), "another process may be writing it");
        let old = SystemTime::now() - ABANDONED;
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
        remove_incomplete(folder.path());
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
