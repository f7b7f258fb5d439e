//! A short form of `make fuzz`: every seed and some hundred variations of the seeds, for every function. `PROPTEST_CASES`
//! sets their number.

use std::{fs, path::PathBuf};

use functions::FUNCTIONS;
use proptest::{prelude::*, sample::Index};

use crate::lab::repository;

#[path = "../../hack/fuzz/functions.rs"]
mod functions;

fn folder() -> PathBuf {
    repository().join("hack/fuzz/seeds")
}

fn seeds(function: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder().join(function)).unwrap_or_else(|error| panic!("seeds of {function}: {error}"));
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A change to a text.
#[derive(Clone, Debug)]
enum Edit {
    /// Replaces a byte.
    Byte(Index, u8),
    /// Removes some bytes.
    Cut(Index, Index),
    /// Inserts a piece of a seed.
    Piece(Index, Index, Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let special = prop::sample::select(b"\n\r\t \"'=:;#\\[]{}|>-&*?!%@0\0\xff".to_vec());
    prop_oneof![
        (any::<Index>(), prop_oneof![special, any::<u8>()]).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Cut(from, to)),
        any::<(Index, Index, Index, Index)>().prop_map(|(at, seed, from, to)| Edit::Piece(at, seed, from, to)),
    ]
}

/// A part of a text, at most a line or two long.
fn part(text: &[u8], from: Index, to: Index) -> std::ops::Range<usize> {
    let start = from.index(text.len() + 1);
    start..start + to.index((text.len() - start).min(80) + 1)
}

fn edited(seeds: &[Vec<u8>], seed: Index, edits: Vec<Edit>) -> Vec<u8> {
    let mut text = seed.get(seeds).clone();
    for edit in edits {
        match edit {
            Edit::Byte(at, byte) if !text.is_empty() => {
                let at = at.index(text.len());
                text[at] = byte;
            }
            Edit::Byte(_, byte) => text.push(byte),
            Edit::Cut(from, to) => drop(text.drain(part(&text, from, to))),
            Edit::Piece(at, seed, from, to) => {
                let seed = seed.get(seeds);
                let at = at.index(text.len() + 1);
                text.splice(at..at, seed[part(seed, from, to)].iter().copied());
            }
        }
    }
    text
}

#[test]
fn every_function_survives_its_seeds_and_variations_of_them() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    for (name, function) in FUNCTIONS {
        let seeds = seeds(name);
        for seed in &seeds {
            function(seed);
        }
        proptest!(config.clone(), |(seed: Index, edits in prop::collection::vec(edit(), 1..6))| {
            function(&edited(&seeds, seed, edits));
        });
    }
}

/// The most that a ConfigMap holds.
const LARGEST: usize = 1 << 20;

/// A text in which a part is repeated.
fn inflated(text: &[u8], part: std::ops::Range<usize>, bytes: usize) -> Vec<u8> {
    let times = bytes.saturating_sub(text.len()) / part.len().max(1);
    [&text[..part.end], &text[part.clone()].repeat(times), &text[part.end..]].concat()
}

/// Runs a function on an input, which a file keeps: when the stack overflows, the process ends without a word.
fn kept(name: &str, function: functions::Function, input: &[u8]) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("input-of-{name}"));
    fs::write(file, input).unwrap();
    function(input);
}

#[test]
fn every_function_survives_large_inputs() {
    let config = ProptestConfig { failure_persistence: None, cases: 4, ..ProptestConfig::default() };
    for (name, function) in FUNCTIONS {
        let seeds = seeds(name);
        let largest = seeds.iter().max_by_key(|seed| seed.len()).unwrap();
        kept(name, function, &inflated(largest, 0..largest.len(), LARGEST));
        // Most are much smaller, so that there can be more of them.
        proptest!(config.clone(), |(seed: Index, from: Index, to: Index, size in 12..=20_u32)| {
            let seed = seed.get(&seeds);
            kept(name, function, &inflated(seed, part(seed, from, to), 1 << size));
        });
    }
}

/// Pieces that nest what follows. The last ones nest it by turns, which two limits of a parser may count separately.
const NESTING: [&str; 10] = ["[", "{a: ", "{\"a\":", "- ", "? ", "&a [", "((", "\"\\\"", "- ? ", "{a: [b,bal: "];

#[test]
fn no_function_needs_more_stack_for_deeper_nesting() {
    for (name, function) in FUNCTIONS {
        for piece in NESTING {
            let nested = piece.repeat(LARGEST / 32 / piece.len());
            kept(name, function, nested.as_bytes());
            kept(name, function, format!("global: {nested}").as_bytes());
        }
        let indented: String = (0..400).map(|level| " ".repeat(level) + "a:\n").collect();
        kept(name, function, indented.as_bytes());
    }
}

#[test]
fn every_folder_of_seeds_belongs_to_a_function() {
    let mut folders: Vec<_> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(folders, FUNCTIONS.map(|(name, _)| name));
}
