//! The engine, readers that follow traces, and a link between it and the device, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use futures::FutureExt;

use super::cache::{Piece, Pieces};
use super::engine::{Engine, Fetch, Fetches, Outcome, Plan};
use super::stats::PrefetchStats;
use super::{MIB, PrefetchConfig};
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data};

/// Bytes around every answer: an NBD header and its share of Ethernet, IP and TCP.
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

/// Someone who reads a trace, keeping so many reads under way.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) trace: Vec<ByteRange>,
    pub(super) depth: usize,
    /// Time spent on what was read, before the next is asked for.
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

/// What came of it.
pub(super) struct Outcomes {
    pub(super) elapsed: Duration,
    pub(super) read_bytes: u64,
    pub(super) stats: PrefetchStats,
    /// The longest that one read took.
    pub(super) slowest: Duration,
    /// Requests the device got.
    pub(super) requests: u64,
}

impl Outcomes {
    /// Bytes read a second, as a share of what the wire carries.
    pub(super) fn share_of(&self, wire: Wire) -> f64 {
        self.read_bytes as f64 / self.elapsed.as_secs_f64() / wire.bandwidth as f64
    }
}

/// Lets the readers read to the end of their traces, all at once.
pub(super) fn run(wire: Wire, config: PrefetchConfig, size: u64, readers: Vec<Reader>) -> Outcomes {
    let mut simulation = Simulation {
        wire,
        config,
        engine: Engine::new(config, size),
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

/// The wire, 64 MiB of budget, and a device far larger than any trace.
pub(super) fn run_plain(wire: Wire, readers: Vec<Reader>) -> Outcomes {
    run(wire, PrefetchConfig::default(), MIB << 20, readers)
}

struct Simulation {
    wire: Wire,
    config: PrefetchConfig,
    engine: Engine,
    now: Duration,
    free_at: Duration,
    events: BinaryHeap<Reverse<(Duration, usize)>>,
    happenings: Vec<Option<Happening>>,
    readers: Vec<Reader>,
    progress: Vec<Progress>,
    reads: Vec<Read>,
    /// Those of them that are not finished.
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
    Arrive { fetch: Fetch },
    Answer { read: usize },
}

struct Read {
    reader: usize,
    began: Duration,
    range: ByteRange,
    /// Answers of the device to come.
    demands: usize,
    pieces: Pieces,
    sent: Option<TrackedRequest>,
}

impl Simulation {
    fn at(&mut self, time: Duration, happening: Happening) {
        self.events.push(Reverse((time, self.happenings.len())));
        self.happenings.push(Some(happening));
    }

    /// Sends a request; it is answered after all those before it.
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
                    let data = Outcome::Arrived(Data::zeros(fetch.range.len));
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
        let mut fetches = Fetches::new();
        let plan = self.engine.read(range, self.now, &mut fetches);
        let mut read = Read { reader, began: self.now, range, demands: 0, pieces: Pieces::new(), sent: None };
        let id = self.reads.len();
        match plan {
            Plan::Hit(data) => assert_eq!(data.len(), range.len),
            Plan::Pass => {
                read.demands = 1;
                self.request(range.len, Happening::Answer { read: id });
            }
            Plan::Gather(pieces, sent) => {
                read.sent = Some(sent);
                for piece in &pieces {
                    if let Piece::Missing(range) = piece {
                        read.demands += 1;
                        self.request(range.len, Happening::Answer { read: id });
                    }
                }
                read.pieces = pieces;
            }
        }
        self.reads.push(read);
        self.open.push(id);
        self.launch(fetches);
        self.finish_reads();
    }

    fn launch(&mut self, fetches: Fetches) {
        for fetch in fetches {
            self.request(fetch.range.len, Happening::Arrive { fetch });
        }
    }

    fn fetch_more(&mut self) {
        let mut fetches = Fetches::new();
        self.engine.fetch_more(self.now, &mut fetches);
        self.launch(fetches);
    }

    fn finish_reads(&mut self) {
        let landed = |piece: &Piece| match piece {
            Piece::Flying { landing, part, .. } => landing.part(*part).now_or_never().is_some(),
            _ => true,
        };
        for at in std::mem::take(&mut self.open) {
            let read = &self.reads[at];
            if read.demands > 0 || !read.pieces.iter().all(landed) {
                self.open.push(at);
                continue;
            }
            let (reader, len) = (read.reader, read.range.len);
            self.slowest = self.slowest.max(self.now - read.began);
            self.read_bytes += len;
            self.last = self.now;
            self.reads[at].pieces.clear();
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
