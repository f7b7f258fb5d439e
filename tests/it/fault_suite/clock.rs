//! A wall clock that is wrong, for one process: a library that is loaded before the C library and adds to the time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};

/// The library. It adds the seconds in a file to the wall clock, and leaves the other clocks alone.
const LIBRARY: &str = r#"
use std::ffi::{c_int, c_long};

#[repr(C)]
pub struct Timespec { seconds: c_long, nanoseconds: c_long }

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn open(path: *const std::ffi::c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, buffer: *mut u8, length: usize) -> isize;
    fn close(file: c_int) -> c_int;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    unsafe {
        let result = syscall(NUMBER, clock as c_long, time);
        if clock == 0 && result == 0 {
            let file = open(c"FILE".as_ptr(), 0);
            let mut buffer = [0_u8; 16];
            let length = read(file, buffer.as_mut_ptr(), buffer.len());
            close(file);
            let text = std::str::from_utf8(&buffer[..length.max(0) as usize]).unwrap_or("0");
            (*time).seconds += text.trim().parse::<c_long>().unwrap_or(0);
        }
        result as c_int
    }
}
"#;

pub(super) struct Clock {
    library: PathBuf,
    seconds: PathBuf,
}

impl Clock {
    /// Builds the library in a folder.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let (source, library, seconds) = (folder.join("clock.rs"), folder.join("clock.so"), folder.join("clock"));
        let number = libc::SYS_clock_gettime.to_string();
        fs::write(&source, LIBRARY.replace("NUMBER", &number).replace("FILE", &seconds.display().to_string()))?;
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
            .args([&library, &source])
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let clock = Self { library, seconds };
        clock.set(0)?;
        Ok(clock)
    }

    /// The variables of a process with this clock.
    pub(super) fn env(&self) -> [(String, String); 1] {
        [("LD_PRELOAD".to_owned(), self.library.display().to_string())]
    }

    /// Sets by how many seconds the clock is wrong.
    pub(super) fn set(&self, seconds: i64) -> Result<()> {
        let next = self.seconds.with_extension("next");
        fs::write(&next, seconds.to_string())?;
        Ok(fs::rename(next, &self.seconds)?)
    }
}
