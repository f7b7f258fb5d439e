//! The output of a command (pure): a stream of frames of both of its sides.

use ccm_drivers::contract::{Error, ErrorKind, Result};

/// The maximum number of bytes that are kept of each side.
const MOST: usize = 1 << 20;

/// What stands at the end of an output that was longer.
const CUT: &str = "\n(cut after 1 MiB)\n";

/// The side of a frame and three zeros, and its length.
const HEADER: usize = 8;

/// One side.
#[derive(Default)]
struct Side {
    kept: Vec<u8>,
    is_cut: bool,
}

impl Side {
    fn push(&mut self, bytes: &[u8]) {
        let room = MOST - self.kept.len();
        self.is_cut |= bytes.len() > room;
        self.kept.extend(bytes.iter().take(room));
    }

    fn end(self) -> String {
        let cut = if self.is_cut { CUT } else { "" };
        format!("{}{cut}", String::from_utf8_lossy(&self.kept))
    }
}

/// The output so far.
#[derive(Default)]
pub(super) struct Output {
    stdout: Side,
    stderr: Side,
    header: Vec<u8>,
    /// What is missing of the frame with this header.
    missing: usize,
}

impl Output {
    /// Adds the next bytes of the stream, wherever they begin and end.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let (piece, rest) = bytes.split_at(self.missing.min(bytes.len()));
                let side = if self.header.first() == Some(&2) { &mut self.stderr } else { &mut self.stdout };
                side.push(piece);
                self.missing -= piece.len();
                bytes = rest;
                continue;
            }
            if self.header.len() == HEADER {
                self.header.clear();
            }
            let (piece, rest) = bytes.split_at((HEADER - self.header.len()).min(bytes.len()));
            self.header.extend(piece);
            bytes = rest;
            if let [side, zeros @ .., a, b, c, d] = self.header.as_slice()
                && self.header.len() == HEADER
            {
                if !(1..=2).contains(side) || zeros != [0, 0, 0] {
                    return Err(unreadable("it is not the stream of a command"));
                }
                self.missing = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
            }
        }
        Ok(())
    }

    /// Returns standard output and standard error.
    pub(super) fn end(self) -> Result<(String, String)> {
        if self.missing > 0 || !(self.header.is_empty() || self.header.len() == HEADER) {
            return Err(Error::new(ErrorKind::Unavailable, "the output of the command was cut off"));
        }
        Ok((self.stdout.end(), self.stderr.end()))
    }
}

fn unreadable(problem: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the output of the command cannot be read: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(side: u8, text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[side, 0, 0, 0], &length[..], text].concat()
    }

    fn read(stream: &[u8], size: usize) -> Result<(String, String)> {
        let mut output = Output::default();
        stream.chunks(size).try_for_each(|chunk| output.push(chunk))?;
        output.end()
    }

    #[test]
    fn both_sides_are_kept_apart_wherever_the_pieces_end() {
        let stream = [frame(1, b"out"), frame(2, b"error"), frame(1, b""), frame(1, b" more\xff")].concat();
        for size in 1..=stream.len() {
            assert_eq!(read(&stream, size).unwrap(), ("out more\u{fffd}".to_owned(), "error".to_owned()), "{size}");
        }
        assert_eq!(read(&[], 1).unwrap(), (String::new(), String::new()));
    }

    #[test]
    fn a_stream_that_is_none_is_refused() {
        let whole = frame(1, b"out");
        for end in 1..whole.len() {
            assert_eq!(read(&whole[..end], 3).unwrap_err().kind, ErrorKind::Unavailable, "{end}");
        }
        for stream in [frame(0, b"x"), frame(3, b"x"), b"plain text".to_vec(), vec![1, 1, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(read(&stream, 64).unwrap_err().kind, ErrorKind::Internal);
        }
    }

    #[test]
    fn a_long_output_is_cut() {
        let exact = [frame(1, &vec![b'x'; MOST]), frame(2, &vec![b'y'; MOST + 1])].concat();
        let (stdout, stderr) = read(&exact, 4096).unwrap();
        assert_eq!(stdout.len(), MOST);
        assert!(stderr.len() == MOST + CUT.len() && stderr.ends_with(CUT));
        // A frame that promises four gigabytes takes no memory.
        let mut output = Output::default();
        output.push(&[1, 0, 0, 0, 255, 255, 255, 255]).unwrap();
        assert_eq!(output.end().unwrap_err().kind, ErrorKind::Unavailable);
    }
}
