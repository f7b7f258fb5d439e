//! What happens inside of instances (pure): their commands and what they use.

use std::time::Duration;

use ccm_drivers::contract::{CommandOutput, Usage};

/// The file of the user data inside of an instance, where images with cloud-init have it.
pub(super) const USER_DATA: &str = "/var/lib/cloud/seed/nocloud/user-data";

/// The bytes that an instance moves in a second, to and from networks and disks.
const BYTES_PER_SECOND: u64 = 1000;

/// Runs one of the few commands that instances have.
pub(super) fn run(hostname: &str, user_data: &[u8], command: &[String]) -> CommandOutput {
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    let (exit_code, stdout, stderr) = match words[..] {
        ["true"] | [] => (0, String::new(), String::new()),
        ["false"] => (1, String::new(), String::new()),
        ["hostname"] => (0, format!("{hostname}\n"), String::new()),
        ["echo", ref words @ ..] => (0, format!("{}\n", words.join(" ")), String::new()),
        ["cat", USER_DATA] => (0, String::from_utf8_lossy(user_data).into_owned(), String::new()),
        ["cat", path] => (1, String::new(), format!("cat: {path}: No such file or directory\n")),
        [name, ..] => (127, String::new(), format!("{name}: command not found\n")),
    };
    CommandOutput { exit_code, stdout, stderr }
}

/// What an instance has used since it was started; `None` if it does not run. It uses a tenth of its processors and a quarter
/// of its memory.
pub(super) fn usage(uptime: Option<Duration>, cpus: u64, memory: Option<u64>) -> Usage {
    let runs = uptime.is_some();
    let uptime = uptime.unwrap_or_default();
    let bytes = Some(uptime.as_secs() * BYTES_PER_SECOND);
    Usage {
        processor_seconds: Some(uptime.as_secs_f64() * Duration::from_secs(cpus).as_secs_f64() / 10.0),
        memory_bytes: memory.map(|memory| if runs { memory / 4 } else { 0 }),
        memory_limit_bytes: memory,
        network_received_bytes: bytes,
        network_sent_bytes: bytes,
        disk_read_bytes: bytes,
        disk_written_bytes: bytes,
    }
}
