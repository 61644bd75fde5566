//! `cheetah probe --send`: sends packets on a schedule, and reports how well they kept it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cheetah_probe::clock::Nanos;
use cheetah_probe::far::Token;
use cheetah_probe::frame::{Probe, Session, frame};
use cheetah_probe::limits::{Budget, SendDecision};
use cheetah_probe::route::Route;
use cheetah_probe::schedule::{Pattern, ShortDuration, due};
use cheetah_probe::selfcheck::{Bound, GapErrors, Verdict};
use cheetah_probe::send::{Departures, Sender, Stamp, Train};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::options::PacketArgs;
use crate::answers::probe::{self as answers, Trains};
use crate::failure::{Context, Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The destination port of trains: the first port that traceroute uses, where few programs listen.
const PORT: u16 = 33434;
/// The largest error of a gap by default, which an idle machine keeps.
const GAP_ERROR_MAX: Duration = Duration::from_micros(5);
/// The time between handing a train over and the due time of its first packet, apart from [`LEAD_EACH`].
const LEAD: Duration = Duration::from_millis(5);
/// The additional time for each packet of the train.
const LEAD_EACH: Duration = Duration::from_micros(5);
/// How long to wait for the current train after a signal.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for the current train without a signal.
const PATIENCE_FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// How often to check for a signal.
const NAP: Duration = Duration::from_millis(100);
/// The most trains sent but not yet shown.
const SHOWN_BEHIND_MAX: usize = 64;

/// The options of `--send`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --send")]
pub struct SendArgs {
    /// Size of each packet, IP header included [default: the largest the interface takes, up to 1500]
    #[arg(long, value_name = "N", requires = "send", value_parser = clap::value_parser!(u32).range(48..=65535))]
    packet_bytes: Option<u32>,

    /// Number of trains that must leave on time
    #[arg(long, value_name = "N", requires = "send", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Number of times to resend a spoiled train
    #[arg(long, value_name = "N", requires = "send", default_value_t = 3)]
    again: u32,

    /// From the end of one train to the start of the next
    #[arg(long, value_name = "TIME", requires = "send", default_value_t = ShortDuration(Duration::from_millis(10)))]
    interval: ShortDuration,
}

/// A train that was sent.
struct TrainRecord {
    due: Vec<Nanos>,
    departures: Departures,
    verdict: Verdict,
}

/// The result.
#[derive(Default)]
struct Tally {
    sent: u32,
    accepted: u32,
    disturbed: u32,
    spoiled: u32,
    unknown: u32,
    packets: u32,
    errors_ns: Vec<i64>,
    stamp: Option<Stamp>,
    notes: Vec<String>,
}

/// The work of the sending thread.
struct Job {
    sender: Box<dyn Sender>,
    frames: Vec<Vec<u8>>,
    offsets: Vec<Duration>,
    args: SendArgs,
    packets: PacketArgs,
    bound: Bound,
    stopped: Arc<AtomicBool>,
    records: mpsc::Sender<TrainRecord>,
}

/// Runs `cheetah probe --send`.
pub async fn run(
    host: &str,
    address: IpAddr,
    pattern: Pattern,
    args: SendArgs,
    packets: &PacketArgs,
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let route = tokio::task::spawn_blocking(move || Route::to(address)).await.context("finding the route")?;
    let route = route.map_err(Failure::failed)?;
    let frames = frames(&route, &pattern, &args, packets)?;
    let frame_bytes = frames.first().map_or(0, Vec::len);
    let sender = packets.open(&route).map_err(Failure::failed)?;
    let backend = sender.backend();
    let (records, mut recorded) = mpsc::channel(SHOWN_BEHIND_MAX);
    let stopped = Arc::new(AtomicBool::new(false));
    let (offsets, repeat) = (pattern.offsets(), args.repeat);
    let (packets, bound) = (packets.clone(), Bound { gap_error_max: packets.gap_error_max(GAP_ERROR_MAX) });
    let job = Job { sender, frames, offsets, args, packets, bound, stopped: stopped.clone(), records };
    // A thread of its own, which may be given real-time priority.
    let working = tokio::task::spawn_blocking(move || job.run());
    let mut tally = Tally::default();
    let signal = follow(&mut recorded, &mut tally, &stopped, stop, ui).await?;
    let (sender, ended) = working.await.context("sending ended")?;
    tally.notes.extend(sender.notes().iter().map(ToString::to_string));
    tally.notes.extend(ended.as_ref().err().map(ToString::to_string));
    let what = format!("{pattern} to {host}, {frame_bytes}-byte frames through {} by {backend}", route.interface);
    let value = answers::Send::Done {
        address: address.to_string(),
        backend: backend.to_string(),
        frame_bytes,
        gap_errors_ns: tally.gap_errors().map(Into::into),
        host,
        interface: &route.interface,
        notes: &tally.notes,
        pattern: pattern.to_string(),
        stamp: tally.stamp.map(Into::into),
        trains: tally.trains(),
    };
    ui.answer(tally.describe(&what), &value);
    ended?;
    let good = tally.accepted + tally.unknown;
    match signal {
        Some(signal) if good < repeat => {
            Err(Failure::failed(format!("stopped by {signal} after {good} of {repeat} trains")))
        }
        None if good < repeat => Err(Failure::failed(format!(
            "{good} of {repeat} trains left on time; reduce the load of this machine, or allow larger errors with \
             --gap-error-max"
        ))),
        _ => Ok(()),
    }
}

/// Counts and shows trains until all are sent. Returns the signal that ended it, if one did.
async fn follow(
    recorded: &mut mpsc::Receiver<TrainRecord>,
    tally: &mut Tally,
    stopped: &AtomicBool,
    stop: &mut Stop,
    ui: Ui,
) -> Result<Option<&'static str>> {
    let (mut signal, mut patience) = (None, PATIENCE_FOR_EVER);
    loop {
        tokio::select! {
            sent = recorded.recv() => match sent {
                Some(sent) => tally.note(&sent, ui),
                None => return Ok(signal),
            },
            received = stop.asked() => {
                stopped.store(true, Ordering::Relaxed);
                (signal, patience) = (Some(received), PATIENCE);
            }
            () = sleep(patience) => return Err(Failure::failed("stopped in the middle of a train")),
        }
    }
}

