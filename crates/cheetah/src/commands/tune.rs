//! `--tune`: what is known of the link to a source decides how it is used.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_nbd::Method as Packed;
use cheetah_probe::advice::Tuning;
use cheetah_probe::clock::Nanos;
use cheetah_probe::estimate::round_trip::Probes;
use cheetah_probe::far::measure::{Wish, measure};
use cheetah_probe::far::{FarClient, FarError};
use cheetah_probe::path::{FORMAT, Method, PathReport, RoundTrip};
use cheetah_probe::units::BitRate;
use cheetah_source::{LinkUse, remote};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// How long the link may be looked at, all in all.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Round trips that are measured.
const TRIPS: u32 = 5;
/// How long one may take.
const TRIP_MAX: Duration = Duration::from_millis(400);
/// So many may go unanswered before no more is tried.
const UNANSWERED_MAX: u32 = 1;
/// How long bulk data is asked for, of a far end that has some.
const BULK: Duration = Duration::from_millis(600);
/// Largest report that is read, in bytes: some hundred times what there is to say.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// How to use the link to a source behind one.
#[derive(Debug, Clone, clap::Args)]
pub struct TuneArgs {
    /// Use the link to a remote source as suits it: auto looks at it for at most 2 s, a file is what cheetah probe --json
    /// told of it. Decides connections, how much is asked for at once, how far is read ahead, and whether to compress
    #[arg(long, value_name = "auto|off|FILE", default_value = "off")]
    tune: Tune,
}

/// What to tune by.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tune {
    /// Nothing.
    Off,
    /// What a short look tells.
    Auto,
    /// A report.
    File(PathBuf),
}

impl FromStr for Tune {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "off" => Self::Off,
            "auto" => Self::Auto,
            path => Self::File(path.into()),
        })
    }
}

impl TuneArgs {
    /// How to use the link to `source`; says what that is, if it is anything but the usual.
    ///
    /// # Errors
    ///
    /// If there is no report in the file. A link that cannot be looked at is used as usual.
    pub async fn link(&self, source: &str, ui: Ui) -> Result<LinkUse> {
        let Some((host, port)) = remote(source) else {
            if self.tune != Tune::Off {
                ui.note(format_args!(
                    "there is nothing to tune for {source}: only what nbd:// and iscsi:// are read from is behind a link"
                ));
            }
            return Ok(LinkUse::default());
        };
        let report = match &self.tune {
            Tune::Off => return Ok(LinkUse::default()),
            Tune::Auto => look(&host, port).await,
            Tune::File(path) => Some(read(path, &host, ui)?),
        };
        let Some(report) = report else {
            ui.note(format_args!("nothing could be learnt of the link to {host}: it is used as usual"));
            return Ok(LinkUse::default());
        };
        let tuning = Tuning::of(&report);
        ui.note(describe(&host, &tuning));
        Ok(link(&tuning))
    }
}

/// The same in the words of who opens sources.
fn link(tuning: &Tuning) -> LinkUse {
    let usual = LinkUse::default();
    LinkUse {
        connections: usual.connections.max(tuning.connections as usize),
        // The agent knows better which method than anybody does before.
        packing: if tuning.compress { Packed::Auto } else { Packed::None },
        window_bytes_first: Some(tuning.window_bytes),
        prefetch_bytes_max: Some(tuning.prefetch_bytes),
    }
}

fn describe(host: &str, tuning: &Tuning) -> String {
    let rate = match tuning.rate_bits_per_s {
        Some(rate) => format!(" and {}", BitRate(rate)),
        None => String::new(),
    };
    let LinkUse { connections, .. } = link(tuning);
    format!(
        "tuned to {host}, {:.2} ms{rate}: {connections} connections, {} under way, {} ahead, {}compressed",
        tuning.rtt_us / 1e3,
        Size(tuning.window_bytes),
        Size(tuning.prefetch_bytes),
        if tuning.compress { "" } else { "not " }
    )
}

