//! Why the kernel does not start a program, from the beginning of its bytes (pure).

use std::{env::consts::ARCH, io, path::Path};

use crate::problem::Problem;

/// How many bytes of a program are looked at: a page, in which the line of an interpreter has to end.
pub(crate) const HEAD: usize = 4096;

/// What every program of Linux begins with.
const ELF: &[u8] = b"\x7fELF";

/// Architectures by the numbers that the header of a program has for them, with the names that Rust has for them.
const ARCHITECTURES: [(u16, &str); 9] = [
    (2, "sparc"),
    (3, "x86"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
];

/// The problem of a program that could not be started.
pub(crate) fn cannot_start(path: &Path, head: &[u8], source: io::Error) -> Problem {
    let path = path.to_owned();
    match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => Problem::NoInterpreter { path, interpreter: interpreter(head) },
        (_, Some(code)) if code == rustix::io::Errno::NOEXEC.raw_os_error() => match architecture(head) {
            Some(found) => Problem::OtherArchitecture { path, found, here: ARCH },
            None => Problem::NotAProgram { path },
        },
        _ => Problem::CannotStart { path, source },
    }
}

/// The program that `/usr/bin/env` in the first line of a script looks for, if there is such a line.
pub(crate) fn looked_for(head: &[u8]) -> Option<String> {
    let line = first_line(head)?;
    // Not at the `\r` of a line break of Windows, which is a part of the name.
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let is_env = words.next()?.ends_with("/env");
    words.find(|word| !word.starts_with('-')).filter(|_| is_env).map(str::to_owned)
}

/// What stands after `#!` in the first line of a script.
fn first_line(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

fn interpreter(head: &[u8]) -> String {
    let words = |line: String| line.trim_matches([' ', '\t']).split([' ', '\t']).next().map(str::to_owned);
    first_line(head).and_then(words).unwrap_or_else(|| "the loader of its C library".to_owned())
}

/// The architecture of a program of Linux, also of one for this machine that is damaged.
fn architecture(head: &[u8]) -> Option<String> {
    const BIG_ENDIAN: u8 = 2;
    let header = head.strip_prefix(ELF)?;
    let (order, machine) = (header.get(1)?, [*header.get(14)?, *header.get(15)?]);
    let machine = if *order == BIG_ENDIAN { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    let name = ARCHITECTURES.iter().find(|(number, _)| *number == machine).map(|(_, name)| (*name).to_owned());
    Some(name.unwrap_or_else(|| format!("the architecture {machine}"))).filter(|name| name != ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(order: u8, machine: [u8; 2]) -> Vec<u8> {
        [ELF, &[2, order, 1], &[0; 9], &[2, 0], &machine].concat()
    }

    #[test]
    fn the_header_of_a_program_says_what_it_is_for() {
        let problem = |head: &[u8]| {
            let source = io::Error::from(rustix::io::Errno::NOEXEC);
            cannot_start(Path::new("/p/x"), head, source).to_string()
        };
        let other = if ARCH == "aarch64" { (62, "x86_64") } else { (183, "aarch64") };
        assert!(problem(&header(1, [other.0, 0])).contains(&format!("for {}, and this machine is {ARCH}", other.1)));
        assert!(problem(&header(2, [0, 22])).contains("for s390x"));
        assert!(problem(&header(1, [1, 2])).contains("for the architecture 513"));
        let own = ARCHITECTURES.iter().find(|(_, name)| *name == ARCH).unwrap().0;
        for head in [&header(1, own.to_le_bytes())[..], b"", b"echo", &ELF[..2], ELF, &header(1, [1, 2])[..18]] {
            assert!(problem(head).contains("is neither a program"), "{head:?}");
        }
    }

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let problem = |head: &[u8]| {
            let source = io::Error::from(io::ErrorKind::NotFound);
            cannot_start(Path::new("/p/x"), head, source).to_string()
        };
        assert!(problem(b"#! /usr/bin/python4 -I\nimport os").contains("needs \"/usr/bin/python4\""));
        assert!(problem(b"#!/bin/sh\r\n").contains(r#"needs "/bin/sh\r""#), "a line break of Windows is seen");
        assert!(problem(&header(1, [62, 0])).contains("the loader of its C library"));
        assert_eq!(looked_for(b"#!/usr/bin/env -S python4 -I\n").as_deref(), Some("python4"));
        assert_eq!(looked_for(b"#! /usr/bin/env\t python4").as_deref(), Some("python4"));
        assert_eq!(looked_for(b"#!/usr/bin/env python4\r\n").as_deref(), Some("python4\r"));
        for head in [&b"#!/bin/sh -e\n"[..], b"#!/usr/bin/env\n", b"", b"#!\n"] {
            assert_eq!(looked_for(head), None, "{head:?}");
        }
    }
}
