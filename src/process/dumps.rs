//! Core dumps (IO): none, as the memory of the process holds tokens and Secrets.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps this process, and those that it starts, from leaving their memory in a file when they end by a panic.
///
/// # Errors
///
/// The system does not let the limit be lowered.
pub fn disable() -> io::Result<()> {
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_process_is_not_left_in_a_file() {
        disable().unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
    }
}
