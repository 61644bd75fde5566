//! One run of the simulation: a safety phase, in which faults are injected, then a liveness phase, in which they stop and
//! redundancy must return.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Error, Zeroing};
use cheetah_redundancy::{MemberState, Redundancy};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::checker::{BLOCK, Checker, fill};
use crate::network::{Faults, Process, Weather, World};
use crate::process::{OPEN_PAUSE, Reader, Shape, Writer, open};
use crate::random::Random;

/// No operation of the drive may take longer, whatever happens.
const OPERATION_MAX: Duration = Duration::from_secs(60);
/// After the last fault, redundancy is complete within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

/// The numbers of the processes that only read.
const READERS: std::ops::Range<u64> = 100..102;

/// What one run does.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    pub spares: usize,
    pub weather: Weather,
    pub duration: Duration,
    pub bounds: Bounds,
}

/// How far faults go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Within what the layout survives: no error may reach the user.
    Survived,
    /// The writer may die with as many members as the layout survives. What it was writing may be lost, and everything else
    /// returns.
    WithWriter,
    /// More members than the layout survives.
    Exceeded,
}

/// What came of it.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub trace: u64,
    pub faults: Faults,
    pub reads: u64,
    pub blocks_read: u64,
    pub writes: u64,
    pub errors: u64,
    pub reader_errors: u64,
    /// Seen, most of them healed by the next writes.
    pub bad_ranges: u64,
    pub problems: Vec<String>,
}

impl Plan {
    /// The plan that follows from a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0070_6c61_6e00);
        let (redundancy, members) = match random.below(8) {
            0 | 1 => (Redundancy::Mirror { copies: 2 }, 2 + random.below(3)),
            2 => (Redundancy::Mirror { copies: 3 }, 3 + random.below(2)),
            3..=5 => (Redundancy::Parity { parities: 1 }, 3 + random.below(3)),
            _ => (Redundancy::Parity { parities: 2 }, 4 + random.below(3)),
        };
        let members = members as usize;
        let shape = Shape {
            redundancy,
            members,
            unit: 4096 << random.below(2),
            cycles: 2 + random.below(4),
            region_bytes: 16384 << random.below(3),
        };
        let storm = random.below(4);
        Self {
            seed,
            shape,
            spares: 1 + random.below(2) as usize,
            weather: Weather { stalled_ppm: storm * 6000, broken_ppm: storm * 2000, latency: true },
            duration: Duration::from_secs(20 + random.below(40)),
            bounds: match random.below(8) {
                0 | 1 => Bounds::Exceeded,
                2 | 3 => Bounds::WithWriter,
                _ => Bounds::Survived,
            },
        }
    }
}

/// What the tasks of a run share.
pub struct Run {
    pub plan: Plan,
    pub world: Arc<World>,
    pub checker: Mutex<Checker>,
    pub outcome: Mutex<Outcome>,
    pub writer: Mutex<Option<Arc<Writer>>>,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Safety,
    Liveness,
    Over,
}

/// Runs a plan in a runtime of its own, in virtual time.
pub fn run(plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcome = runtime.block_on(async {
        let run = Run::new(plan.clone());
        run.clone().play().await;
        let mut outcome = run.outcome.lock().clone();
        outcome.trace = run.world.trace();
        outcome.faults = run.world.state.lock().faults;
        let checker = run.checker.lock();
        (outcome.reads, outcome.blocks_read) = (checker.reads, checker.blocks_read);
        outcome
    });
    // Tasks that are left are dropped with the runtime.
    drop(runtime);
    outcome
}

impl Run {
    pub fn new(plan: Plan) -> Arc<Self> {
        let nodes = plan.shape.members + plan.spares;
        let size = plan.shape.geometry().member_bytes();
        let world = World::new(plan.seed, nodes, size, plan.weather);
        world.state.lock().drive_file = Some(plan.shape.created(&world));
        Arc::new(Self {
            checker: Mutex::new(Checker::new(plan.shape.size())),
            outcome: Mutex::new(Outcome::default()),
            writer: Mutex::new(None),
            phase: Mutex::new(Phase::Safety),
            world,
            plan,
        })
    }

