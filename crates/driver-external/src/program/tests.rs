use std::os::fd::OwnedFd;

use super::*;

fn refused(with: impl Fn(MemfdFlags) -> rustix::io::Result<OwnedFd>) -> Problem {
    let file = tempfile::tempfile().unwrap();
    sealed(&file, Path::new("/p/cloud"), with).unwrap_err()
}

#[test]
fn a_kernel_that_refuses_executable_memory_is_named() {
    assert!(matches!(refused(|_| Err(Errno::ACCESS)), Problem::MemfdNoExec));
    assert!(matches!(refused(|_| Err(Errno::MFILE)), Problem::Memory { .. }));
    // With memory that is not executable it would only fail later.
    let asked = std::cell::Cell::new(MemfdFlags::empty());
    refused(|flags| {
        asked.set(flags);
        Err(Errno::ACCESS)
    });
    assert!(asked.get().contains(MemfdFlags::EXEC | MemfdFlags::CLOEXEC));
}

#[test]
fn a_kernel_before_the_flag_is_asked_without_it() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"abc").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let create = |flags: MemfdFlags| {
        if flags.contains(MemfdFlags::EXEC) { Err(Errno::INVAL) } else { rustix::fs::memfd_create("x", flags) }
    };
    let bytes = sealed(&file, Path::new("/p/cloud"), create).unwrap();
    assert_eq!(digest(&bytes).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn a_file_that_is_too_large_is_not_read_to_its_end() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(MAX_SIZE + 1).unwrap();
    // A file without memory of its own takes the bytes.
    let problem = sealed(&file, Path::new("/p/cloud"), |_| Ok(File::create("/dev/null").unwrap().into())).unwrap_err();
    assert!(matches!(problem, Problem::TooLarge { most: MAX_SIZE, .. }), "{problem}");
}
