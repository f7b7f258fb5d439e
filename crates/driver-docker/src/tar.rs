//! Writes the tar of a few small files, in the format ustar (pure).

/// The size of a header, and the unit of all other parts.
const BLOCK: usize = 512;

const MODE: usize = 100;
const OWNER: usize = 108;
const GROUP: usize = 116;
const SIZE: usize = 124;
const TIME: usize = 136;
const CHECKSUM: usize = 148;
const TYPE: usize = 156;
const FORMAT: usize = 257;

/// A tar under construction. Paths are relative and have at most 100 bytes; everything belongs to root.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    /// Adds a folder that everybody may enter.
    pub(crate) fn folder(&mut self, path: &str) {
        self.0.extend(header(&format!("{path}/"), "0000755", "5", 0));
    }

    /// Adds a file that only its owner may read.
    pub(crate) fn file(&mut self, path: &str, bytes: &[u8]) {
        self.0.extend(header(path, "0000600", "0", bytes.len()));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// Returns the whole tar.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

fn header(path: &str, mode: &str, kind: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at, text: &str| put_at(&mut header, at, text);
    put(0, path);
    put(MODE, mode);
    put(OWNER, "0000000");
    put(GROUP, "0000000");
    put(SIZE, &format!("{size:011o}"));
    put(TIME, "00000000000");
    // The sum counts its own field as spaces.
    put(CHECKSUM, "        ");
    put(TYPE, kind);
    put(FORMAT, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put_at(&mut header, CHECKSUM, &format!("{sum:06o}\0"));
    header
}

fn put_at(header: &mut [u8; BLOCK], at: usize, text: &str) {
    header.iter_mut().skip(at).zip(text.bytes()).for_each(|(byte, new)| *byte = new);
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, process::Command};

    use super::*;

    #[test]
    fn the_system_s_tar_reads_it() {
        let mut tar = Tar::default();
        tar.folder("seed");
        tar.folder("seed/nocloud");
        tar.file("seed/nocloud/user-data", b"#cloud-config\n");
        tar.file("seed/nocloud/empty", b"");
        tar.file("seed/nocloud/big", &[7; 1025]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it.tar");
        fs::write(&file, tar.end()).unwrap();
        let output = Command::new("tar").arg("-C").arg(folder.path()).arg("-xpf").arg(&file).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let seed = folder.path().join("seed/nocloud");
        assert_eq!(fs::read(seed.join("user-data")).unwrap(), b"#cloud-config\n");
        assert_eq!(fs::read(seed.join("empty")).unwrap(), b"");
        assert_eq!(fs::read(seed.join("big")).unwrap(), [7; 1025]);
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&seed), mode(&seed.join("user-data"))), (0o755, 0o600));
    }
}
