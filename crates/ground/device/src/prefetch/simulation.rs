//! The engine with readers that follow traces, over a link in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use futures::FutureExt;

use super::chunk_cache::{PrefetchedPart, PrefetchedParts};
use super::engine::{FetchOutcome, PrefetchEngine, PrefetchPlan, PrefetchRequest, PrefetchRequests};
use super::stats::PrefetchStats;
use super::{MIB, PrefetchConfig};
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data};

/// The overhead of every answer in bytes: an NBD header, and a share of the Ethernet, IP and TCP headers.
const OVERHEAD: u64 = 100;

/// A link that answers in order.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    /// Bytes a second.
    pub(super) bandwidth: u64,
    pub(super) round_trip: Duration,
}

impl Wire {
    pub(super) const fn new(mbit_per_second: u64, round_trip_us: u64) -> Self {
        Self { bandwidth: mbit_per_second * 1_000_000 / 8, round_trip: Duration::from_micros(round_trip_us) }
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes + OVERHEAD) * 1_000_000_000 / self.bandwidth)
    }
}

/// A reader that follows a trace at a queue depth.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) trace: Vec<ByteRange>,
    pub(super) depth: usize,
    /// The time between an answer and the next read.
    pub(super) think: Duration,
}

impl Reader {
    pub(super) fn new(trace: Vec<ByteRange>) -> Self {
        Self { trace, depth: 1, think: Duration::ZERO }
    }

    pub(super) fn at_depth(self, depth: usize) -> Self {
        Self { depth, ..self }
    }

    pub(super) fn thinking(self, think: Duration) -> Self {
        Self { think, ..self }
    }
}

/// The results of a simulation.
pub(super) struct Outcomes {
    pub(super) elapsed: Duration,
    pub(super) read_bytes: u64,
    pub(super) stats: PrefetchStats,
    /// The latency of the slowest read.
    pub(super) slowest: Duration,
    /// The number of requests to the device.
    pub(super) requests: u64,
}

impl Outcomes {
    /// Returns the bytes read a second, as a share of the bandwidth.
    pub(super) fn share_of(&self, wire: Wire) -> f64 {
        self.read_bytes as f64 / self.elapsed.as_secs_f64() / wire.bandwidth as f64
    }
}

/// Runs all readers at once, to the end of their traces.
pub(super) fn run(wire: Wire, config: PrefetchConfig, size: u64, readers: Vec<Reader>) -> Outcomes {
    let mut simulation = Simulation {
        wire,
        config,
        engine: PrefetchEngine::new(config, size),
        now: Duration::ZERO,
        free_at: Duration::ZERO,
        events: BinaryHeap::new(),
        happenings: Vec::new(),
        progress: readers.iter().map(|_| Progress::default()).collect(),
        reads: Vec::new(),
        open: Vec::new(),
        requests: 0,
        read_bytes: 0,
        slowest: Duration::ZERO,
        last: Duration::ZERO,
        readers,
    };
    for reader in 0..simulation.readers.len() {
        for _ in 0..simulation.readers[reader].depth {
            simulation.at(Duration::ZERO, Happening::Ask { reader });
        }
    }
    simulation.run();
    Outcomes {
        elapsed: simulation.last,
        read_bytes: simulation.read_bytes,
        stats: simulation.engine.stats(),
        slowest: simulation.slowest,
        requests: simulation.requests,
    }
}

/// Runs the readers with the default budget on a device far larger than any trace.
pub(super) fn run_plain(wire: Wire, readers: Vec<Reader>) -> Outcomes {
    run(wire, PrefetchConfig::default(), MIB << 20, readers)
}

struct Simulation {
    wire: Wire,
    config: PrefetchConfig,
    engine: PrefetchEngine,
    now: Duration,
    free_at: Duration,
    events: BinaryHeap<Reverse<(Duration, usize)>>,
    happenings: Vec<Option<Happening>>,
    readers: Vec<Reader>,
    progress: Vec<Progress>,
    reads: Vec<Read>,
    /// The reads that are not finished.
    open: Vec<usize>,
    requests: u64,
    read_bytes: u64,
    slowest: Duration,
    last: Duration,
}

#[derive(Default)]
struct Progress {
    next: usize,
}

