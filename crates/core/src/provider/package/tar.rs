//! The canonical tar of a package (pure): regular files `NAME/path` in the format ustar, sorted by path, mode 0644,
//! owner and group 0 without names, time 0, then two zero blocks, and nothing else.
//!
//! Each file has exactly one such form, so a header is read by writing the expected header and comparing. A general
//! reader of tars supports links, sparse files and extensions of several vendors, which are all refused here. GNU tar
//! writes the same bytes: `find NAME -type f | LC_ALL=C sort | tar --create --format=ustar --owner=0 --group=0
//! --numeric-owner --mode=0644 --mtime=@0 --blocking-factor=1 --file=NAME.tar --files-from=-`.

use super::{MAX_FILES, MAX_SUM, Package, check_file_size, digest};
use crate::provider::Error;

/// The size of a header, and the unit of all other parts.
const BLOCK: usize = 512;

/// The size of the largest tar within the limits of a package.
pub(super) const MAX_TAR: u64 = MAX_SUM + (MAX_FILES as u64 + 1) * 2 * BLOCK as u64;

/// The fields of a header: offset, name and only valid value. An empty value depends on the file, or is zero.
const FIELDS: [(usize, &str, &str); 16] = [
    (0, "path", ""),
    (100, "mode", "0000644\0"),
    (108, "owner", "0000000\0"),
    (116, "group", "0000000\0"),
    (SIZE, "size", ""),
    (136, "time", "00000000000\0"),
    (CHECKSUM, "checksum", ""),
    (TYPE, "type", "0"),
    (157, "target of a link", ""),
    (257, "format", "ustar\x0000"),
    (265, "name of the owner", ""),
    (297, "name of the group", ""),
    (329, "device", "0000000\0"),
    (337, "device", "0000000\0"),
    (345, "first part of the path", ""),
    (500, "padding", ""),
];

const SIZE: usize = 124;
const CHECKSUM: usize = 148;
const TYPE: usize = 156;

/// The first bytes of compressed files.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz"), (b"BZh", "bzip2")];

impl Package {
    /// Reads the package of a canonical tar and refuses anything else.
    pub fn from_tar(tar: &[u8]) -> Result<Self, Error> {
        let (name, files) = read(tar)?;
        Ok(Self { digest: digest(tar), ..Self::without_digest(name, files)? })
    }

    /// Builds the canonical tar.
    pub fn tar(&self) -> Vec<u8> {
        let mut tar = Vec::new();
        for (path, bytes) in self.files() {
            tar.extend(header(&format!("{}/{path}", self.name), bytes.len()));
            tar.extend(bytes);
            tar.resize(tar.len().next_multiple_of(BLOCK), 0);
        }
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }
}

fn header(path: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        header.iter_mut().skip(at).zip(text.bytes()).for_each(|(byte, new)| *byte = new);
    };
    for (at, _, value) in FIELDS {
        put(at, value);
    }
    put(0, path);
    put(SIZE, &format!("{size:011o}\0"));
    let sum = sum(&header);
    header.iter_mut().skip(CHECKSUM).zip(sum.bytes()).for_each(|(byte, new)| *byte = new);
    header
}

/// Returns the checksum of a header: of its bytes with spaces in place of the checksum.
pub(super) fn sum(header: &[u8; BLOCK]) -> String {
    let is_sum = |at: usize| (CHECKSUM..TYPE).contains(&at);
    let bytes = header.iter().enumerate().map(|(at, byte)| if is_sum(at) { b' ' } else { *byte });
    format!("{:06o}\0 ", bytes.map(u32::from).sum::<u32>())
}

/// The files of a package, by their path in its folder.
type Files<'a> = Vec<(&'a str, &'a [u8])>;

/// Reads the provider's name and the files of a canonical tar, and refuses anything else.
fn read(tar: &[u8]) -> Result<(&str, Files<'_>), Error> {
    if let Some((_, format)) = COMPRESSED.iter().find(|(magic, _)| tar.starts_with(magic)) {
        return Err(Error::new("tar", None, format!("compressed with {format}: give the tar itself")));
    }
    // The header of a file is padded with zeros.
    if !tar.is_empty() && !tar.iter().take(BLOCK).any(|byte| *byte == 0) {
        let problem = "a text, such as a manifest: give the provider's folder, or the tar that `ccm-operator provider pack` writes";
        return Err(Error::new("tar", None, problem.to_owned()));
    }
    check_size(tar.len() as u64)?;
    let (mut rest, mut previous) = (tar, "");
    let (mut name, mut files) = (None, Files::new());
    loop {
        let Some((block, after)) = rest.split_first_chunk::<BLOCK>() else {
            return Err(refused("tar", "cut off: it ends without two blocks of zeros"));
        };
        if is_zero(block) {
            check_end(after)?;
            break;
        }
        let entry = Entry::read(block)?;
        let (top, path) = entry.check(previous)?;
        if *name.get_or_insert(top) != top {
            return Err(refused(entry.path, &format!("in another folder than {previous}")));
        }
        let (bytes, padding) = entry.split(after)?;
        files.push((path, bytes));
        (previous, rest) = (entry.path, padding);
    }
    let name = name.ok_or_else(|| refused("tar", "has no file"))?;
    Ok((name, files))
}

