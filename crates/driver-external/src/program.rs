//! The verified bytes of a driver, in a file in memory that nobody can change (IO).

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, fstat, fstatvfs, openat},
    io::Errno,
};
use sha2::{Digest, Sha256};

use crate::{pin::Pin, problem::Problem};

pub(crate) mod format;
mod library;

/// The maximum number of bytes of a driver. It counts against the memory limit of the container for as long as the program runs.
const MAX_SIZE: u64 = 256 << 20;

/// The permissions of a file by which others than its owner can write to it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A driver whose bytes were verified. What runs are these bytes, also if the file is changed or replaced later.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    digest: String,
    bytes: File,
}

impl Program {
    /// Reads the file, verifies its digest, and keeps its bytes in memory. `folder` is the only folder from which drivers are taken; the
    /// file stands directly in it.
    pub fn load(folder: &Path, pin: &Pin) -> Result<Self, Problem> {
        let (file, path) = opened(folder, &pin.path)?;
        let bytes = sealed(&file, &path, |flags| {
            rustix::fs::memfd_create(path.file_name().unwrap_or_default().as_encoded_bytes(), flags)
        })?;
        // Of the bytes that run, not of those that were read.
        let digest = digest(&bytes).map_err(|source| Problem::Memory { source })?;
        if digest != pin.digest {
            return Err(Problem::OtherDigest { path, expected: pin.digest.clone(), found: digest });
        }
        if library::is_library(&bytes) {
            return Err(Problem::Library { path });
        }
        Ok(Self { path, digest, bytes })
    }

    /// The SHA-256 digest, as `sha256sum` prints it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The path of the file, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the file without its extension, which is also the name of the driver.
    pub(crate) fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The file in memory.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bytes.as_fd()
    }

    /// The beginning of the bytes, from which the kernel sees how to run them.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = vec![0; format::HEAD];
        let read = self.bytes.read_at(&mut head, 0).unwrap_or_default();
        head.truncate(read);
        head
    }
}

/// Opens the file once, without following a link, and looks at what was opened.
fn opened(folder: &Path, path: &Path) -> Result<(File, PathBuf), Problem> {
    let unreadable = |path: &Path, source: io::Error| Problem::Unreadable { path: path.to_owned(), source };
    let outside = || Problem::OutsideFolder { path: path.to_owned(), folder: folder.to_owned() };
    let name = path.file_name().ok_or_else(outside)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let canonical = folder.canonicalize().map_err(|source| Problem::NoFolder { folder: folder.to_owned(), source })?;
    if parent.canonicalize().map_err(|source| unreadable(parent, source))? != canonical {
        return Err(outside());
    }
    let file = File::open(&canonical).and_then(|folder| {
        // A pipe would block without NONBLOCK.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(folder, name, flags, Mode::empty())?)
    });
    let file = file.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::LOOP) => Problem::Link { path: path.to_owned() },
        // A socket.
        Some(Errno::NXIO) => Problem::NotRegular { path: path.to_owned() },
        _ => unreadable(path, source),
    })?;
    let stat = fstat(&file).map_err(|errno| unreadable(path, errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Problem::NotRegular { path: path.to_owned() });
    }
    let mode = Mode::from_raw_mode(stat.st_mode).as_raw_mode();
    if mode & 0o111 == 0 {
        return Err(Problem::NotExecutable { path: path.to_owned() });
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Problem::WritableByOthers { path: path.to_owned(), mode });
    }
    let mount = fstatvfs(&file).map_err(|errno| unreadable(path, errno.into()))?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Problem::NoExec { path: path.to_owned() });
    }
    Ok((file.into(), canonical.join(name)))
}

/// Copies a file into memory, and seals it there.
fn sealed(
    file: &File,
    path: &Path,
    create: impl Fn(MemfdFlags) -> rustix::io::Result<OwnedFd>,
) -> Result<File, Problem> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Before Linux 6.3 all files in memory were executable, and the flag did not exist.
    let created = match create(flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => create(flags),
        other => other,
    };
    let mut bytes = match created {
        Ok(bytes) => File::from(bytes),
        Err(Errno::ACCESS) => return Err(Problem::MemfdNoExec),
        Err(errno) => return Err(Problem::Memory { source: errno.into() }),
    };
    let mut buffer = vec![0; 1 << 16];
    let (mut file, mut size) = (file.take(MAX_SIZE + 1), 0);
    loop {
        let read = file.read(&mut buffer).map_err(|source| Problem::Unreadable { path: path.to_owned(), source })?;
        if read == 0 {
            break;
        }
        size += read as u64;
        if size > MAX_SIZE {
            return Err(Problem::TooLarge { path: path.to_owned(), most: MAX_SIZE });
        }
        bytes.write_all(&buffer[..read]).map_err(|source| Problem::Memory { source })?;
    }
    fcntl_add_seals(&bytes, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
        .map_err(|errno| Problem::Memory { source: errno.into() })?;
    bytes.seek(SeekFrom::Start(0)).map_err(|source| Problem::Memory { source })?;
    Ok(bytes)
}

fn digest(mut bytes: &File) -> io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match bytes.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")))
}

#[cfg(test)]
mod tests;
