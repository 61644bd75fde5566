//! Measures a path and shows the report.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_device::Size;
use cheetah_probe::advice::advise;
use cheetah_probe::far::measure::{FarRequest, PACKETS_THERE_MAX, measure};
use cheetah_probe::far::{FarClient, FarError};
use cheetah_probe::limits::Limits;
use cheetah_probe::measure::{Aspect, Event, Measured, Options, Probe, UDP_PORT};
use cheetah_probe::path::{FarEnd, Method, PathReport};
use clap::ValueEnum;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::options::PacketArgs;
use super::problems::{capitalized, sentence};
use super::show;
use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::signals::Stop;
use crate::ui::{Progress, Ui};

/// The default port of far ends: the one after NBD's own. TCP probes are sent there too: the port answers whether it is
/// open or closed, and they disturb no server of evidence.
const FAR_PORT: u16 = 10810;

/// The options of a measurement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Measuring")]
pub struct PathArgs {
    /// The size of the disk that the advice is for
    #[arg(long, value_name = "SIZE", default_value_t = Size(1 << 40), conflicts_with = "send")]
    disk: Size,

    /// Measure only these: rtt, capacity, available, mtu, hops, far, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "send")]
    only: Vec<Measurement>,

    /// Packets that the host answers: ICMP echo, TCP (SYN and RST), UDP to a closed port, or the first of these that
    /// works
    #[arg(long, value_enum, default_value_t = MethodArg::Auto, conflicts_with = "send")]
    method: MethodArg,

    /// The HTTP port of a node or an agent on the host, or none [default: 10810, if one answers there]
    #[arg(long, value_name = "PORT|none", conflicts_with = "send")]
    far: Option<FarArg>,
}

/// A part of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measurement {
    /// Measured from here.
    Aspect(Aspect),
    /// Measured with a far end.
    Far,
}

impl FromStr for Measurement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "far" => Ok(Self::Far),
            _ => text.parse().map(Self::Aspect).map_err(|_| {
                format!("'{text}' cannot be measured; there are rtt, capacity, available, mtu, hops and far")
            }),
        }
    }
}

/// The packets that the host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MethodArg {
    /// The first method that works
    Auto,
    /// ICMP echo
    Icmp,
    /// TCP, to --port
    Tcp,
    /// UDP, to --port, which should be closed
    Udp,
}

/// The address of a far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FarArg {
    /// No far end.
    None,
    /// The far end at this port.
    Port(u16),
}

impl FromStr for FarArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            _ => match text.parse() {
                Ok(port @ 1..) => Ok(Self::Port(port)),
                _ => Err("write a port, or none".into()),
            },
        }
    }
}

/// Runs it.
pub async fn run(
    (host, address): (&str, IpAddr),
    args: PathArgs,
    packets: &PacketArgs,
    desk: &Desk,
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let mut shown = Shown::default();
    let aspects = args.aspects(address);
    let (Measured { mut report, problems, next }, ended) = match aspects.is_empty() {
        true => {
            let report = PathReport::new(host, address);
            (Measured { report, problems: Vec::new(), next: Vec::new() }, false)
        }
        false => {
            let raw = !address.is_loopback();
            let options = Options { raw, ..args.options(aspects, packets)? };
            let (host, packets) = (host.to_owned(), packets.clone());
            let probe = move || {
                let send = packets.options(packets.backend(address));
                Probe::new(host, address, Options { send, ..options })
            };
            alone(probe, stop, &mut shown, ui).await?
        }
    };
    report.problems.extend(problems.iter().map(sentence));
    // Send nothing more after an interrupt.
    if let Some(port) = args.far_port().filter(|_| !ended) {
        shown.begin("asking the far end", ui);
        let client = FarClient::new(SocketAddr::new(address, port), desk.credentials.acting_as());
        let far = tokio::select! {
            far = ask(client, packets.limits(), report.trains.packets, &mut report.problems) => Some(far),
            signal = stop.asked() => {
                report.problems.push(format!("The far end was asked until {signal}."));
                None
            }
        };
        match far {
            Some(Ok(far)) => report.far = Some(far),
            // No far end was asked for.
            Some(Err(error)) if !args.wants_far() => tracing::debug!("{error}"),
            Some(Err(error)) => report.problems.push(format!("No far end was asked: {error}.")),
            None => {}
        }
    }
    drop(shown);
    report.advice = advise(&report, args.disk.0);
    report.problems.extend(next.iter().map(|step| capitalized(&cheetah_words::clause(step))));
    ui.answer(show::report(&report), &report);
    if report.is_empty() {
        return Err(Failure::failed(format!(
            "the path to {host} could not be measured: check that the host is up, or try another --method"
        )));
    }
    Ok(())
}

/// Measures with the far end within `limits`, of which `sent` packets are used up.
async fn ask(client: FarClient<'_>, limits: Limits, sent: u32, problems: &mut Vec<String>) -> Result<FarEnd, FarError> {
    let request = request(limits, sent);
    if request.trains && sent.saturating_add(PACKETS_THERE_MAX) > limits.packets_per_s_max {
        // The packets sent so far then count towards another second.
        sleep(Duration::from_secs(1)).await;
    }
    let far = measure(client, request, |one| problems.push(one.to_string())).await?;
    if !request.trains {
        problems.push(format!(
            "No trains went to the far end and back: they are up to {PACKETS_THERE_MAX} packets, and --packets-max and \
             --rate-max leave fewer."
        ));
    }
    if request.bulk_to.is_zero() {
        problems.push(
            "The throughput of TCP was not measured: the packets of bulk data are not counted, and --packets-max or --rate-max \
             allow fewer than usual."
                .into(),
        );
    }
    Ok(far)
}