/// Returns the frames of a train.
fn frames(route: &Route, pattern: &Pattern, args: &SendArgs, packets: &PacketArgs) -> Result<Vec<Vec<u8>>> {
    let limits = packets.limits();
    let count = u32::try_from(pattern.packets()).unwrap_or(u32::MAX);
    if count > limits.packets_max.min(limits.packets_per_s_max) {
        return Err(Failure::misused(format!(
            "a train of {count} packets is more than --packets-max {} and --rate-max {} allow",
            limits.packets_max, limits.packets_per_s_max
        )));
    }
    let ip_bytes = args.packet_bytes.unwrap_or(route.mtu.min(1500));
    if ip_bytes > route.mtu {
        return Err(Failure::misused(format!("{} takes packets of up to {} bytes", route.interface, route.mtu)));
    }
    let nonce = Token::random().context("cannot make a nonce")?.0;
    // From an ephemeral port.
    let (port, from) = (packets.port.unwrap_or(PORT), 0xC000 | (nonce as u16));
    let session = Session { nonce, local_port: if from == port { from ^ 1 } else { from }, port };
    let ends = route.ends();
    Ok((0..count).map(|seq| frame(&ends, &session, Probe::Udp { seq }, ip_bytes as usize, true)).collect())
}

impl Job {
    /// Sends until enough trains left on time, or the limits are reached.
    fn run(mut self) -> (Box<dyn Sender>, Result<()>) {
        let mut budget = Budget::new(self.packets.limits());
        let (mut good, mut again) = (0, self.args.again);
        while good < self.args.repeat && !self.stopped.load(Ordering::Relaxed) {
            match self.one(&mut budget) {
                Ok(true) => (good, again) = (good + 1, self.args.again),
                Ok(false) if again == 0 => (good, again) = (good + 1, self.args.again),
                Ok(false) => again -= 1,
                Err(failure) => return (self.sender, Err(failure)),
            }
            let next = Nanos::now() + self.args.interval.0;
            while Nanos::now() < next && good < self.args.repeat && !self.stopped.load(Ordering::Relaxed) {
                thread::sleep(next.since(Nanos::now()).min(NAP));
            }
        }
        (self.sender, Ok(()))
    }

