//! Reads an untrusted folder (IO): each entry is opened once, without following links, and without blocking.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat},
    io::Errno,
};

/// A file or a folder that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {}", path.display())]
pub struct Unreadable {
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// An open file or folder.
#[derive(Debug)]
pub enum Opened {
    /// A regular file.
    File(OpenFile),
    /// A folder.
    Folder(Folder),
}

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Its size in bytes.
    pub size: u64,
    path: PathBuf,
}

/// An open folder: renaming it or replacing it with a link does not redirect reads.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// Opens a path that a user gives. Links are followed only here.
pub fn open(path: &Path) -> Result<Opened, Unreadable> {
    opened(CWD, path, path.to_owned(), OFlags::empty())
}

/// A pipe would block without `NONBLOCK`. Pipes and devices are refused afterwards.
fn opened(folder: impl AsFd, name: &Path, path: PathBuf, flags: OFlags) -> Result<Opened, Unreadable> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(folder, name, flags, Mode::empty()).map_err(|errno| unreadable(&path, errno))?;
    let stat = fstat(&fd).map_err(|errno| unreadable(&path, errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Opened::Folder(Folder { fd, path })),
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
            Ok(Opened::File(OpenFile { file: File::from(fd), size, path }))
        }
        other => Err(unreadable(&path, io::Error::other(described(other)))),
    }
}

fn unreadable(path: &Path, source: impl Into<io::Error>) -> Unreadable {
    Unreadable { path: path.to_owned(), source: source.into() }
}

/// Describes an entry that is neither a file nor a folder.
fn described(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a link; put the file itself in its place",
        FileType::Fifo => "a pipe, not a regular file",
        FileType::Socket => "a socket, not a regular file",
        FileType::CharacterDevice | FileType::BlockDevice => "a device, not a regular file",
        _ => "not a regular file",
    }
}

impl OpenFile {
    /// Reads the bytes. Fails if the size has changed since the opening.
    pub fn read(self) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = Vec::new();
        let read = self.file.take(self.size.saturating_add(1)).read_to_end(&mut bytes);
        match read {
            Ok(read) if read as u64 == self.size => Ok(bytes),
            Ok(_) => Err(unreadable(&self.path, io::Error::other("it changed while it was read; retry"))),
            Err(error) => Err(unreadable(&self.path, error)),
        }
    }
}

impl Folder {
    /// The path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sorted names of the entries. Fails if there are more than `most`.
    pub fn names(&self, most: usize) -> Result<Vec<String>, Unreadable> {
        let failed = |source: io::Error| unreadable(&self.path, source);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(|errno| failed(errno.into()))? {
            let entry = entry.map_err(|errno| failed(errno.into()))?;
            let name = entry.file_name().to_bytes();
            if [&b"."[..], b".."].contains(&name) {
                continue;
            }
            let name = std::str::from_utf8(name).map_err(|_| {
                let name = name.escape_ascii();
                failed(io::Error::other(format!("the name \"{name}\" of one of its files is not UTF-8; rename it")))
            })?;
            names.push(name.to_owned());
            if names.len() > most {
                return Err(failed(io::Error::other(format!("it has more than {most} files"))));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens an entry. Returns `None` if it does not exist.
    pub fn open(&self, name: &str) -> Result<Option<Opened>, Unreadable> {
        let path = self.path.join(name);
        // Checked before opening, because opening may already affect a device.
        let kind = match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => FileType::from_raw_mode(stat.map_err(|errno| unreadable(&path, errno))?.st_mode),
        };
        if ![FileType::RegularFile, FileType::Directory].contains(&kind) {
            return Err(unreadable(&path, io::Error::other(described(kind))));
        }
        opened(&self.fd, name.as_ref(), path, OFlags::NOFOLLOW).map(Some)
    }

    /// Opens a regular file.
    pub fn file(&self, name: &str) -> Result<OpenFile, Unreadable> {
        let failed = |source: io::Error| unreadable(&self.path.join(name), source);
        match self.open(name)? {
            Some(Opened::File(file)) => Ok(file),
            Some(Opened::Folder(_)) => Err(failed(io::ErrorKind::IsADirectory.into())),
            None => Err(failed(io::ErrorKind::NotFound.into())),
        }
    }

    /// Opens a subfolder. Returns `None` if it does not exist.
    pub fn folder(&self, name: &str) -> Result<Option<Self>, Unreadable> {
        let not_a_folder = || unreadable(&self.path.join(name), io::Error::from(io::ErrorKind::NotADirectory));
        match self.open(name)? {
            Some(Opened::Folder(folder)) => Ok(Some(folder)),
            Some(Opened::File(_)) => Err(not_a_folder()),
            None => Ok(None),
        }
    }

    /// Opens the folder at a relative path. Returns `None` if it does not exist.
    pub fn descend(&self, below: &str) -> Result<Option<Self>, Unreadable> {
        let fd = self.fd.try_clone().map_err(|error| unreadable(&self.path, error))?;
        let start = Self { fd, path: self.path.clone() };
        let mut names = below.split_terminator('/');
        names.try_fold(Some(start), |folder, name| folder.map_or(Ok(None), |folder| folder.folder(name)))
    }

    /// Returns the target of a link; `None` if no such link exists.
    pub fn link(&self, name: &str) -> Result<Option<String>, Unreadable> {
        let failed = |source: io::Error| unreadable(&self.path.join(name), source);
        match readlinkat(&self.fd, name, Vec::new()) {
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            target => {
                let target = target.map_err(|errno| failed(errno.into()))?;
                let target = target.into_string().map_err(|_| failed(io::Error::other("its target is not UTF-8")))?;
                Ok(Some(target))
            }
        }
    }
}
