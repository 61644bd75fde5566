//! Whether to compress on the way.

use crate::units::BitRate;

/// A way to compress: its name, the rate at which one processor of today does it, in bytes of content a second (the same
/// figures the agent starts from before it knows better), and what is left of the content of a disk in use, where a share of
/// it is media, archives and other things that do not shrink. The last is an assumption, and is said to be one.
const WAYS: [(&str, f64, f64); 2] = [("lz4", 500e6, 0.65), ("zstd", 250e6, 0.5)];
/// Compressing must take less than this of the time that not compressing takes, or it is not worth the processor's time.
const GAIN_MIN: f64 = 0.93;

/// A link that is faster than a processor compresses by this factor is clearly so.
const CLEARLY: f64 = 1.1;

/// The way that takes least time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    /// `none` if not compressing is best.
    pub method: &'static str,
    /// Whether to.
    pub compress: bool,
    /// Bits of content a second if compressed, with the best of the ways even if that is not worth it.
    pub bits_per_s: f64,
    /// What is left, 0 to 1.
    ratio: f64,
    /// Whether the processor is slower than the link.
    held_up: bool,
    /// Whether the link is clearly faster than the processor, or may be.
    outrun: bool,
}

impl Choice {
    /// For a link that carries so many bits of content a second. One processor is counted on, since nothing is known of the
    /// suspect's machine.
    pub fn best(link_bits_per_s: f64, at_least: bool) -> Self {
        let ways = WAYS.map(|(method, bytes_per_s, ratio)| {
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

    /// The reason, a sentence.
    pub fn why(&self) -> String {
        if !self.compress {
            let rate = BitRate(self.bits_per_s);
            let than = if self.outrun { "faster than" } else { "about as fast as" };
            return format!("The link is {than} one processor compresses ({rate}), so compression gains nothing.");
        }
        let percent = self.ratio * 100.0;
        let held_up = if self.held_up { "; the processor there will be what there is to wait for" } else { "" };
        format!(
            "Compressed is with {}, counting on {percent:.0} % being left, as of most disks in use, but not of encrypted ones or \
             collections of media{held_up}.",
            self.method
        )
    }
}
