//! Compares a model with the figures of its data sheet, in virtual time.

use crate::drive::Operation;
use crate::extent::Extent;
use crate::model::{Model, SeekTimes};
use crate::seek::SeekCurve;
use crate::simulation::{Numbers, run};

/// The largest difference from a data sheet, as a share.
pub const TOLERANCE: f64 = 0.05;
const READ_BYTES: u64 = 128 << 10;
const SEQUENTIAL_READS: u64 = 2_000;
const RANDOM_BYTES: u64 = 4 << 10;
const RANDOM_READS: u64 = 4_000;
const SEEKS: u64 = 20_000;
const DEEP: usize = 32;
/// No data sheet of these drives states a rate at depth 32. Reordering must be worth this much.
const GAIN: (f64, f64) = (1.4, 3.0);
const NS_PER_S: f64 = 1e9;

/// A quantity of a model.
#[derive(Debug)]
pub struct Compared {
    pub what: &'static str,
    pub unit: &'static str,
    /// The least and the largest value allowed.
    pub allowed: (f64, f64),
    pub measured: f64,
}

impl Compared {
    fn near(what: &'static str, unit: &'static str, stated: f64, measured: f64) -> Self {
        Self { what, unit, allowed: (stated * (1.0 - TOLERANCE), stated * (1.0 + TOLERANCE)), measured }
    }

    /// Returns whether it is within what is allowed.
    pub fn is_met(&self) -> bool {
        self.allowed.0 <= self.measured && self.measured <= self.allowed.1
    }
}

/// Compares everything of a model that has delays.
pub fn compare(model: &Model) -> Vec<Compared> {
    let inner = model.capacity_bytes - SEQUENTIAL_READS * READ_BYTES;
    let alone = random_reads_per_s(model, 1);
    let deep = random_reads_per_s(model, DEEP);
    let gain = if model.depth > 1 { GAIN } else { (1.0 - TOLERANCE, 1.0 + TOLERANCE) };
    vec![
        Compared::near("average seek, reads", "ms", ms(model.read.average_ns), average_seek_ms(model, &model.read)),
        Compared::near("average seek, writes", "ms", ms(model.write.average_ns), average_seek_ms(model, &model.write)),
        Compared::near("reads at the outer edge", "MB/s", model.outer_bytes_per_s / 1e6, sequential_mb_per_s(model, 0)),
        Compared::near(
            "reads at the inner edge",
            "MB/s",
            model.inner_bytes_per_s / 1e6,
            sequential_mb_per_s(model, inner),
        ),
        Compared::near("random reads of 4 KiB", "/s", stated_reads_per_s(model), alone),
        Compared {
            what: "random reads of 4 KiB, depth 32",
            unit: "/s",
            allowed: (alone * gain.0, alone * gain.1),
            measured: deep,
        },
    ]
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn stated_reads_per_s(model: &Model) -> f64 {
    // As Hitachi's specification adds it up: overhead, average seek, average latency.
    NS_PER_S / (model.command_ns + model.read.average_ns + model.revolution_ns / 2) as f64
}

/// Seeks between random places, as a program that knows only byte offsets makes them.
fn average_seek_ms(model: &Model, times: &SeekTimes) -> f64 {
    let (geometry, curve) = (crate::geometry::Geometry::new(model), SeekCurve::new(times));
    let mut numbers = Numbers(1);
    let mut place = || numbers.below(model.capacity_bytes);
    let sum_ns: u64 = (0..SEEKS).map(|_| curve.ns(geometry.distance(place(), place()))).sum();
    ms(sum_ns) / SEEKS as f64
}

fn sequential_mb_per_s(model: &Model, from: u64) -> f64 {
    let starts = (0..SEQUENTIAL_READS).map(|number| from + number * READ_BYTES);
    let reads: Vec<_> = starts.map(|start| Operation::Read(Extent { start, end: start + READ_BYTES })).collect();
    (SEQUENTIAL_READS * READ_BYTES) as f64 / 1e6 / (run(model, &reads, 1).elapsed_ns as f64 / NS_PER_S)
}

fn random_reads_per_s(model: &Model, depth: usize) -> f64 {
    let mut numbers = Numbers(2);
    let mut read = |_| {
        let start = numbers.below(model.capacity_bytes / RANDOM_BYTES) * RANDOM_BYTES;
        Operation::Read(Extent { start, end: start + RANDOM_BYTES })
    };
    let reads: Vec<_> = (0..RANDOM_READS).map(&mut read).collect();
    RANDOM_READS as f64 / (run(model, &reads, depth).elapsed_ns as f64 / NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ALL;

    #[test]
    fn every_model_agrees_with_its_data_sheet() {
        for model in ALL.iter().filter(|model| !model.instant) {
            for compared in compare(model) {
                assert!(compared.is_met(), "{}: {compared:?}", model.name);
            }
        }
    }
}
