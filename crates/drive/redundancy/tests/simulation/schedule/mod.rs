//! One run of the simulation: a safety phase, in which faults are injected, then a liveness phase, in which they stop
//! and redundancy must return.

mod faults;
mod lending;
mod moves;
mod plan;
mod recovery;
mod sealed;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cheetah_redundancy::MemberState;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

pub use self::plan::{Bounds, Plan};
use crate::checker::{BLOCK, Checker};
use crate::network::{Faults, Process, World};
use crate::process::{OPEN_PAUSE, Writer, open};
use crate::sealing::Sealing;

/// No operation of the drive may take longer, whatever happens. Of a sealed drive, see [`Run::operation_max`].
const OPERATION_MAX: Duration = Duration::from_secs(60);
/// After the last fault, redundancy is complete within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

/// The numbers of the processes that only read.
const READERS: std::ops::Range<u64> = 100..102;

/// The outcome of a run.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub trace: u64,
    pub faults: Faults,
    pub reads: u64,
    pub blocks_read: u64,
    pub writes: u64,
    pub errors: u64,
    pub reader_errors: u64,
    /// Bad ranges seen; later writes heal most of them.
    pub bad_ranges: u64,
    pub moves: Moves,
    /// Units that a member returned altered, and that were right elsewhere.
    pub altered: u64,
    /// Errors for units that are unverified, and with nodes that went back to a snapshot.
    pub refused: u64,
    pub problems: Vec<String>,
}

/// How moves of members have ended.
#[derive(Debug, Default, Clone, Copy)]
pub struct Moves {
    pub begun: u64,
    pub moved: u64,
    /// Given up on purpose.
    pub given_up: u64,
}

/// The state shared by the tasks of a run.
pub struct Run {
    pub plan: Plan,
    pub world: Arc<World>,
    pub checker: Mutex<Checker>,
    pub outcome: Mutex<Outcome>,
    pub writer: Mutex<Option<Arc<Writer>>>,
    /// The seal of the drive, if it is sealed.
    pub sealing: Option<Sealing>,
    phase: Mutex<Phase>,
    /// Held while a free node is chosen and put to use.
    placing: tokio::sync::Mutex<()>,
    /// Nodes with faults whose consequences may not have appeared yet, until these times.
    recent: Mutex<Vec<(Instant, usize)>>,
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
    // Remaining tasks are dropped with the runtime.
    drop(runtime);
    outcome
}

impl Run {
    pub fn new(plan: Plan) -> Arc<Self> {
        let sealing = plan.seal.map(|_| Sealing::new(&plan.shape));
        let nodes = plan.shape.members + plan.spares;
        let size = plan.shape.geometry().member_bytes();
        let world = World::new(plan.seed, nodes, size, plan.weather);
        world.state.lock().drive_file = Some(plan.shape.created(&world));
        Arc::new(Self {
            checker: Mutex::new(Checker::new(
                sealing.as_ref().map_or(plan.shape.size(), Sealing::size) / BLOCK * BLOCK,
                sealing.is_some(),
            )),
            sealing,
            outcome: Mutex::new(Outcome::default()),
            writer: Mutex::new(None),
            phase: Mutex::new(Phase::Safety),
            placing: tokio::sync::Mutex::default(),
            recent: Mutex::default(),
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

    /// No operation may take longer, whatever happens. One of a sealed drive consists of several of the drive below it,
    /// one after the other.
    fn operation_max(&self) -> Duration {
        OPERATION_MAX * if self.sealing.is_some() { 5 } else { 1 }
    }

    fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    async fn play(self: Arc<Self>) {
        let mut tasks = vec![tokio::spawn(self.clone().supervise()), tokio::spawn(self.clone().repair())];
        tasks.push(tokio::spawn(self.clone().move_members()));
        tasks.push(tokio::spawn(self.clone().join_nodes()));
        tasks.push(tokio::spawn(self.clone().press_nodes()));
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

    /// Opens a new writer whenever there is none.
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
        match timeout(self.operation_max(), self.open_in(&process)).await {
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

    async fn open_in(&self, process: &Arc<Process>) -> Result<Writer, String> {
        // From here on, a former writer completes nothing.
        self.checker.lock().writer_is_gone();
        let writer = open(&self.world, process, &self.plan.shape).await?;
        match &self.sealing {
            Some(sealing) => self.open_sealed(sealing, writer).await,
            None => Ok(writer),
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

    /// Replaces members that stay lost by free nodes.
    async fn repair(self: Arc<Self>) {
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(700)).await;
            let Some(writer) = self.writer.lock().clone().filter(|writer| writer.process.is_alive()) else { continue };
            let map = writer.map();
            let places = writer.environment.places.lock().clone();
            for (member, place) in places.into_iter().enumerate() {
                let (up, instance) = self.world.with_node(place.node, |node| (node.up, node.instance));
                if map.members[member].state != MemberState::Stale || (up && instance == place.instance) {
                    continue;
                }
                // The incoming node takes its place.
                if map.members[member].incoming.is_some() {
                    continue;
                }
                let _placing = self.placing.lock().await;
                if let Some(node) = self.free_node(&writer, Some(member)) {
                    let replaced = writer.replace(&self.world, member, node).await;
                    self.world.note(&[33, member as u64, node as u64, u64::from(replaced.is_ok())]);
                    break;
                }
            }
        }
    }

    /// A node that is well, takes new parts, and holds no part of the drive except perhaps that of a lost member. It is empty.
    fn free_node(&self, writer: &Writer, lost: Option<usize>) -> Option<usize> {
        // A writer that was deposed does not know where the members are.
        if self.is_deposed(writer) {
            return None;
        }
        let places = writer.environment.places.lock().clone();
        let moving = writer.environment.moving_places(writer.drive.members());
        let others = places.iter().enumerate().filter(|(member, _)| Some(*member) != lost).map(|(_, place)| place);
        let taken: BTreeSet<usize> = others
            .chain(&moving)
            .filter(|place| self.world.with_node(place.node, |node| node.instance) == place.instance)
            .map(|place| place.node)
            .collect();
        let free = |node: &usize| {
            !taken.contains(node)
                && self.world.with_node(*node, |node| node.up && !node.frozen && !node.isolated && !node.pressed)
                && self.world.state.lock().cut_off.is_none_or(|(cut, _)| cut != *node)
        };
        let nodes = self.world.state.lock().nodes.len();
        let node = (0..nodes).find(free)?;
        // A node that served before is restarted.
        if self.world.with_node(node, |node| node.map.is_some() || node.writes > 0) {
            self.world.kill(node);
            self.world.restart(node);
            self.world.with_node(node, |node| node.writes = 0);
        }
        Some(node)
    }

    fn is_deposed(&self, writer: &Writer) -> bool {
        self.world.state.lock().term != writer.term
    }
}
