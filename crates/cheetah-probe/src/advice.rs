//! What a path means for an acquisition: how long a disk takes, whether to compress, and how many connections, which window
//! and how much prefetch keep the link busy. Pure: figures in, decisions with their reasons out.

mod packing;
mod rate;
#[cfg(test)]
mod tests;
mod tuning;

use std::fmt;

use cheetah_device::Size;
use serde::{Deserialize, Serialize};

use crate::path::PathReport;
use crate::units::{BitRate, Span};

use self::packing::Choice;
pub use self::tuning::{CONNECTIONS_MAX, Flow, PREFETCH_BYTES_MAX, Tuning, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};

/// Above this rate a rotating disk, not the link, is most likely what there is to wait for, in bits of content a second: 200
/// MB/s, what the outer tracks of large ones give.
const ROTATING_BITS_PER_S: f64 = 1.6e9;

/// What to do, and what it will take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Size of the disk it is for, in bytes.
    pub disk_bytes: u64,
    /// How long all of it takes as it is, in seconds, where the link is what there is to wait for.
    pub raw_s: f64,
    /// How long it takes compressed on its way, in seconds, if content shrinks as that of disks in use mostly does.
    pub compressed_s: f64,
    /// Whether compressing is worth it.
    pub compress: bool,
    /// What to compress with, a word that `cheetah acquire --compress` takes: `none`, `lz4` or `zstd`.
    pub method: String,
    /// TCP connections at once.
    pub connections: u32,
    /// Bytes of requests under way at once, on all connections together.
    pub window_bytes: u64,
    /// Bytes one reader is read ahead at most.
    pub prefetch_bytes: u64,
    /// What it rests on, a sentence each.
    pub why: Vec<String>,
}

/// What `report` means for an acquisition of `disk_bytes` from there; absent if no rate is known, for without one there is
/// nothing to say of how long it takes.
#[must_use]
pub fn advise(report: &PathReport, disk_bytes: u64) -> Option<Advice> {
    let rate = rate::expected(report)?;
    let (flow, mut why) = tuning::flow(report, rate.bits_per_s);
    let choice = Choice::best(rate.bits_per_s);
    let disk_bits = disk_bytes as f64 * 8.0;
    why.insert(0, rate.why.clone());
    if rate.at_least {
        why.insert(1, "The link may be faster than could be told, so the times are the longest it should take.".into());
    }
    why.push(choice.why());
    if rate.bits_per_s > ROTATING_BITS_PER_S {
        let rotating = BitRate(ROTATING_BITS_PER_S);
        why.push(format!("A rotating disk gives no more than about {rotating}: with one, expect that instead."));
    }
    Some(Advice {
        disk_bytes,
        raw_s: disk_bits / rate.bits_per_s,
        compressed_s: disk_bits / choice.bits_per_s,
        compress: choice.compress,
        method: choice.method.to_owned(),
        connections: flow.connections,
        window_bytes: flow.window_bytes,
        prefetch_bytes: flow.prefetch_bytes,
        why,
    })
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, raw, packed) = (Size(self.disk_bytes), Span(self.raw_s), Span(self.compressed_s));
        writeln!(f, "A disk of {disk} takes {raw} as it is, and about {packed} compressed.")?;
        if self.compress {
            writeln!(f, "Compress on the way: --compress {}, or auto.", self.method)?;
        } else {
            writeln!(f, "Do not compress on the way: --compress none.")?;
        }
        let plural = if self.connections == 1 { "" } else { "s" };
        let (window, prefetch) = (Size(self.window_bytes), Size(self.prefetch_bytes));
        writeln!(
            f,
            "Use {} connection{plural}, {window} under way, and up to {prefetch} of prefetch.",
            self.connections
        )?;
        for (index, why) in self.why.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}  {why}")?;
        }
        Ok(())
    }
}
