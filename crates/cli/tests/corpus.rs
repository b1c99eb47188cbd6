//! Runs the fuzz targets on their corpus: valid inputs, past crashes, and random mutations of both.

#[expect(unreachable_pub, reason = "the fuzz targets call it from outside")]
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Mutated inputs per target. `scripts/test --full` fuzzes for longer, guided by coverage.
const MUTATIONS: u64 = 5_000;
/// Maximum length of a mutated input.
const LONGEST: usize = 8 << 10;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = std::fs::read_dir(corpus.join(name)).expect("every target has a corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let read = |path| std::fs::read(path).expect("it can be read");
    paths.into_iter().map(read).collect()
}

#[test]
fn every_target_takes_its_whole_corpus() {
    for (name, target) in targets::TARGETS {
        let entries = corpus(name);
        let count = entries.len();
        assert!(count > 3, "the corpus of {name} has {count} entries");
        for entry in entries {
            run_target(name, target, &entry);
        }
    }
}

#[test]
fn every_target_takes_what_is_left_of_its_corpus_when_it_is_spoilt() {
    let seed: Option<u64> = std::env::var("HEADWORKS_SEED")
        .ok()
        .map(|seed| seed.parse().expect("HEADWORKS_SEED is a number"));
    let seeds = seed.map_or(0..MUTATIONS, |seed| seed..seed + 1);
    for (name, target) in targets::TARGETS {
        let entries = corpus(name);
        for seed in seeds.clone() {
            let mut chance = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let input = mutate(&entries, &mut chance);
            run_target(&format!("{name}, HEADWORKS_SEED={seed}"), target, &input);
        }
    }
}

/// Runs a target and names the input if it panics.
fn run_target(name: &str, target: targets::Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("{name} stumbles over b\"{}\"", input.escape_ascii());
    }
}

/// Mutates a corpus entry in a few places, in ways that parsers typically mishandle.
fn mutate(entries: &[Vec<u8>], chance: &mut TestRng) -> Vec<u8> {
    let mut input = chance.one_of(entries).clone();
    for _ in 0..=chance.below(4) {
        let part = chance.range(input.len());
        match chance.below(7) {
            0 => drop(input.drain(part)),
            1 => input.truncate(part.start),
            2 => {
                let repeated = input[part.clone()].repeat(2 + chance.below(8));
                input.splice(part, repeated);
            }
            3 => {
                let other = chance.one_of(entries);
                let taken = other[chance.range(other.len())].to_vec();
                input.splice(part, taken);
            }
            4 => {
                let number = *chance.one_of(&NUMBERS);
                input.splice(part, number.bytes());
            }
            5 => {
                let byte = chance.below(256) as u8;
                input[part].fill(byte);
            }
            _ => {
                if let Some(byte) = input.get_mut(part.start) {
                    *byte ^= 1 << chance.below(8);
                }
            }
        }
        input.truncate(LONGEST);
    }
    input
}

/// Out-of-range lengths and times.
const NUMBERS: [&str; 8] = [
    "0",
    "-1",
    "65536",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999",
    "1e308",
    "NaN",
];

/// A seeded pseudo-random number generator.
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end.max(1)
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A random range within `length`, usually a short one.
    fn range(&mut self, length: usize) -> Range<usize> {
        let start = self.below(length + 1);
        let longest = if self.below(4) == 0 { length } else { 8 };
        let end = start + self.below((length - start).min(longest) + 1);
        start..end
    }
}
