//! Whether to compress on the way.

use std::fmt;

use crate::units::BitRate;

/// Compression methods: the name, the rate of one processor in bytes of content a second (the same figures the agent
/// starts from), and the compressed share of a disk in use, some of which is media and archives that do not shrink. The
/// share is an assumption, and the advice says so.
const METHODS: [(&str, f64, f64); 2] = [("lz4", 500e6, 0.65), ("zstd", 250e6, 0.5)];
/// Compression that takes more than this share of the time without compression is not worth the processor time.
const GAIN_MIN: f64 = 0.93;

/// A link this many times faster than a processor compresses is clearly faster.
const CLEARLY: f64 = 1.1;

/// The fastest method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CompressionChoice {
    /// `none` if compression does not pay.
    pub method: &'static str,
    /// Whether to compress.
    pub compress: bool,
    /// Bits of content a second with the best method, even if compression does not pay.
    pub bits_per_s: f64,
    /// The compressed share, 0 to 1.
    ratio: f64,
    /// Whether the processor is slower than the link.
    held_up: bool,
    /// Whether the link is clearly faster than the processor, rather than possibly.
    pub outrun: bool,
}

impl CompressionChoice {
    /// Chooses the method for a link that carries this many bits of content a second, or at least as many. Counts on
    /// one processor, since the suspect's machine is unknown.
    pub fn best(link_bits_per_s: f64, at_least: bool) -> Self {
        let ways = METHODS.map(|(method, bytes_per_s, ratio)| {
            let (wire, work) = (link_bits_per_s / ratio, bytes_per_s * 8.0);
            Self {
                method,
                compress: true,
                bits_per_s: wire.min(work),
                ratio,
                held_up: work < wire,
                outrun: at_least || link_bits_per_s > CLEARLY * work,
            }
        });
        let [lz4, zstd] = ways;
        let best = if zstd.bits_per_s >= lz4.bits_per_s { zstd } else { lz4 };
        if link_bits_per_s < GAIN_MIN * best.bits_per_s {
            best
        } else {
            Self { method: "none", compress: false, ..best }
        }
    }
}

impl fmt::Display for CompressionChoice {
    /// The reason, a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.compress {
            let rate = BitRate(self.bits_per_s);
            let than = if self.outrun { "faster than" } else { "about as fast as" };
            return write!(f, "The link is {than} one processor compresses ({rate}), so compression gains nothing.");
        }
        let percent = self.ratio * 100.0;
        let held_up = if self.held_up { "; the processor there will be the bottleneck" } else { "" };
        write!(
            f,
            "Compression by {} is assumed to leave {percent:.0} %, as of most disks in use, but not of encrypted ones or collections \
             of media{held_up}.",
            self.method
        )
    }
}
