//! Drivers as real processes: shell and Python scripts that each test writes. The program of the test is also the supervisor, and a
//! program with drivers that other programs can end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test, which Clippy does not see without a harness"
)]

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

mod answers;
mod environment;
mod guards;
mod isolation;
mod lab;
mod trees;

/// A test and its name.
type Test = (&'static str, fn());

/// Lists the tests of a module.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::Test] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    if let Some(code) = ccm_driver_external::supervise(&arguments) {
        return code;
    }
    if let Some(code) = lab::program(&arguments) {
        return code;
    }
    let words: Vec<_> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let (mut failed, mut passed) = (0, 0);
    for (name, test) in [answers::TESTS, environment::TESTS, guards::TESTS, isolation::TESTS, trees::TESTS].concat() {
        if !is_wanted(name, &words) {
            continue;
        }
        if words.contains(&"--list") {
            println!("{name}: test");
            continue;
        }
        println!("test {name} ...");
        let result = catch_unwind(AssertUnwindSafe(test));
        *if result.is_ok() { &mut passed } else { &mut failed } += 1;
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
    }
    println!("test result: {}. {passed} passed; {failed} failed", if failed == 0 { "ok" } else { "FAILED" });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the arguments of Rust's own harness ask for a test: a part of its name, and not only those that are ignored.
fn is_wanted(name: &str, words: &[&str]) -> bool {
    // The number of threads may be a word of its own.
    let is_part = |at: &usize| !words[*at].starts_with('-') && (*at == 0 || words[at - 1] != "--test-threads");
    let mut parts = (0..words.len()).filter(is_part).map(|at| words[at]).peekable();
    !words.contains(&"--ignored") && (parts.peek().is_none() || parts.any(|part| name.contains(part)))
}