    pub fn problem(&self, what: String) {
        if crate::verbose() {
            println!("PROBLEM: {what}");
        }
        let mut outcome = self.outcome.lock();
        if outcome.problems.len() < 5 {
            outcome.problems.push(what);
        }
    }

    fn below(&self, limit: u64) -> u64 {
        self.world.state.lock().random.below(limit)
    }

    fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    async fn play(self: Arc<Self>) {
        let mut tasks = vec![tokio::spawn(self.clone().supervise()), tokio::spawn(self.clone().repair())];
        for id in 0..2 {
            tasks.push(tokio::spawn(self.clone().work(id)));
            tasks.push(tokio::spawn(self.clone().read_elsewhere(READERS.start + id)));
        }
        let faults = tokio::spawn(self.clone().inject());
        faults.await.unwrap();
        self.recover().await;
        *self.phase.lock() = Phase::Over;
        for task in tasks {
            if task.await.is_err() {
                self.problem("a task panicked".into());
            }
        }
    }

    /// Keeps a writer alive.
    async fn supervise(self: Arc<Self>) {
        let (mut id, mut was_bad) = (1, false);
        while self.phase() != Phase::Over {
            let writer = self.writer.lock().clone();
            let bad = writer.map_or(0, |writer| writer.drive.members().bad_ranges().len() as u64);
            self.outcome.lock().bad_ranges += if was_bad { 0 } else { bad };
            was_bad = bad > 0;
            if self.writer.lock().as_ref().is_none_or(|writer| !writer.process.is_alive()) {
                *self.writer.lock() = None;
                self.open_writer(id).await;
                id += 1;
            }
            sleep(OPEN_PAUSE).await;
        }
        let writer = self.writer.lock().take();
        drop(writer);
    }

    /// Opens the drive in a new process, which becomes the writer.
    async fn open_writer(&self, id: u64) {
        let process = Process::new(id);
        match timeout(OPERATION_MAX, open(&self.world, &process, &self.plan.shape)).await {
            Ok(Ok(writer)) => {
                self.world.note(&[id, 30]);
                let former = self.writer.lock().replace(Arc::new(writer));
                drop(former);
            }
            Ok(Err(why)) => {
                if crate::verbose() {
                    println!("process {id} cannot open the drive: {why}");
                }
            }
            Err(_) => self.problem("opening the drive takes for ever".into()),
        }
    }

    fn kill_writer(&self) -> bool {
        let Some(writer) = self.writer.lock().take() else { return false };
        writer.process.alive.store(false, std::sync::atomic::Ordering::Relaxed);
        self.world.note(&[writer.process.id, 31]);
        let id = writer.process.id;
        drop(writer);
        self.world.break_connections(|connection| connection.process == id);
        true
    }

