//! The reasons of an advice.

use super::packing::CompressionChoice;
use super::{DISK_BITS_PER_S_MAX, ROTATING_BITS_PER_S};
use crate::units::{BitRate, Span};

/// A reason of an advice: a sentence. Rates are in bits a second.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub(super) enum Reason {
    /// The rate of one TCP connection.
    #[error("One TCP connection received {} from there.", BitRate(*.0))]
    Received(f64),
    /// What other traffic leaves.
    #[error("About {} are available on the path there, {} of content.", BitRate(*.bits_per_s), BitRate(*.content_bits_per_s))]
    Available {
        /// All of it.
        bits_per_s: f64,
        /// The content in it.
        content_bits_per_s: f64,
    },
    /// The rate of the narrowest link of the path back.
    #[error("The narrowest link of the path back carries {}{}.", least(*.at_least), BitRate(*.bits_per_s))]
    LinkBack {
        /// The rate.
        bits_per_s: f64,
        /// Whether it is a lower bound.
        at_least: bool,
    },
    /// The rate of the narrowest link of the path there.
    #[error("The narrowest link carries {}{}; other traffic is not counted.", least(*.at_least), BitRate(*.bits_per_s))]
    Link {
        /// The rate.
        bits_per_s: f64,
        /// Whether it is a lower bound.
        at_least: bool,
    },
    /// The rate is a lower bound, and so the times are upper ones.
    #[error("The link may be faster than this machine could tell; it may then take less time.")]
    MayBeFaster,
    /// One connection was slower than the link.
    #[error("One connection did not fill the link; several may be faster than this advice assumes.")]
    NotFilled,
    /// This share of the probes was lost, 0 to 1.
    #[error("With {:.1} % of probes lost, one connection may be held back by its losses.", .0 * 100.0)]
    Losses(f64),
    /// One connection has not enough bytes in flight.
    #[error("One connection's window is smaller than the bandwidth-delay product of so long a link.")]
    SmallWindow,
    /// What keeps the link busy.
    #[error(
        "The bandwidth-delay product is {product_kib:.0} KiB ({rtt_ms:.2} ms); twice that, with {disk_ms:.0} ms for the disk, keeps \
         the link busy."
    )]
    Busy {
        /// The bandwidth-delay product in KiB.
        product_kib: f64,
        /// The round trip in milliseconds.
        rtt_ms: f64,
        /// What a disk takes for a read, in milliseconds.
        disk_ms: f64,
    },
    /// Whether compression pays.
    #[error("{0}")]
    Compression(CompressionChoice),
    /// The disk, not the link, may decide how long it takes.
    #[error(
        "{} rotating one gives {} at most and takes {}.", disk(*.is_slower), BitRate(ROTATING_BITS_PER_S), Span(*.rotating_s)
    )]
    Disk {
        /// Whether any disk is slower than the link.
        is_slower: bool,
        /// How long a rotating disk takes, in seconds.
        rotating_s: f64,
    },
}

fn least(at_least: bool) -> &'static str {
    if at_least { "at least " } else { "" }
}

fn disk(is_slower: bool) -> String {
    if !is_slower {
        return "The disk may be the bottleneck: a".to_owned();
    }
    let fastest = BitRate(DISK_BITS_PER_S_MAX);
    format!("The disk is the bottleneck: the fastest (NVMe) give {fastest}, which the times assume; a")
}
