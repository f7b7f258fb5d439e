//! Whether a file is a library, from its headers (IO).
//!
//! A library and a static program may be of the same type. A program that is linked with others has a loader; one that is not, and has
//! a mark or no need of others, is complete.

use std::{fs::File, os::unix::fs::FileExt};

/// What a file for 64 bits begins with, with the low byte first: that of every machine for which this program is built.
const ELF: &[u8] = b"\x7fELF\x02\x01";
/// The size of the header of a file.
const HEADER: usize = 64;
/// The type of libraries, and of programs that may stand anywhere in memory.
const ET_DYN: u64 = 3;
/// The size of the header of a segment.
const SEGMENT: usize = 56;
/// The segment of the table of what the loader needs.
const PT_DYNAMIC: u64 = 2;
/// The segment with the path of the loader.
const PT_INTERP: u64 = 3;
/// The size of a row of the table.
const ROW: usize = 16;
/// The maximum number of bytes of the table that are read.
const MAX_TABLE: u64 = 1 << 16;
/// The end of the table.
const DT_NULL: u64 = 0;
/// A library that is needed.
const DT_NEEDED: u64 = 1;
/// The name of a library.
const DT_SONAME: u64 = 14;
/// Marks.
const DT_FLAGS_1: u64 = 0x6fff_fffb;
/// The mark of a program.
const DF_1_PIE: u64 = 0x0800_0000;

/// Whether a file is a library, which the kernel would start all the same.
pub(super) fn is_library(bytes: &File) -> bool {
    inspect(bytes).unwrap_or_default()
}

fn inspect(bytes: &File) -> Option<bool> {
    let header = read(bytes, 0, HEADER)?;
    if !header.starts_with(ELF) || number(&header, 16, 2)? != ET_DYN {
        return None;
    }
    let (entry, segments) = (number(&header, 24, 8)?, number(&header, 32, 8)?);
    let (size, count) = (number(&header, 54, 2)?, number(&header, 56, 2)?);
    let mut table = None;
    for index in 0..count {
        let segment = read(bytes, segments.checked_add(index * size)?, SEGMENT)?;
        match number(&segment, 0, 4)? {
            PT_INTERP => return Some(false),
            PT_DYNAMIC => table = Some((number(&segment, 8, 8)?, number(&segment, 32, 8)?)),
            _ => {}
        }
    }
    let (offset, size) = table?;
    let table = read(bytes, offset, usize::try_from(size.min(MAX_TABLE)).ok()?)?;
    let rows = table.chunks_exact(ROW).filter_map(|row| Some((number(row, 0, 8)?, number(row, 8, 8)?)));
    let rows: Vec<_> = rows.take_while(|(tag, _)| *tag != DT_NULL).collect();
    let is_program = rows.iter().any(|(tag, value)| *tag == DT_FLAGS_1 && value & DF_1_PIE != 0);
    let is_shared = rows.iter().any(|(tag, _)| [DT_NEEDED, DT_SONAME].contains(tag));
    Some(!is_program && (is_shared || entry == 0))
}

fn read(bytes: &File, offset: u64, size: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; size];
    bytes.read_exact_at(&mut read, offset).ok()?;
    Some(read)
}

/// The number of some bytes, at most eight, with the low one first.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file with an entry, segments without contents, and a table behind them.
    fn file(kind: u16, entry: u64, segments: &[u64], table: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = ELF.to_vec();
        bytes.resize(HEADER, 0);
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[24..32].copy_from_slice(&entry.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54] = 56;
        bytes[56] = u8::try_from(segments.len()).unwrap();
        let end = u64::try_from(HEADER + SEGMENT * segments.len()).unwrap();
        for kind in segments {
            let mut segment = vec![0; SEGMENT];
            segment[..8].copy_from_slice(&kind.to_le_bytes());
            segment[8..16].copy_from_slice(&end.to_le_bytes());
            segment[32] = u8::try_from(ROW * table.len()).unwrap();
            bytes.extend(segment);
        }
        bytes.extend(table.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()]).flatten());
        bytes
    }

    fn is(bytes: &[u8]) -> bool {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        is_library(&file)
    }

    #[test]
    fn what_needs_others_and_has_no_loader_is_a_library() {
        const DYN: u16 = 3;
        let (needed, name, pie) = ((DT_NEEDED, 1), (DT_SONAME, 1), (DT_FLAGS_1, DF_1_PIE | 1));
        let segments = &[1, PT_DYNAMIC][..];
        for bytes in [
            file(DYN, 0x1040, segments, &[needed]),
            file(DYN, 0x1040, segments, &[(DT_FLAGS_1, 1), name]),
            file(DYN, 0, segments, &[(5, 1)]),
        ] {
            assert!(is(&bytes));
            // A file that is cut off is left to the kernel.
            assert!((0..bytes.len()).all(|end| !is(&bytes[..end])));
        }
        for bytes in [
            file(DYN, 0x1040, &[1, PT_DYNAMIC, PT_INTERP], &[needed]),
            file(DYN, 0x1040, segments, &[needed, pie]),
            // A static program.
            file(DYN, 0x1040, segments, &[(5, 1), (DT_NULL, 0), needed]),
            file(DYN, 0, segments, &[pie]),
            file(DYN, 0x1040, &[1], &[]),
            file(2, 0, segments, &[needed]),
            file(1, 0, &[], &[]),
            b"#!/bin/sh\n".to_vec(),
        ] {
            assert!(!is(&bytes));
        }
    }
}
