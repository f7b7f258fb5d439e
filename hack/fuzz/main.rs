//! Runs one function of the library, named by the environment variable `FUZZ`, on inputs from libFuzzer.
#![no_main]

use std::sync::LazyLock;

use functions::{FUNCTIONS, Function};

mod functions;

static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
    let name = std::env::var("FUZZ").unwrap_or_default();
    let found = FUNCTIONS.iter().find(|(function, _)| *function == name);
    found.unwrap_or_else(|| panic!("FUZZ must name one of {:?}", FUNCTIONS.map(|(name, _)| name))).1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| FUNCTION(input));
