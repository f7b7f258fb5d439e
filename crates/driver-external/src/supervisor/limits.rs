//! The limits of a driver and of each process that it starts (IO). They are those of the supervisor, which passes them on.

use rustix::{
    io,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// The maximum size of a file, in bytes: a disk that is full of one driver's file stops the whole node. The disk of an instance is made
/// by the cloud, and a disk with user data is small.
const FILE_SIZE: u64 = 256 << 20;

/// The maximum number of open files: enough for a hundred connections, and for a language that opens a file per module.
const OPEN_FILES: u64 = 1024;

/// The maximum size of the data of one process, in bytes: libraries of clouds in Python take 150 MiB.
const DATA: u64 = 1 << 30;

/// Sizes of core dumps with which there is none, the best one first: the memory of a driver has the credentials. With 1 a program that
/// takes dumps (`kernel.core_pattern`) gets none either; it is allowed unless the limit is 0 already.
const CORE: [u64; 2] = [1, 0];

/// Sets the limits. No hard limit is raised.
pub(super) fn set() -> io::Result<()> {
    for (resource, most) in [(Resource::Fsize, FILE_SIZE), (Resource::Nofile, OPEN_FILES), (Resource::Data, DATA)] {
        limit(resource, getrlimit(resource).maximum.map_or(most, |present| present.min(most)))?;
    }
    limit(Resource::Core, CORE[0]).or_else(|_| limit(Resource::Core, CORE[1]))
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}
