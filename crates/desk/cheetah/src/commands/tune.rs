//! `--tune`: sets connections, windows, prefetch and compression by the link to a source.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::prefetch::PrefetchConfig;
use cheetah_image::regular;
use cheetah_nbd::Method as Packed;
use cheetah_probe::advice::Tuning;
use cheetah_probe::clock::Nanos;
use cheetah_probe::estimate::round_trip::Probes;
use cheetah_probe::far::measure::{FarRequest, measure};
use cheetah_probe::far::{FarClient, FarError};
use cheetah_probe::path::{FORMAT, Method, PathReport, RoundTrip};
use cheetah_probe::units::BitRate;
use cheetah_source::{LinkUse, remote};
use cheetah_tls::Credential;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// The time limit of measuring the link.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Round trips to measure.
const TRIPS: u32 = 5;
/// The time-out of one round trip.
const TRIP_MAX: Duration = Duration::from_millis(400);
/// The maximum number of unanswered round trips.
const UNANSWERED_MAX: u32 = 1;
/// How long to receive bulk data from a far end.
const BULK: Duration = Duration::from_millis(600);
/// The largest first window, in bytes: that of an acquisition without tuning. The disk's speed is unknown, and requests
/// that queue behind others time out.
const FIRST_BYTES_MAX: u64 = 8 << 20;
/// The largest report to read, in bytes: some hundred times the usual.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// The option `--tune`.
#[derive(Debug, Clone, clap::Args)]
pub struct TuneArgs {
    /// Tune connections, windows, prefetch and compression to the link to a remote source: auto measures it for at most
    /// 2 s, a file is the output of cheetah probe --json. Explicit options override it
    #[arg(long, value_name = "auto|off|FILE", default_value = "off")]
    tune: Tune,
}

/// The measurement to tune by.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tune {
    /// Do not tune.
    Off,
    /// A short measurement.
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
    /// Returns the settings of the link to `source`, and prints them if they differ from the defaults.
    ///
    /// # Errors
    ///
    /// If the file holds no report. A link that cannot be measured gets the defaults.
    pub async fn link(&self, source: &str, desk: &Desk, ui: Ui) -> Result<LinkUse> {
        let Some((host, port)) = remote(source) else {
            match &self.tune {
                Tune::Off => {}
                Tune::File(path) if is_a_word(path) && !path.exists() => {
                    return Err(Failure::misused(not_a_word(path)));
                }
                _ => {
                    ui.note(format_args!("nothing to tune: {source} is not behind a link (nbd://, iscsi://, https://)"))
                }
            }
            return Ok(LinkUse::default());
        };
        let report = match &self.tune {
            Tune::Off => return Ok(LinkUse::default()),
            Tune::Auto => look(&host, port, desk.credentials.acting_as()).await,
            Tune::File(path) => Some(read(path, &host, ui)?),
        };
        let Some(report) = report else {
            ui.note(format_args!("the link to {host} could not be measured: it is used as usual"));
            return Ok(LinkUse::default());
        };
        let tuning = Tuning::of(&report);
        let link = link(&tuning);
        ui.note(describe(&host, &tuning, &link));
        Ok(link)
    }
}

/// Converts tuning to link settings. Tuning spares the windows their start; limits are never below the defaults, for
/// the measurement may have been too low.
fn link(tuning: &Tuning) -> LinkUse {
    let usual = LinkUse::default();
    let Some(flow) = tuning.flow else { return usual };
    let ahead = PrefetchConfig::default();
    // Without a measured transfer, the rate of the links is only an upper bound: it may lower the first window, not
    // raise it.
    let first_bytes = Some(flow.window_bytes.min(FIRST_BYTES_MAX));
    let first_bytes = first_bytes.filter(|first| tuning.from_tcp || *first < ahead.window_bytes_first);
    LinkUse {
        connections: usual.connections.max(flow.connections as usize),
        // The agent chooses the method.
        packing: if tuning.compress { usual.packing } else { Packed::None },
        window_bytes_first: first_bytes,
        prefetch_bytes_max: Some(flow.prefetch_bytes.max(ahead.window_bytes_max)),
    }
}