    /// Sends one train. Returns whether it left on time, as far as is known.
    fn one(&mut self, budget: &mut Budget) -> Result<bool> {
        let count = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let bytes = self.frames.iter().map(|frame| frame.len() as u64).sum();
        loop {
            match budget.take(Nanos::now(), count, bytes) {
                SendDecision::Now => break,
                SendDecision::At(at) => thread::sleep(at.since(Nanos::now())),
                SendDecision::Exhausted => {
                    return Err(Failure::failed("the limit of packets is reached; --packets-max raises it"));
                }
            }
        }
        let start = self.sender.quiet_start(Nanos::now() + LEAD + LEAD_EACH * count, &self.offsets);
        let train = Train { frames: std::mem::take(&mut self.frames), due: due(start, &self.offsets) };
        let departures = self.sender.send(&train);
        let Train { frames, due } = train;
        self.frames = frames;
        let departures = departures.map_err(Failure::failed)?;
        let verdict = departures.check(&due, self.bound);
        // The receiver is closed only when the program ends.
        let _ = self.records.blocking_send(TrainRecord { due, departures, verdict });
        Ok(!matches!(verdict, Verdict::Spoiled { .. }))
    }
}

impl Tally {
    fn note(&mut self, train: &TrainRecord, ui: Ui) {
        self.sent += 1;
        self.packets += u32::try_from(train.due.len()).unwrap_or(u32::MAX);
        self.stamp = Some(train.departures.stamp);
        self.disturbed += u32::from(train.departures.stalls.is_some_and(|stalls| stalls.host_ns > 0));
        match train.verdict {
            Verdict::Accepted(_) => {
                self.accepted += 1;
                self.errors_ns.extend(train.departures.gap_errors(&train.due).unwrap_or_default());
            }
            Verdict::Spoiled { at, error_ns } => {
                self.spoiled += 1;
                tracing::info!("train {}: the gap before packet {at} is off by {error_ns} ns", self.sent);
            }
            Verdict::Unknown => self.unknown += 1,
        }
        if ui.is_json() {
            ui.event("", &train.answer(self.sent));
        }
    }

    fn trains(&self) -> Trains {
        let Self { sent, accepted, disturbed, spoiled, unknown, packets, .. } = *self;
        Trains { accepted, disturbed, packets, sent, spoiled, unknown }
    }

    fn gap_errors(&self) -> Option<GapErrors> {
        (!self.errors_ns.is_empty()).then(|| GapErrors::of(&self.errors_ns))
    }

    fn describe(&self, what: &str) -> String {
        let stamps = match self.stamp {
            Some(Stamp::Kernel) => ", stamped by the kernel",
            Some(Stamp::Own) => ", stamped by this program as calls returned",
            None => "",
        };
        let mut text = format!("{what}{stamps}\n");
        let plural = if self.sent == 1 { "" } else { "s" };
        text.push_str(&format!(
            "{} train{plural} sent: {} on time, {} spoiled",
            self.sent, self.accepted, self.spoiled
        ));
        if self.unknown > 0 {
            text.push_str(&format!(", {} without known departure times", self.unknown));
        }
        if self.disturbed > 0 {
            text.push_str(&format!("; the host of this virtual machine disturbed {} of them", self.disturbed));
        }
        if let Some(errors) = self.gap_errors() {
            let us = |ns: u64| ns as f64 / 1e3;
            text.push_str(&format!(
                "\ngap errors of those on time: {:.3} µs median, {:.3} µs 99th percentile, {:.3} µs maximum",
                us(errors.p50_ns),
                us(errors.p99_ns),
                us(errors.max_ns)
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("\n{note}"));
        }
        text
    }
}

impl TrainRecord {
    fn answer(&self, number: u32) -> answers::Send<'_> {
        let (verdict, gap_errors_ns, worst) = match self.verdict {
            Verdict::Accepted(errors) => (answers::Verdict::Accepted, Some(errors.into()), None),
            Verdict::Spoiled { at, error_ns } => {
                (answers::Verdict::Spoiled, None, Some(answers::WorstGap { error_ns, packet: at }))
            }
            Verdict::Unknown => (answers::Verdict::Unknown, None, None),
        };
        answers::Send::Train {
            due_ns: self.due.iter().map(|at| at.0).collect(),
            gap_errors_ns,
            left_ns: self.departures.left.iter().map(|at| at.map(|at| at.0)).collect(),
            stalls_ns: self.departures.stalls.map(Into::into),
            stamp: self.departures.stamp.into(),
            train: number,
            verdict,
            worst,
        }
    }
}
