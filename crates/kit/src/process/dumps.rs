//! Turns off core dumps (IO), because the memory of the process holds tokens and Secrets.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// A size with which Linux writes no core dump. A file would be smaller than the smallest dump, a page. A pipe to a program
/// (`kernel.core_pattern` begins with `|`) ignores every other limit. This size also keeps that program from dumping itself.
const NO_DUMP: u64 = 1;

/// Prevents this process and its children from dumping their memory to a file or a pipe after a panic. A socket (`kernel.core_pattern`
/// begins with `@`, since Linux 6.16) ignores every limit.
pub fn disable() -> io::Result<()> {
    let limit = |size| setrlimit(Resource::Core, Rlimit { current: Some(size), maximum: Some(size) });
    // If the limit is already 0, raising it needs a privilege. With 0 no file is written.
    Ok(limit(NO_DUMP).or_else(|_| limit(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_process_is_left_neither_in_a_file_nor_in_a_pipe() {
        disable().unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["1", "1"]);
    }
}
