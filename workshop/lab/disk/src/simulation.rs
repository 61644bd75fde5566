//! Runs commands against a drive in virtual time.

use std::collections::HashMap;

use crate::drive::{Drive, Operation};
use crate::model::Model;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Commands in the order of their ends.
    pub order: Vec<u64>,
    /// By command: when it ended.
    pub ended_ns: HashMap<u64, u64>,
    /// When the last one ended.
    pub elapsed_ns: u64,
}

/// Keeps `depth` commands in flight until all have ended. Commands are numbered from 0.
pub fn run(model: &Model, operations: &[Operation], depth: usize) -> Outcome {
    let mut drive = Drive::new(*model);
    let mut coming = (0..).zip(operations.iter().copied());
    let mut outcome = Outcome { order: Vec::new(), ended_ns: HashMap::new(), elapsed_ns: 0 };
    let mut now_ns = 0;
    for (id, operation) in coming.by_ref().take(depth) {
        drive.submit(now_ns, id, operation);
    }
    loop {
        let ended = drive.take_ended();
        for id in &ended {
            outcome.order.push(*id);
            outcome.ended_ns.insert(*id, now_ns);
        }
        for (id, operation) in coming.by_ref().take(ended.len()) {
            drive.submit(now_ns, id, operation);
        }
        match drive.next_ns() {
            Some(next_ns) if outcome.order.len() < operations.len() => {
                now_ns = next_ns;
                drive.advance(now_ns);
            }
            _ if ended.is_empty() => break,
            _ => {}
        }
    }
    outcome.elapsed_ns = outcome.ended_ns.values().copied().max().unwrap_or(0);
    outcome
}

/// Numbers that look random and are the same in every run (SplitMix64).
#[derive(Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