enum Happening {
    Ask { reader: usize },
    Arrive { fetch: PrefetchRequest },
    Answer { read: usize },
}

struct Read {
    reader: usize,
    began: Duration,
    range: ByteRange,
    /// The number of answers the device still owes.
    demands: usize,
    parts: PrefetchedParts,
    sent: Option<TrackedRequest>,
}

impl Simulation {
    fn at(&mut self, time: Duration, happening: Happening) {
        self.events.push(Reverse((time, self.happenings.len())));
        self.happenings.push(Some(happening));
    }

    /// Sends a request, which is answered after all earlier ones.
    fn request(&mut self, bytes: u64, happening: Happening) {
        self.requests += 1;
        let begins = self.free_at.max(self.now + self.wire.round_trip / 2);
        self.free_at = begins + self.wire.time(bytes);
        self.at(self.free_at + self.wire.round_trip / 2, happening);
    }

    fn run(&mut self) {
        while let Some(Reverse((time, at))) = self.events.pop() {
            self.now = time;
            match self.happenings[at].take().unwrap() {
                Happening::Ask { reader } => self.ask(reader),
                Happening::Arrive { fetch } => {
                    let data = FetchOutcome::Arrived(Data::zeros(fetch.range.len));
                    self.engine.fetched(&fetch, data, self.now);
                    self.fetch_more();
                    self.finish_reads();
                }
                Happening::Answer { read } => {
                    self.reads[read].demands -= 1;
                    self.finish_reads();
                }
            }
            let stats = self.engine.stats();
            assert!(stats.held_bytes + stats.in_flight_bytes <= self.config.budget_bytes, "{stats:?}");
            assert!(stats.used_bytes + stats.unused_bytes <= stats.prefetched_bytes, "{stats:?}");
        }
    }

    fn ask(&mut self, reader: usize) {
        let Some(range) = self.readers[reader].trace.get(self.progress[reader].next).copied() else { return };
        self.progress[reader].next += 1;
        let mut fetches = PrefetchRequests::new();
        let plan = self.engine.read(range, self.now, &mut fetches);
        let mut read = Read { reader, began: self.now, range, demands: 0, parts: PrefetchedParts::new(), sent: None };
        let id = self.reads.len();
        match plan {
            PrefetchPlan::Hit(data) => assert_eq!(data.len(), range.len),
            PrefetchPlan::Pass => {
                read.demands = 1;
                self.request(range.len, Happening::Answer { read: id });
            }
            PrefetchPlan::Gather(parts, sent) => {
                read.sent = Some(sent);
                for part in &parts {
                    if let PrefetchedPart::Absent(range) = part {
                        read.demands += 1;
                        self.request(range.len, Happening::Answer { read: id });
                    }
                }
                read.parts = parts;
            }
        }
        self.reads.push(read);
        self.open.push(id);
        self.spawn_all(fetches);
        self.finish_reads();
    }

    fn spawn_all(&mut self, fetches: PrefetchRequests) {
        for fetch in fetches {
            self.request(fetch.range.len, Happening::Arrive { fetch });
        }
    }

    fn fetch_more(&mut self) {
        let mut fetches = PrefetchRequests::new();
        self.engine.fetch_more(self.now, &mut fetches);
        self.spawn_all(fetches);
    }

    fn finish_reads(&mut self) {
        let landed = |part: &PrefetchedPart| match part {
            PrefetchedPart::InFlight { pending, part, .. } => pending.part(*part).now_or_never().is_some(),
            _ => true,
        };
        for at in std::mem::take(&mut self.open) {
            let read = &self.reads[at];
            if read.demands > 0 || !read.parts.iter().all(landed) {
                self.open.push(at);
                continue;
            }
            let (reader, len) = (read.reader, read.range.len);
            self.slowest = self.slowest.max(self.now - read.began);
            self.read_bytes += len;
            self.last = self.now;
            self.reads[at].parts.clear();
            if let Some(sent) = self.reads[at].sent.take() {
                self.engine.demanded(sent, true, self.now);
                self.fetch_more();
            }
            // A system call and a copy.
            let think = self.readers[reader].think + Duration::from_nanos(1_000 + len / 4);
            self.at(self.now + think, Happening::Ask { reader });
        }
    }
}
