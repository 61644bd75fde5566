//! Advice on an acquisition over a path: how long a disk takes, whether to compress, and the connections, window and
//! prefetch that keep the link busy. Pure functions from figures to decisions with their reasons.

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

use self::packing::CompressionChoice;
pub use self::rate::CONFIDENCE_MIN;
pub use self::tuning::{CONNECTIONS_MAX, Flow, PREFETCH_BYTES_MAX, Tuning, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};

/// The highest rate of a rotating disk, in bits of content a second: 200 MB/s, the outer tracks of large disks.
const ROTATING_BITS_PER_S: f64 = 1.6e9;
/// The rate of the fastest disks in common use, in bits of content a second: 7 GB/s, NVMe over four lanes of PCIe 4.0.
const DISK_BITS_PER_S_MAX: f64 = 56e9;

/// Recommended settings, and the time to expect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// The size of the disk that the advice is for, in bytes.
    pub disk_bytes: u64,
    /// The time to copy the disk uncompressed, in seconds, by the slower of the link and the fastest disks.
    pub raw_s: f64,
    /// The time to copy it compressed, in seconds, if its content shrinks as that of most disks in use does.
    pub compressed_s: f64,
    /// Whether compressing is worth it.
    pub compress: bool,
    /// The compression method, a word that `cheetah acquire --compress` takes: `none`, `lz4` or `zstd`.
    pub method: String,
    /// TCP connections at once.
    pub connections: u32,
    /// Bytes of requests in flight, on all connections together.
    pub window_bytes: u64,
    /// The most bytes to prefetch for one reader.
    pub prefetch_bytes: u64,
    /// The reasons, a sentence each.
    pub why: Vec<String>,
}

/// Returns the advice on an acquisition of `disk_bytes` over the path in `report`; `None` if no rate is known, or only
/// with [low confidence](CONFIDENCE_MIN).
#[must_use]
pub fn advise(report: &PathReport, disk_bytes: u64) -> Option<Advice> {
    let rate = rate::expected(report)?;
    let (flow, mut why) = tuning::flow(report, rate.bits_per_s);
    let choice = CompressionChoice::best(rate.bits_per_s, rate.at_least);
    let disk_bits = disk_bytes as f64 * 8.0;
    why.insert(0, rate.why.clone());
    if rate.at_least {
        why.insert(1, "The link may be faster than this machine could tell; it may then take less time.".into());
    }
    why.push(choice.why());
    if rate.bits_per_s > ROTATING_BITS_PER_S {
        let (rotating, fastest) = (BitRate(ROTATING_BITS_PER_S), BitRate(DISK_BITS_PER_S_MAX));
        let hours = Span(disk_bits / ROTATING_BITS_PER_S);
        let bound = if rate.bits_per_s > DISK_BITS_PER_S_MAX {
            format!("The disk is the bottleneck: the fastest (NVMe) give {fastest}, which the times assume; a")
        } else {
            "The disk may be the bottleneck: a".to_owned()
        };
        why.push(format!("{bound} rotating one gives {rotating} at most and takes {hours}."));
    }
    let seconds = |bits_per_s: f64| disk_bits / bits_per_s.min(DISK_BITS_PER_S_MAX);
    Some(Advice {
        disk_bytes,
        raw_s: seconds(rate.bits_per_s),
        compressed_s: seconds(choice.bits_per_s),
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
        writeln!(f, "A disk of {disk} takes {raw} uncompressed, and about {packed} compressed.")?;
        if self.compress {
            writeln!(f, "Compress on the way: --compress {}, or auto.", self.method)?;
        } else {
            writeln!(f, "Do not compress on the way: --compress none.")?;
        }
        let plural = if self.connections == 1 { "" } else { "s" };
        let (window, prefetch) = (Size(self.window_bytes), Size(self.prefetch_bytes));
        writeln!(
            f,
            "Use {} connection{plural}, {window} in flight, and up to {prefetch} of prefetch.",
            self.connections
        )?;
        for (index, why) in self.why.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}  {why}")?;
        }
        Ok(())
    }
}