pub(super) fn check_size(size: u64) -> Result<(), Error> {
    if size <= MAX_TAR {
        return Ok(());
    }
    Err(Error::new("tar", None, format!("{size} bytes; the tar of a package may have {MAX_TAR}")))
}

/// Returns a defect of the form, with its fix.
fn refused(what: impl AsRef<[u8]>, problem: &str) -> Error {
    let what = what.as_ref().escape_ascii().to_string();
    Error::new(&what, None, format!("{problem}; pack the provider's folder with `ccm-operator provider pack`"))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Checks the bytes after the first block of zeros.
fn check_end(after: &[u8]) -> Result<(), Error> {
    if !is_zero(after) {
        return Err(refused("tar", "has bytes after its end"));
    }
    if after.len() == BLOCK {
        return Ok(());
    }
    Err(refused("tar", &format!("ends with {} zeros, not {}", BLOCK + after.len(), 2 * BLOCK)))
}

fn check_path(path: &str) -> Result<(), Error> {
    if path.starts_with('/') {
        return Err(refused(path, "an absolute path"));
    }
    if path.split('/').any(|part| [".", ".."].contains(&part)) {
        return Err(refused(path, "a path with . or .."));
    }
    Ok(())
}

/// A header in the only valid form for its file.
struct Entry<'a> {
    path: &'a str,
    size: usize,
}

impl<'a> Entry<'a> {
    fn read(block: &'a [u8; BLOCK]) -> Result<Self, Error> {
        let bytes = text(block, 0);
        let path = std::str::from_utf8(bytes).map_err(|_| refused(bytes, "its path is not UTF-8"))?;
        // Reports mistakes of the author first. Other differences may come from another tar program.
        check_path(path)?;
        let kind = match block[TYPE] {
            b'0' => None,
            b'1' => Some("a hard link"),
            b'2' => Some("a link"),
            b'3' | b'4' => Some("a device"),
            b'5' => Some("a folder: only files have an entry"),
            b'6' => Some("a pipe"),
            b'x' | b'g' => Some("an extension of pax"),
            b'S' => Some("a sparse file"),
            b'L' | b'K' => Some("an extension of GNU tar"),
            _ => Some("of an unknown type"),
        };
        if let Some(kind) = kind {
            return Err(refused(path, kind));
        }
        let size = text(block, SIZE);
        let digits = std::str::from_utf8(size).ok().filter(|size| size.len() == 11);
        let size = digits
            .and_then(|digits| usize::from_str_radix(digits, 8).ok())
            .ok_or_else(|| refused(path, &format!("its size {} is not 11 octal digits", size.escape_ascii())))?;
        check_file_size(path, size as u64)?;
        let expected = header(path, size);
        // The checksum comes last, because every other difference also changes it.
        let fields = FIELDS.iter().map(|(at, name, _)| (*at, *name));
        let (sum, others): (Vec<_>, Vec<_>) = fields.partition(|(at, _)| *at == CHECKSUM);
        let differs = |at| field(block, at) != field(&expected, at);
        if let Some((at, name)) = others.into_iter().chain(sum).find(|(at, _): &(usize, &str)| differs(*at)) {
            let shown = |block| field(block, at).escape_ascii().to_string().replace("\\x00", "");
            let problem = format!("its {name} is \"{}\", not \"{}\"", shown(block), shown(&expected));
            return Err(refused(path, &problem));
        }
        Ok(Self { path, size })
    }

    /// Returns the top-level folder, and the path below it.
    fn check(&self, previous: &str) -> Result<(&'a str, &'a str), Error> {
        let parts = self.path.split_once('/').ok_or_else(|| refused(self.path, "not in a folder"))?;
        if self.path == previous {
            return Err(refused(self.path, "there twice"));
        }
        if self.path < previous {
            return Err(refused(self.path, &format!("not in the order of paths: it comes after {previous}")));
        }
        Ok(parts)
    }

    /// Returns its bytes, and the rest after their last block.
    fn split<'b>(&self, after: &'b [u8]) -> Result<(&'b [u8], &'b [u8]), Error> {
        let padded = self.size.next_multiple_of(BLOCK);
        let (Some(bytes), Some(padding), Some(rest)) =
            (after.get(..self.size), after.get(self.size..padded), after.get(padded..))
        else {
            return Err(refused(self.path, &format!("cut off: it has {} bytes", self.size)));
        };
        if !is_zero(padding) {
            return Err(refused(self.path, "has bytes after its end"));
        }
        Ok((bytes, rest))
    }
}

fn field(block: &[u8; BLOCK], at: usize) -> &[u8] {
    let end = FIELDS.iter().map(|(at, ..)| *at).find(|next| *next > at).unwrap_or(BLOCK);
    block.get(at..end).unwrap_or_default()
}

/// Returns the bytes of a field up to the first zero.
fn text(block: &[u8; BLOCK], at: usize) -> &[u8] {
    field(block, at).split(|byte| *byte == 0).next().unwrap_or_default()
}
