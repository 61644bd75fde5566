//! The report on a path, which a measurement makes, and from which the settings of a link are read.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::macros::format_description;

/// The version of the format; another one is refused.
pub const FORMAT: u32 = 1;

/// The measurements of the path to a host. A measurement that failed is absent; [`problems`](PathReport::problems) has
/// the reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathReport {
    /// [`FORMAT`].
    pub format: u32,
    /// The host's name, as given.
    pub host: String,
    /// The address that was measured; nothing was sent to any other.
    pub address: IpAddr,
    /// When the measurement began, RFC 3339, UTC.
    pub started: String,
    /// The interface, e.g. `eth0`; absent if raw sockets were not used.
    pub interface: Option<String>,
    /// The sending backend: `txtime-etf`, `txtime-fq`, `xdp` or `ring`; absent if raw sockets were not used.
    pub backend: Option<String>,
    /// Round trips.
    pub round_trip: Option<RoundTrip>,
    /// The narrowest link there (and, if the probe is echoed whole, back).
    pub capacity: Option<Capacity>,
    /// The available bandwidth of the tightest link.
    pub available: Option<Available>,
    /// The largest packet that passes whole.
    pub mtu: Option<Mtu>,
    /// The routers on the way.
    pub hops: Vec<Hop>,
    /// The figures of a far end, where one cooperates.
    pub far: Option<FarEnd>,
    /// Trains sent and discarded.
    pub trains: Trains,
    /// Advice on an acquisition.
    pub advice: Option<Advice>,
    /// The measurements that failed, and why, a sentence each.
    pub problems: Vec<String>,
}

impl PathReport {
    /// Creates an empty report on the path to `address`, one of those of `host`, starting now.
    #[must_use]
    pub fn new(host: impl Into<String>, address: IpAddr) -> Self {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
        Self {
            format: FORMAT,
            host: host.into(),
            address,
            // Fails only for years that need more than four digits.
            started: OffsetDateTime::now_utc().format(format).unwrap_or_default(),
            interface: None,
            backend: None,
            round_trip: None,
            capacity: None,
            available: None,
            mtu: None,
            hops: Vec::new(),
            far: None,
            trains: Trains::default(),
            advice: None,
            problems: Vec::new(),
        }
    }

    /// Returns whether the report has no measurement.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.round_trip.is_none()
            && self.capacity.is_none()
            && self.available.is_none()
            && self.mtu.is_none()
            && self.hops.is_empty()
            && self.far.is_none()
    }
}

/// Round trips. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundTrip {
    /// The method.
    pub method: Method,
    /// Probes sent, late and duplicated answers not counted twice.
    pub sent: u32,
    /// Probes answered in time.
    pub answered: u32,
    /// Shortest.
    pub min_us: f64,
    /// Median.
    pub median_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// Longest.
    pub max_us: f64,
    /// Mean of the differences between one and the next (RFC 3550 section 6.4.1 without the smoothing).
    pub jitter_us: f64,
    /// Share lost, 0 to 1.
    pub loss: f64,
}

/// How the far end is made to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// ICMP (or `ICMPv6`) echo.
    Icmp,
    /// TCP segments that are answered with SYN-ACK or RST.
    Tcp,
    /// UDP to a closed port, answered with port unreachable.
    Udp,
    /// The time `connect` takes, which needs no right.
    TcpConnect,
    /// A far end that cooperates.
    Far,
}

/// The capacity of the narrowest link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// The method.
    pub method: Method,
    /// The estimate, in bits a second of whole Ethernet frames without preamble, check sequence and gap (as `tc`
    /// counts).
    pub bits_per_s: f64,
    /// The lower end of the range around the mode that has half of the measurements.
    pub low_bits_per_s: f64,
    /// The upper end of that range.
    pub high_bits_per_s: f64,
    /// The confidence: the share of the measurements that lie in the mode, 0 to 1.
    pub confidence: f64,
    /// Whether it is a lower bound: the link is as fast as this machine sends, or faster.
    pub at_least: bool,
    /// Whether packets arrived in batches, so that it is computed from the ends of batches only.
    #[serde(default)]
    pub batched: bool,
    /// The number of pairs and trains that determine it.
    pub samples: u32,
}

/// Available bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Available {
    /// Bits a second, counted as in [`Capacity`].
    pub bits_per_s: f64,
    /// The range it is in.
    pub low_bits_per_s: f64,
    /// See `low_bits_per_s`.
    pub high_bits_per_s: f64,
}

/// The path's maximum transmission unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mtu {
    /// Largest IP packet that arrived whole, in bytes.
    pub bytes: u32,
    /// Whether a router reported it. Otherwise larger packets were merely not answered.
    pub reported: bool,
}

/// A router on the way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hop {
    /// Its distance, from 1.
    pub ttl: u8,
    /// Its address; absent if it does not answer.
    pub address: Option<IpAddr>,
    /// Shortest round trip to it, in microseconds.
    pub min_us: Option<f64>,
}

/// The figures of a far end that cooperates. Rates are in bits a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FarEnd {
    /// Its name and version.
    pub name: String,
    /// Capacity there, by the dispersion of trains sent to it.
    pub to_bits_per_s: Option<f64>,
    /// Whether that is a lower bound: as fast as this machine sends, or faster.
    #[serde(default)]
    pub to_at_least: bool,
    /// Capacity back, by the dispersion of trains it sent.
    pub from_bits_per_s: Option<f64>,
    /// Whether that is a lower bound: as fast as the far end sends, or faster.
    #[serde(default)]
    pub from_at_least: bool,
    /// Payload throughput of one TCP connection there.
    pub tcp_to_bits_per_s: Option<f64>,
    /// Payload throughput of one TCP connection back.
    pub tcp_from_bits_per_s: Option<f64>,
}

/// Counts of trains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trains {
    /// Sent, repetitions included.
    pub sent: u32,
    /// Those of them that were discarded because a gap was off by more than the bound.
    pub spoiled: u32,
    /// Packets sent in all, of every kind.
    pub packets: u32,
}

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
    /// The compression method by its name: `none`, `lz4` or `zstd`.
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