    /// Replaces members that stay lost by nodes that are free.
    async fn repair(self: Arc<Self>) {
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(700)).await;
            let Some(writer) = self.writer.lock().clone().filter(|writer| writer.process.is_alive()) else { continue };
            let map = writer.map();
            let places = writer.environment.places.lock().clone();
            for member in 0..places.len() {
                let place = places[member];
                let (up, instance) = self.world.with_node(place.node, |node| (node.up, node.instance));
                if map.members[member].state != MemberState::Stale || (up && instance == place.instance) {
                    continue;
                }
                let taken: BTreeSet<usize> = places
                    .iter()
                    .enumerate()
                    .filter(|(other, place)| {
                        let instance = self.world.with_node(place.node, |node| node.instance);
                        *other != member && instance == place.instance
                    })
                    .map(|(_, place)| place.node)
                    .collect();
                let nodes = self.world.state.lock().nodes.len();
                let free = |node: &usize| {
                    !taken.contains(node)
                        && self.world.with_node(*node, |node| node.up && !node.frozen && !node.isolated)
                        && self.world.state.lock().cut_off.is_none_or(|(cut, _)| cut != *node)
                };
                if let Some(node) = (0..nodes).find(free) {
                    // Only an empty node may take the place; one that served before is started anew.
                    if self.world.with_node(node, |node| node.map.is_some()) {
                        self.world.kill(node);
                        self.world.restart(node);
                    }
                    let replaced = writer.replace(&self.world, member, node).await;
                    self.world.note(&[33, member as u64, node as u64, u64::from(replaced.is_ok())]);
                    break;
                }
            }
        }
    }

    /// A range of whole blocks.
    fn some_blocks(&self) -> std::ops::Range<u64> {
        let blocks = self.plan.shape.size() / BLOCK;
        let longest = [1, 4, 16, 64, blocks][self.below(5) as usize].min(blocks);
        let len = 1 + self.below(longest);
        let start = self.below(blocks - len + 1);
        start..start + len
    }

    fn is_deposed(&self, writer: &Writer) -> bool {
        self.world.state.lock().term != writer.term
    }

    /// Reads and writes through the writer.
    async fn work(self: Arc<Self>, id: u64) {
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(1 + self.below(30))).await;
            let writer = self.writer.lock().clone();
            let Some(writer) = writer else { continue };
            let blocks = self.some_blocks();
            match self.below(10) {
                0..=4 => self.write(&writer, blocks).await,
                5..=8 => self.read(&writer, blocks).await,
                _ => {
                    let flushed = timeout(OPERATION_MAX, writer.drive.flush()).await;
                    self.note_result(&writer, "flush", flushed.map(|flushed| flushed.map(|_| ())));
                }
            }
            self.world.note(&[id, 20]);
        }
    }

    pub async fn write(&self, writer: &Writer, blocks: std::ops::Range<u64>) {
        let zeros = self.below(12) == 0;
        let version = self.checker.lock().issue(blocks.clone(), zeros);
        let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let operation = match zeros {
            true => writer.drive.zero(range, Zeroing::default()),
            false => writer.drive.write(range.offset, Data::from(fill(blocks.clone(), version)), false),
        };
        let written = timeout(OPERATION_MAX, operation).await;
        let acknowledged = matches!(written, Ok(Ok(())));
        self.checker.lock().end(version, blocks, acknowledged);
        self.outcome.lock().writes += 1;
        self.note_result(writer, "write", written);
    }

    pub async fn read(&self, writer: &Writer, blocks: std::ops::Range<u64>) {
        let since = self.checker.lock().now();
        let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let read = timeout(OPERATION_MAX, writer.drive.read(range)).await;
        if let Ok(Ok(data)) = &read {
            // What a writer reads after another one took over is old.
            let since = Some(since).filter(|_| !self.is_deposed(writer));
            if let Err(wrong) = self.checker.lock().check(blocks.start, data, since) {
                self.problem(format!("the writer read wrong bytes: {wrong}"));
            }
        }
        self.note_result(writer, "read", read.map(|read| read.map(|_| ())));
    }

    /// A writer meets no error while faults are within bounds, unless it was killed or deposed.
    fn note_result(&self, writer: &Writer, what: &str, result: Result<Result<(), Error>, tokio::time::error::Elapsed>) {
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                self.problem(format!("a {what} hangs"));
                return;
            }
        };
        if crate::verbose() {
            println!("process {}: {what}: {error}", writer.process.id);
        }
        if !writer.process.is_alive() || self.is_deposed(writer) {
            writer.process.alive.store(false, std::sync::atomic::Ordering::Relaxed);
            return;
        }
        self.outcome.lock().errors += 1;
        if self.plan.bounds == Bounds::Survived {
            self.problem(format!("a {what} failed: {error}; {:?}", writer.map()));
        }
    }

    /// Reads in another process, which follows the map. It never sees less than what was acknowledged before it began to read.
    async fn read_elsewhere(self: Arc<Self>, id: u64) {
        let process = Process::new(id);
        let reader = loop {
            match Reader::open_following(&self.world, &process, &self.plan.shape).await {
                Ok(reader) => break reader,
                Err(_) if self.phase() == Phase::Over => return,
                Err(_) => sleep(OPEN_PAUSE).await,
            }
        };
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(5 + self.below(40))).await;
            let begun = self.checker.lock().now();
            let blocks = self.some_blocks();
            let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
            match timeout(OPERATION_MAX, reader.drive.read(range)).await {
                Ok(Ok(data)) => {
                    if let Err(wrong) = self.checker.lock().check(blocks.start, &data, Some(begun)) {
                        self.problem(format!("reader {id} read wrong bytes: {wrong}"));
                    }
                }
                // Its map may be old, or it may be cut off.
                Ok(Err(_)) => self.outcome.lock().reader_errors += u64::from(self.plan.bounds == Bounds::Survived),
                Err(_) => self.problem("a reader hangs".into()),
            }
        }
    }

    /// Nodes that a further fault must not join: lost, out of sync, or damaged.
    fn impaired(&self) -> BTreeSet<usize> {
        let writer = self.writer.lock().clone();
        let (drive_file, mut bad) = {
            let state = self.world.state.lock();
            let unwell = |node: &crate::node::Node| {
                !node.up || node.frozen || node.isolated || node.refuse_maps > 0 || !node.damaged.is_empty()
            };
            let mut bad: BTreeSet<usize> = (0..state.nodes.len()).filter(|node| unwell(&state.nodes[*node])).collect();
            bad.extend(state.cut_off.map(|(node, _)| node));
            (state.drive_file.clone(), bad)
        };
        let mut count = |map: &cheetah_redundancy::Map, places: &[crate::node::Place]| {
            for (member, place) in map.members.iter().zip(places) {
                let instance = self.world.with_node(place.node, |node| node.instance);
                if member.state != MemberState::InSync || instance != place.instance {
                    bad.insert(place.node);
                }
            }
        };
        if let Some(stored) = drive_file {
            count(&stored.map, &stored.places);
        }
        if let Some(writer) = writer {
            count(&writer.map(), &writer.environment.places.lock());
        }
        bad
    }

    /// Whether redundancy agrees with the data, as far as the writer knows.
    fn is_settled(&self) -> bool {
        let writer = self.writer.lock().clone();
        writer.is_some_and(|writer| {
            writer.process.is_alive() && !self.is_deposed(&writer) && writer.drive.members().to_settle() == 0
        })
    }

    async fn inject(self: Arc<Self>) {
        let begun = Instant::now();
        let losses_max = self.plan.shape.losses_max();
        let parity = matches!(self.plan.shape.redundancy, Redundancy::Parity { .. });
        // Nodes that had a fault lately: its consequences may still come.
        let mut recent: Vec<(Instant, usize)> = Vec::new();
        let mut rivals = 0;
        while begun.elapsed() < self.plan.duration {
            sleep(Duration::from_millis(1 + self.below(60))).await;
            recent.retain(|(until, _)| *until > Instant::now());
            let mut bad = self.impaired();
            bad.extend(recent.iter().map(|(_, node)| *node));
            let nodes = self.world.state.lock().nodes.len() as u64;
            let node = self.below(nodes) as usize;
            let after = bad.len() + usize::from(!bad.contains(&node));
            let allowed = match self.plan.bounds {
                // After a crash, groups may be torn: then they have no redundancy to lose.
                Bounds::Survived => after <= losses_max && (!parity || self.is_settled()),
                Bounds::WithWriter => after <= losses_max,
                Bounds::Exceeded => after <= losses_max + 1 + self.below(2) as usize,
            };
            // A mirror's groups can be read from each copy, so that the writer's death is no further loss.
            let writer_may_die = self.plan.bounds != Bounds::Survived || !parity || bad.is_empty();
            let kind = self.below(16);
            let pause = Duration::from_millis(10 + [100, 700, 3000][self.below(3) as usize]);
            if matches!(kind, 0..=12 | 15) && !allowed {
                continue;
            }
            let up = self.world.with_node(node, |node| node.up);
            let faults = |count: fn(&mut Faults)| count(&mut self.world.state.lock().faults);
            self.world.note(&[40, kind, node as u64]);
            if crate::verbose() {
                println!("fault {kind} at node {node} for {pause:?}, impaired before: {bad:?}");
            }
            if matches!(kind, 0..=12 | 15) {
                recent.push((Instant::now() + pause + Duration::from_millis(1200), node));
            }
            match kind {
                0 | 1 if up => {
                    self.world.kill(node);
                    faults(|faults| faults.killed += 1);
                    let run = self.clone();
                    tokio::spawn(async move {
                        sleep(pause).await;
                        run.world.restart(node);
                    });
                }
                2..=4 if up => {
                    self.world.freeze(node, true);
                    faults(|faults| faults.frozen += 1);
                    let run = self.clone();
                    tokio::spawn(async move {
                        sleep(pause).await;
                        run.world.freeze(node, false);
                    });
                }
                5 | 6 if up => {
                    self.world.isolate(node, true);
                    faults(|faults| faults.isolated += 1);
                    let run = self.clone();
                    tokio::spawn(async move {
                        sleep(pause).await;
                        run.world.isolate(node, false);
                    });
                }
                7 | 8 if up => {
                    self.world.break_connections(|connection| connection.node == node);
                    faults(|faults| faults.connections_broken += 1);
                }
                9..=11 if up => {
                    let page = self.below(self.plan.shape.geometry().member_bytes() / crate::node::PAGE);
                    self.world.with_node(node, |node| node.damaged.insert(page));
                    faults(|faults| faults.damaged += 1);
                    let run = self.clone();
                    // Nobody looks at a page of redundancy while all is well: after a while, the bits are mended.
                    tokio::spawn(async move {
                        sleep(Duration::from_secs(3)).await;
                        run.world.with_node(node, |node| node.damaged.remove(&page));
                    });
                }
                12 if up => {
                    let times = 1 + self.below(2) as u32;
                    self.world.with_node(node, |node| node.refuse_maps += times);
                    faults(|faults| faults.maps_refused += 1);
                    let run = self.clone();
                    tokio::spawn(async move {
                        sleep(pause).await;
                        run.world.with_node(node, |node| node.refuse_maps = 0);
                    });
                }
                13 if self.below(12) == 0 && writer_may_die => {
                    let with_node = self.plan.bounds == Bounds::WithWriter && up && allowed;
                    if with_node {
                        // It dies in mid-write, with a machine that is its node, too.
                        let left = self.below(8);
                        self.world.state.lock().writes_left = Some(left);
                        sleep(Duration::from_millis(60)).await;
                    }
                    let killed = self.kill_writer();
                    self.world.state.lock().writes_left = None;
                    self.world.state.lock().faults.writers_killed += u64::from(killed);
                    if with_node {
                        recent.push((Instant::now() + pause + Duration::from_millis(1200), node));
                        self.world.kill(node);
                        faults(|faults| faults.killed += 1);
                        let run = self.clone();
                        tokio::spawn(async move {
                            sleep(pause).await;
                            run.world.restart(node);
                        });
                    }
                }
                14 if self.below(20) == 0 && writer_may_die => {
                    rivals += 1;
                    faults(|faults| faults.rivals += 1);
                    let run = self.clone();
                    tokio::spawn(async move { run.open_writer(10_000 + rivals).await });
                }
                15 if up && self.world.state.lock().cut_off.is_none() => {
                    // Its writer and the other nodes are not reached from there; a reader is.
                    let reader = READERS.start + self.below(2);
                    self.world.cut_off(Some((node, reader)));
                    faults(|faults| faults.readers_cut_off += 1);
                    let run = self.clone();
                    tokio::spawn(async move {
                        sleep(pause).await;
                        run.world.cut_off(None);
                    });
                }
                _ => {}
            }
        }
    }

    /// Ends every fault, waits until redundancy is complete, and compares what each set of members gives.
    async fn recover(&self) {
        *self.phase.lock() = Phase::Liveness;
        {
            let mut state = self.world.state.lock();
            state.weather = Weather { stalled_ppm: 0, broken_ppm: 0, latency: true };
        }
        sleep(Duration::from_secs(4)).await;
        let nodes = self.plan.shape.members + self.plan.spares;
        self.world.cut_off(None);
        for node in 0..nodes {
            self.world.freeze(node, false);
            self.world.isolate(node, false);
            self.world.with_node(node, |node| node.refuse_maps = 0);
            if !self.world.with_node(node, |node| node.up) {
                self.world.restart(node);
            }
        }
        let begun = Instant::now();
        let complete = || {
            let writer = self.writer.lock().clone().filter(|writer| writer.process.is_alive())?;
            let map = writer.map();
            let stored = self.world.state.lock().drive_file.clone()?;
            let in_sync = |map: &cheetah_redundancy::Map| map.members_in_sync() == map.members.len();
            (in_sync(&map) && in_sync(&stored.map) && writer.drive.members().to_settle() == 0).then_some(writer)
        };
        let writer = loop {
            if let Some(writer) = complete() {
                break writer;
            }
            if begun.elapsed() > RECOVERY_MAX {
                // Beyond the layout's bound, the only copy may be gone.
                if self.plan.bounds != Bounds::Exceeded {
                    let map = self.writer.lock().as_ref().map(|writer| writer.map());
                    self.problem(format!("redundancy does not return: {map:?}"));
                }
                return;
            }
            sleep(Duration::from_millis(100)).await;
        };
        self.world.note(&[50, begun.elapsed().as_millis() as u64]);
        self.compare(&writer).await;
    }

    /// Each set of members that suffices gives the same bytes, and the same ranges are bad until they are written.
    async fn compare(&self, writer: &Arc<Writer>) {
        *self.phase.lock() = Phase::Over;
        // Workers end.
        sleep(Duration::from_secs(70)).await;
        let bad = writer.drive.members().bad_ranges();
        self.world.note(&[51, bad.len() as u64]);
        if self.plan.bounds == Bounds::Survived && !bad.is_empty() {
            self.problem(format!("bad ranges within the bounds: {bad:?}"));
        }
        self.compare_sets(writer, &bad).await;
        if bad.is_empty() {
            return;
        }
        for range in bad {
            self.write(writer, range.offset / BLOCK..range.end() / BLOCK).await;
        }
        let left = writer.drive.members().bad_ranges();
        if !left.is_empty() {
            self.problem(format!("still bad after they were written: {left:?}"));
        }
        self.compare_sets(writer, &[]).await;
    }

    async fn compare_sets(&self, writer: &Arc<Writer>, bad: &[ByteRange]) {
        let size = self.plan.shape.size();
        let ends = bad.iter().map(|range| range.offset).chain([size]);
        let starts = [0].into_iter().chain(bad.iter().map(|range| range.end()));
        let good: Vec<ByteRange> = starts.zip(ends).map(|(start, end)| ByteRange::between(start, end)).collect();
        let since = self.checker.lock().now();
        let mut healthy = Vec::new();
        for range in &good {
            let Ok(data) = writer.drive.read(*range).await else {
                return self.problem(format!("{range} of a complete drive cannot be read"));
            };
            if let Err(wrong) = self.checker.lock().check(range.offset / BLOCK, &data, Some(since)) {
                self.problem(format!("after recovery: {wrong}"));
            }
            healthy.push(data.into_bytes());
        }
        let members = self.plan.shape.members;
        for first in 0..members {
            let second = (first + 1 + self.below(members as u64 - 1) as usize) % members;
            let mut without = vec![first];
            without.extend((self.plan.shape.losses_max() > 1).then_some(second));
            let process = Process::new(900);
            let reader = match Reader::open(&self.world, &process, &self.plan.shape).await {
                Ok(reader) => reader,
                Err(why) => return self.problem(format!("a complete drive cannot be opened: {why}")),
            };
            let map = writer.map();
            reader.drive.members().follow(&map, without.iter().map(|member| (*member, None)).collect());
            for (range, expected) in good.iter().zip(&healthy) {
                match reader.drive.read(*range).await {
                    Ok(data) if data.clone().into_bytes() == *expected => {}
                    Ok(_) => self.problem(format!("without {without:?}, other bytes are read")),
                    Err(error) => self.problem(format!("without {without:?}: {error}")),
                }
            }
            for range in bad {
                if reader.drive.read(*range).await.is_ok() {
                    self.problem(format!("{range} is bad, and was read"));
                }
            }
        }
    }
}