fn describe(host: &str, tuning: &Tuning, link: &LinkUse) -> String {
    let trip = tuning.rtt_us.map_or_else(String::new, |us| format!(" ({:.2} ms)", us / 1e3));
    let LinkUse { connections, packing, .. } = link;
    let (Some(rate), Some(ahead)) = (tuning.rate_bits_per_s, link.prefetch_bytes_max) else {
        return format!("the link to {host}{trip} is used as usual: its rate is not known");
    };
    let first = link.window_bytes_first.map_or("as much as usual".into(), |bytes| Size(bytes).to_string());
    format!(
        "tuned to {host}{trip}, {}: at least {connections} connections, {first} in flight at first, up to {} ahead, {}",
        BitRate(rate),
        Size(ahead),
        if *packing == Packed::None { "not compressed" } else { "compressed as the agent sees fit" }
    )
}

/// Reads the report on the path to `host`.
fn read(path: &Path, host: &str, ui: Ui) -> Result<PathReport> {
    let name = path.display();
    if is_a_word(path) && path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(Failure::misused(not_a_word(path)));
    }
    let report = read_report("--tune", path)?;
    if report.host != host && report.address.to_string() != host {
        let other = report.host.escape_debug();
        ui.warn(format_args!("{name} describes the path to {other}, but the source is at {host}"));
    }
    Ok(report)
}

/// Reads a report from the file that this `option` names.
pub fn read_report(option: &str, path: &Path) -> Result<PathReport> {
    let name = format!("{option} {}", path.display());
    if path.metadata().context(&name)?.len() > REPORT_BYTES_MAX {
        return Err(Failure::misused(format!("{name}: not a report of cheetah probe --json")));
    }
    // A pipe must not be waited for.
    let text = regular::open_file(path).and_then(std::io::read_to_string).context(&name)?;
    let report: PathReport = serde_json::from_str(&text)
        .map_err(|error| Failure::misused(format!("{name}: not a report of cheetah probe --json: {error}")))?;
    match report.format {
        FORMAT => Ok(report),
        format => Err(Failure::misused(format!("{name} has format {format}, not {FORMAT}: probe the host again"))),
    }
}

/// Whether a path looks like a mistyped word rather than a file.
fn is_a_word(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.is_empty() && text.chars().all(|char| char.is_ascii_alphabetic()))
}

fn not_a_word(path: &Path) -> String {
    let text = path.to_string_lossy().to_lowercase();
    let sorted = |text: &str| {
        let mut chars = text.chars().collect::<Vec<_>>();
        chars.sort_unstable();
        chars
    };
    let is_near = |word: &&str| {
        word.starts_with(&text)
            || text.starts_with(*word)
            || sorted(word) == sorted(&text)
            || distance(word, &text) <= 1
    };
    let hint = ["auto", "off"].into_iter().find(is_near);
    let hint = hint.map_or_else(String::new, |word| format!("; did you mean '{word}'?"));
    format!("--tune takes auto, off, or a file written by 'cheetah probe --json', and there is no file '{text}'{hint}")
}

