//! Advice on an acquisition over a path: how long a disk takes, whether to compress, and the connections, window and
//! prefetch that keep the link busy. Pure functions from figures to decisions with their reasons.

mod packing;
mod rate;
mod reason;
#[cfg(test)]
mod tests;
mod tuning;

use crate::path::{Advice, PathReport};

use self::packing::CompressionChoice;
pub use self::rate::CONFIDENCE_MIN;
use self::reason::Reason;
pub use self::tuning::{CONNECTIONS_MAX, Flow, PREFETCH_BYTES_MAX, Tuning, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};

/// The highest rate of a rotating disk, in bits of content a second: 200 MB/s, the outer tracks of large disks.
const ROTATING_BITS_PER_S: f64 = 1.6e9;
/// The rate of the fastest disks in common use, in bits of content a second: 7 GB/s, NVMe over four lanes of PCIe 4.0.
const DISK_BITS_PER_S_MAX: f64 = 56e9;

/// Returns the advice on an acquisition of `disk_bytes` over the path in `report`; `None` if no rate is known, or only
/// with [low confidence](CONFIDENCE_MIN).
#[must_use]
pub fn advise(report: &PathReport, disk_bytes: u64) -> Option<Advice> {
    let (advice, reasons) = decide(report, disk_bytes)?;
    Some(Advice { why: reasons.iter().map(ToString::to_string).collect(), ..advice })
}

/// The advice, and its reasons, which are not in it yet.
fn decide(report: &PathReport, disk_bytes: u64) -> Option<(Advice, Vec<Reason>)> {
    let rate = rate::expected(report)?;
    let (flow, mut why) = tuning::flow(report, rate.bits_per_s);
    let choice = CompressionChoice::best(rate.bits_per_s, rate.at_least);
    let disk_bits = disk_bytes as f64 * 8.0;
    why.insert(0, rate.why);
    if rate.at_least {
        why.insert(1, Reason::MayBeFaster);
    }
    why.push(Reason::Compression(choice));
    if rate.bits_per_s > ROTATING_BITS_PER_S {
        let is_slower = rate.bits_per_s > DISK_BITS_PER_S_MAX;
        why.push(Reason::Disk { is_slower, rotating_s: disk_bits / ROTATING_BITS_PER_S });
    }
    let seconds = |bits_per_s: f64| disk_bits / bits_per_s.min(DISK_BITS_PER_S_MAX);
    let advice = Advice {
        disk_bytes,
        raw_s: seconds(rate.bits_per_s),
        compressed_s: seconds(choice.bits_per_s),
        compress: choice.compress,
        method: choice.method.to_owned(),
        connections: flow.connections,
        window_bytes: flow.window_bytes,
        prefetch_bytes: flow.prefetch_bytes,
        why: Vec::new(),
    };
    Some((advice, why))
}
