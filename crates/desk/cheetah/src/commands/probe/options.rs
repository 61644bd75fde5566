//! The packet options of `probe`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use cheetah_probe::limits::Limits;
use cheetah_probe::route::Route;
use cheetah_probe::schedule::{DurationError, ShortDuration};
use cheetah_probe::send::{Backend, Options, PreDispatch, SendError, Sender, open};

/// Bytes of the largest usual frame, by which the limit of bytes is computed.
const FRAME_BYTES: u64 = 1514;

/// How packets are sent, and their limits.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packets")]
pub struct PacketArgs {
    /// TCP or UDP port to send to [default: 33434 for UDP, 10810 for TCP]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// How to send on time: auto, txtime (the kernel holds packets; takes the FQ or ETF queue discipline), xdp, or ring
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Wanted,

    /// When to hand packets to the kernel: initial (all before the first is due), or how long before each is due
    #[arg(long, value_name = "initial|TIME", default_value = "initial", value_parser = pre_dispatch)]
    pre_dispatch: PreDispatch,

    /// A train with a gap that is off by more than this is spoiled: its result is discarded, and the train is sent
    /// again [default: 10us, and 5us with --send]
    #[arg(long, value_name = "TIME")]
    gap_error_max: Option<ShortDuration>,

    /// Maximum number of packets in any second
    #[arg(long, value_name = "N", default_value_t = Limits::default().packets_per_s_max, value_parser = clap::value_parser!(u32).range(1..))]
    rate_max: u32,

    /// Maximum number of packets in total
    #[arg(long, value_name = "N", default_value_t = Limits::default().packets_max, value_parser = clap::value_parser!(u32).range(1..))]
    packets_max: u32,

    /// The processor to send from
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Use IPv4
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,

    /// Use IPv6
    #[arg(short = '6')]
    v6: bool,
}

/// The address family to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The first.
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "IP",
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The requested backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The best available.
    Auto,
    /// `SO_TXTIME`, with the queue discipline that the interface has.
    Txtime,
    /// This one.
    One(Backend),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "txtime" => Ok(Self::Txtime),
            _ => Backend::of_name(text).map(Self::One).ok_or_else(|| "choose auto, txtime, xdp or ring".into()),
        }
    }
}

fn pre_dispatch(text: &str) -> Result<PreDispatch, DurationError> {
    match text {
        "initial" => Ok(PreDispatch::Initial),
        _ => text.parse().map(|ShortDuration(ahead)| PreDispatch::OnTheFly(ahead)),
    }
}

impl PacketArgs {
    /// The address family to use.
    pub fn family(&self) -> Family {
        match (self.v4, self.v6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// Returns the limits on sending.
    pub fn limits(&self) -> Limits {
        let usual = Limits::default();
        let bytes_max = usual.bytes_max.max(u64::from(self.packets_max) * FRAME_BYTES);
        Limits { packets_per_s_max: self.rate_max, packets_max: self.packets_max, bytes_max }
    }

    /// Returns the bound on gap errors, by default `usual`.
    pub fn gap_error_max(&self, usual: Duration) -> Duration {
        self.gap_error_max.map_or(usual, |ShortDuration(most)| most)
    }

    /// Returns the backend to use for `address`, if one is named. Blocks.
    pub fn backend(&self, address: IpAddr) -> Option<Backend> {
        match self.backend {
            Wanted::Auto => None,
            Wanted::One(backend) => Some(backend),
            Wanted::Txtime => {
                let sender = Route::to(address).ok().and_then(|route| self.open(&route).ok());
                // If neither is available, the error names the more common one.
                Some(sender.map_or(Backend::TxtimeFq, |sender| sender.backend()))
            }
        }
    }

    /// Returns the sending options.
    pub fn options(&self, backend: Option<Backend>) -> Options {
        Options { backend, pre_dispatch: self.pre_dispatch, realtime: true, cpu: self.cpu }
    }

    /// Opens the requested sender.
    pub fn open(&self, route: &Route) -> Result<Box<dyn Sender>, SendError> {
        match self.backend {
            Wanted::Auto => open(route, self.options(None)),
            Wanted::One(backend) => open(route, self.options(Some(backend))),
            Wanted::Txtime => open(route, self.options(Some(Backend::TxtimeEtf))).or_else(|error| match error {
                SendError::Unavailable { .. } => open(route, self.options(Some(Backend::TxtimeFq))),
                other => Err(other),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_parsed_by_name() {
        assert_eq!("auto".parse(), Ok(Wanted::Auto));
        assert_eq!("ring".parse(), Ok(Wanted::One(Backend::Ring)));
        assert_eq!("txtime-fq".parse(), Ok(Wanted::One(Backend::TxtimeFq)));
        assert!("fast".parse::<Wanted>().is_err());
    }
}