/// The number of characters by which two words of about the same length differ, at best, with one inserted, removed or
/// replaced.
fn distance(a: &str, b: &str) -> usize {
    let start = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a.as_bytes()[start..], &b.as_bytes()[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (a.len() - end).max(b.len() - end)
}

/// Measures the path to `host` for a short time, without raw sockets. Does not connect to the port itself, since some
/// servers end with their first client, but to the next one, where a node or an agent may be a far end. A closed port
/// answers as fast as an open one.
async fn look(host: &str, port: u16, credential: Option<&Credential>) -> Option<PathReport> {
    let next = port.checked_add(1)?;
    // No address yet.
    let mut report = PathReport::new(host, IpAddr::from([0, 0, 0, 0]));
    // Partial results are used too.
    let _ = timeout(TIME_MAX, look_at((host, next), credential, &mut report)).await;
    (!report.is_empty()).then_some(report)
}

async fn look_at((host, port): (&str, u16), credential: Option<&Credential>, report: &mut PathReport) {
    let Ok(mut addresses) = tokio::net::lookup_host((host, port)).await else { return };
    let Some(address) = addresses.next() else { return };
    report.address = address.ip();
    let (trip, open) = trips(address).await;
    report.round_trip = trip;
    if !open {
        return;
    }
    let request = FarRequest { trains: false, bulk_to: Duration::ZERO, bulk_from: BULK };
    let problems = &mut report.problems;
    match measure(FarClient::new(address, credential), request, |one| problems.push(one.to_string())).await {
        Ok(far) => report.far = Some(far),
        Err(FarError::NotOne { .. }) => {}
        Err(error) => tracing::debug!("{error}"),
    }
}

/// Measures round trips to a port by connecting to it; also returns whether it is open.
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
                // Most likely a firewall that drops packets silently.
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
    use cheetah_probe::advice::Flow;

    use super::*;

    fn tuning(rate: f64, window_bytes: u64) -> Tuning {
        let flow = Flow { connections: 1, window_bytes, prefetch_bytes: 2 * window_bytes };
        Tuning {
            rtt_us: Some(20_000.0),
            rate_bits_per_s: Some(rate),
            from_tcp: true,
            flow: Some(flow),
            compress: false,
        }
    }

    #[test]
    fn tuning_sets_the_first_window_and_lowers_no_limit() {
        let (usual, slow) = (LinkUse::default(), tuning(1e8, 1 << 20));
        let plain = link(&slow);
        assert_eq!((plain.connections, plain.packing), (usual.connections, Packed::None));
        assert_eq!(link(&Tuning { compress: true, ..slow }).packing, Packed::Auto);
        assert_eq!((plain.window_bytes_first, plain.prefetch_bytes_max), (Some(1 << 20), Some(32 << 20)));
        let fat = link(&tuning(1e9, 26 << 20));
        assert_eq!((fat.window_bytes_first, fat.prefetch_bytes_max), (Some(8 << 20), Some(52 << 20)));
        // An agent's rate may be limited below that of its links.
        let links = |tuning| link(&Tuning { from_tcp: false, ..tuning }).window_bytes_first;
        assert_eq!((links(tuning(1e9, 26 << 20)), links(tuning(1e7, 256 << 10))), (None, Some(256 << 10)));
        let text = describe("lab", &slow, &plain);
        assert!(text.contains("lab (20.00 ms), 100 Mbit/s: ") && text.ends_with("not compressed"), "{text}");
    }

    #[test]
    fn unknown_rate_keeps_the_defaults() {
        let nothing =
            Tuning { rtt_us: Some(100_000.0), rate_bits_per_s: None, from_tcp: false, flow: None, compress: true };
        assert_eq!(link(&nothing), LinkUse::default());
        let text = describe("lab", &nothing, &link(&nothing));
        assert!(text.contains("lab (100.00 ms) is used as usual"), "{text}");
    }

    #[test]
    fn mistyped_word_gets_a_hint() {
        for (typed, hint) in
            [("atuo", "'auto'"), ("aut", "'auto'"), ("Auto", "'auto'"), ("autos", "'auto'"), ("of", "'off'")]
        {
            let text = not_a_word(Path::new(typed));
            assert!(is_a_word(Path::new(typed)) && text.ends_with(&format!("did you mean {hint}?")), "{text}");
        }
        assert!(!not_a_word(Path::new("path")).contains("did you mean"));
        assert!(!is_a_word(Path::new("path.json")) && !is_a_word(Path::new("./auto")));
    }

    #[tokio::test]
    async fn closed_port_has_a_round_trip_too() {
        // Bound, so that no other program gets the port, but not listening.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        assert!(!is_open(address).await);
        let _listener = socket.listen(1024).unwrap();
        assert!(is_open(address).await);
    }

    /// Whether the port is open. Repeats the measurement until every round trip is answered, since a stalled machine
    /// leaves some unanswered.
    async fn is_open(address: SocketAddr) -> bool {
        for _ in 0..20 {
            let (trip, open) = trips(address).await;
            if trip.is_some_and(|trip| trip.answered == TRIPS) {
                return open;
            }
        }
        panic!("some trip is never answered");
    }
}