/// Returns what to measure with the far end within `limits`. The packets of bulk data are not counted, so it needs the default limits.
fn request(limits: Limits, sent: u32) -> FarRequest {
    let (usual, all) = (Limits::default(), FarRequest::default());
    let left = limits.packets_max.saturating_sub(sent).min(limits.packets_per_s_max);
    let is_less = limits.packets_max < usual.packets_max || limits.packets_per_s_max < usual.packets_per_s_max;
    let bulk = |usual| if is_less { Duration::ZERO } else { usual };
    FarRequest { trains: left >= PACKETS_THERE_MAX, bulk_to: bulk(all.bulk_to), bulk_from: bulk(all.bulk_from) }
}

/// Measures without a far end, on a thread of its own, which may be given real-time priority. Also returns whether a signal ended it.
async fn alone(
    probe: impl FnOnce() -> Probe + Send + 'static,
    stop: &mut Stop,
    shown: &mut Shown,
    ui: Ui,
) -> Result<(Measured, bool)> {
    let cancel = Arc::new(AtomicBool::new(false));
    let (tell, mut begun) = mpsc::unbounded_channel();
    let cancelled = Arc::clone(&cancel);
    let working = tokio::task::spawn_blocking(move || {
        probe().run(&cancelled, &mut |event| {
            if let Event::Begins(aspect) = event {
                // The receiver is gone only if the program ends.
                let _ = tell.send(aspect);
            }
        })
    });
    loop {
        tokio::select! {
            aspect = begun.recv() => match aspect {
                Some(aspect) => shown.begin(doing(aspect), ui),
                None => break,
            },
            signal = stop.asked() => {
                tracing::info!("{signal}: measuring ends");
                cancel.store(true, Ordering::Relaxed);
            }
        }
    }
    let found = working.await.context("measuring ended")?;
    Ok((found, cancel.load(Ordering::Relaxed)))
}

/// The progress display.
#[derive(Default)]
struct Shown(Option<Progress>);

impl Shown {
    fn begin(&mut self, what: &str, ui: Ui) {
        // Clear the previous one first.
        self.0 = None;
        self.0 = (!ui.is_json()).then(|| ui.spinner(what));
    }
}

fn doing(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::RoundTrip => "measuring round trips",
        Aspect::Mtu => "finding the largest packet that passes",
        Aspect::Hops => "finding the routers on the way",
        Aspect::Capacity => "measuring the capacity",
        Aspect::Available => "measuring the available bandwidth",
    }
}

impl PathArgs {
    /// Returns the measurements to make from here. Paths to this machine itself have no link, and on the loopback
    /// interface the kernel drops packets that it did not send.
    fn aspects(&self, address: IpAddr) -> Vec<Aspect> {
        let all = Aspect::ALL.into_iter().filter(|aspect| !address.is_loopback() || *aspect == Aspect::RoundTrip);
        all.filter(|aspect| self.only.is_empty() || self.only.contains(&Measurement::Aspect(*aspect))).collect()
    }

    /// Returns whether a far end was asked for, so that its absence is a problem.
    fn wants_far(&self) -> bool {
        self.only.contains(&Measurement::Far) || matches!(self.far, Some(FarArg::Port(_)))
    }

    fn far_port(&self) -> Option<u16> {
        if !self.only.is_empty() && !self.only.contains(&Measurement::Far) {
            return None;
        }
        match self.far {
            None => Some(FAR_PORT),
            Some(FarArg::None) => None,
            Some(FarArg::Port(port)) => Some(port),
        }
    }

    fn options(&self, aspects: Vec<Aspect>, packets: &PacketArgs) -> Result<Options> {
        let method = match self.method {
            MethodArg::Auto => None,
            MethodArg::Icmp => Some(Method::Icmp),
            MethodArg::Tcp => Some(Method::Tcp),
            MethodArg::Udp => Some(Method::Udp),
        };
        if packets.port.is_some() && !matches!(self.method, MethodArg::Tcp | MethodArg::Udp) {
            return Err(Failure::misused("--port is of TCP or UDP: say --method tcp or --method udp too"));
        }
        let usual = Options::default();
        Ok(Options {
            aspects,
            method,
            tcp_port: packets.port.unwrap_or(FAR_PORT),
            udp_port: packets.port.unwrap_or(UDP_PORT),
            limits: packets.limits(),
            gap_error_max: packets.gap_error_max(usual.gap_error_max),
            ..usual
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_parsed_by_name() {
        assert_eq!("far".parse(), Ok(Measurement::Far));
        assert_eq!("rtt".parse(), Ok(Measurement::Aspect(Aspect::RoundTrip)));
        assert!("speed".parse::<Measurement>().is_err());
        assert_eq!("none".parse(), Ok(FarArg::None));
        assert_eq!("10812".parse(), Ok(FarArg::Port(10812)));
        assert!("0".parse::<FarArg>().is_err() && "70000".parse::<FarArg>().is_err());
    }
    #[test]
    fn request_to_a_far_end_is_within_the_limits() {
        let usual = Limits::default();
        assert_eq!(request(usual, 0), FarRequest::default());
        assert_eq!(request(usual, usual.packets_max - PACKETS_THERE_MAX), FarRequest::default());
        assert!(!request(usual, usual.packets_max - PACKETS_THERE_MAX + 1).trains);
        let most = PACKETS_THERE_MAX;
        for less in [Limits { packets_max: most, ..usual }, Limits { packets_per_s_max: most, ..usual }] {
            let request = request(less, 0);
            assert!(request.trains && request.bulk_to.is_zero() && request.bulk_from.is_zero(), "{request:?}");
        }
        assert!(!request(Limits { packets_per_s_max: 100, ..usual }, 0).trains);
    }
}
