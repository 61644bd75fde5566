//! Every fuzz target on random input, and a libFuzzer binary for every target.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use cheetah_fuzz::{TARGETS, Target, within_budget};

const INPUTS: u64 = 2000;
const INPUT_LEN_MAX: u64 = 4096;

/// SplitMix64: the same inputs on each run, so a failure is reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Bytes of which a random share is zero: parsers get further in sparse input.
    fn input(&mut self) -> Vec<u8> {
        let (len, share) = (self.next() % INPUT_LEN_MAX, (self.next() % 256) as u8);
        let mut input = vec![0; len as usize];
        // Of each number, some bytes are content, and the others say whether it is zero.
        for places in input.chunks_mut(4) {
            let bytes = self.next().to_le_bytes();
            for (index, place) in places.iter_mut().enumerate() {
                *place = if bytes[4 + index] < share { 0 } else { bytes[index] };
            }
        }
        input
    }
}

fn run(name: &str, target: Target) {
    let mut random = Random(0);
    for number in 0..INPUTS {
        let input = random.input();
        let outcome = std::panic::catch_unwind(|| within_budget(target, &input));
        assert!(outcome.is_ok(), "target {name} fails on input {number} of {} bytes", input.len());
    }
}

/// The targets run beside each other: together, they stay within the budget of one.
#[test]
fn every_target_accepts_random_input_within_the_memory_that_it_may_take() {
    std::thread::scope(|scope| {
        for (name, target) in TARGETS {
            scope.spawn(move || run(name, target));
        }
    });
}

#[test]
fn every_target_has_a_libfuzzer_binary() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let names: Vec<_> =
        manifest.lines().filter_map(|line| line.trim().strip_prefix("{ name = \"")?.split('"').next()).collect();
    assert_eq!(names, TARGETS.map(|(name, _)| name));
}