/// The report in a file.
fn read(path: &Path, host: &str, ui: Ui) -> Result<PathReport> {
    let name = path.display();
    let size = path.metadata().context(format_args!("--tune {name}"))?.len();
    if size > REPORT_BYTES_MAX {
        return Err(Failure::misused(format!("--tune {name}: that is no report of cheetah probe --json")));
    }
    let text = std::fs::read_to_string(path).context(format_args!("--tune {name}"))?;
    let report: PathReport = serde_json::from_str(&text).map_err(|error| {
        Failure::misused(format!("--tune {name}: that is no report of cheetah probe --json: {error}"))
    })?;
    if report.format != FORMAT {
        let format = report.format;
        return Err(Failure::misused(format!("--tune {name} has format {format}, not {FORMAT}: probe the host again")));
    }
    if report.host != host && report.address.to_string() != host {
        ui.warn(format_args!("{name} tells of the path to {}, and the source is at {host}", report.host));
    }
    Ok(report)
}

/// What a short look at the way to `host` tells, without any right. The port itself is left alone, for some servers end with
/// their first client; it is the next one that is called, where a node or an agent takes part in measurements. A port that is
/// closed says so, which takes as long as a connection.
async fn look(host: &str, port: u16) -> Option<PathReport> {
    let next = port.checked_add(1)?;
    // No address yet.
    let mut report = PathReport::new(host, IpAddr::from([0, 0, 0, 0]));
    // What is known when time is up is made use of.
    let _ = timeout(TIME_MAX, look_at(host, next, &mut report)).await;
    (!report.is_empty()).then_some(report)
}

async fn look_at(host: &str, port: u16, report: &mut PathReport) {
    let Ok(mut addresses) = tokio::net::lookup_host((host, port)).await else { return };
    let Some(address) = addresses.next() else { return };
    report.address = address.ip();
    let (trip, open) = trips(address).await;
    report.round_trip = trip;
    if !open {
        return;
    }
    let wish = Wish { trains: false, bulk_to: Duration::ZERO, bulk_from: BULK };
    match measure(FarClient::new(address), wish, &mut report.problems).await {
        Ok(far) => report.far = Some(far),
        Err(FarError::NotOne { .. }) => {}
        Err(error) => tracing::debug!("{error}"),
    }
}

/// Round trips to a port, by connecting to it; and whether somebody listens there.
async fn trips(address: SocketAddr) -> (Option<RoundTrip>, bool) {
    let (mut probes, mut open, mut unanswered) = (Probes::new(TRIP_MAX), false, 0);
    for seq in 0..TRIPS {
        let sent = Nanos::now();
        probes.sent(seq, sent);
        match timeout(TRIP_MAX, TcpStream::connect(address)).await {
            Ok(Ok(_)) => open = true,
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
            Ok(Err(_)) | Err(_) => {
                unanswered += 1;
                // Most likely a firewall that says nothing.
                if unanswered > UNANSWERED_MAX {
                    break;
                }
                continue;
            }
        }
        probes.answered(seq, Nanos::now());
    }
    (probes.round_trip(Method::TcpConnect), open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tuned_stays_within_what_sources_take() {
        let tuning = Tuning {
            rtt_us: 20_000.0,
            rate_bits_per_s: Some(1e8),
            connections: 1,
            window_bytes: 1 << 20,
            prefetch_bytes: 2 << 20,
            compress: false,
        };
        let plain = link(&tuning);
        assert_eq!((plain.connections, plain.packing), (LinkUse::default().connections, Packed::None));
        assert_eq!(link(&Tuning { compress: true, ..tuning }).packing, Packed::Auto);
        let text = describe("lab", &tuning);
        assert!(text.contains("20.00 ms and 100 Mbit/s") && text.ends_with("not compressed"), "{text}");
    }

    #[tokio::test]
    async fn a_closed_port_tells_the_round_trip_too() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trip, open) = trips(address).await;
        assert!(open && trip.is_some_and(|trip| trip.answered == TRIPS));
        drop(listener);
        let (trip, open) = trips(address).await;
        assert!(!open && trip.is_some_and(|trip| trip.answered == TRIPS));
    }
}
