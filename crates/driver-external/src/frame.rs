//! What a program and its supervisor tell each other: blocks of bytes, each with its length in front (pure).

use std::{
    io::{self, Read},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// How a driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// With an exit status.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
    /// It was not started, for the reason of this number.
    NotStarted(i32),
    /// It took too long.
    TimedOut,
    /// It wrote too much.
    TooMuchOutput,
    /// It started too much.
    TooManyProcesses,
}

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// How long it may take.
    pub(crate) limit: Option<Duration>,
    /// The standard input of the driver.
    pub(crate) input: Vec<u8>,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// How the driver ended.
    pub(crate) ended: Ended,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// The end of its standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Order {
    pub(crate) fn write(&self) -> io::Result<Vec<u8>> {
        let milliseconds = self.limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        blocks(&[&milliseconds.to_be_bytes(), &self.input])
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let milliseconds = block(from)?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        let milliseconds = Some(u64::from_be_bytes(milliseconds)).filter(|limit| *limit > 0);
        Ok(Self { limit: milliseconds.map(Duration::from_millis), input: block(from)? })
    }
}

impl Report {
    pub(crate) fn write(&self) -> io::Result<Vec<u8>> {
        blocks(&[&serde_json::to_vec(&self.ended)?, &self.stdout, &self.stderr])
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        Ok(Self { ended: serde_json::from_slice(&block(from)?)?, stdout: block(from)?, stderr: block(from)? })
    }
}

fn blocks(blocks: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for block in blocks {
        let length = u32::try_from(block.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(*block);
    }
    Ok(bytes)
}

fn block(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).into();
    let mut block = Vec::new();
    let read = from.take(length).read_to_end(&mut block)?;
    if read as u64 == length { Ok(block) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_less() {
        let order = Order { limit: Some(Duration::from_secs(30)), input: b"{}".to_vec() };
        let bytes = order.write().unwrap();
        assert_eq!(Order::read(&mut &bytes[..]).unwrap(), order);
        let report = Report { ended: Ended::Signaled(9), stdout: vec![255, 0], stderr: vec![] };
        let bytes = report.write().unwrap();
        assert_eq!(Report::read(&mut &bytes[..]).unwrap(), report);
        for end in 0..bytes.len() {
            assert!(Report::read(&mut &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn the_shortest_limit_is_not_none() {
        for (limit, read) in [(None, None), (Some(1), Some(1)), (Some(u64::MAX), Some(u64::MAX))] {
            let order = Order { limit: limit.map(Duration::from_millis), input: vec![] };
            let bytes = order.write().unwrap();
            assert_eq!(Order::read(&mut &bytes[..]).unwrap().limit, read.map(Duration::from_millis));
        }
        let order = Order { limit: Some(Duration::from_nanos(1)), input: vec![] };
        let bytes = order.write().unwrap();
        assert_eq!(Order::read(&mut &bytes[..]).unwrap().limit, Some(Duration::from_millis(1)));
    }
}
