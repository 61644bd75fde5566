//! What was seen of everything that is watched.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cheetah_custody::Custodian;
use cheetah_drive::Session;
use cheetah_kit::clock::now_ms;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::drive::{self, DriveSeen};
use super::judge;
use super::link::{Measured, WatchedLink};
use super::log_end::WatchedLog;
use super::machine::{Asker, WatchedMachine};
use super::targets::Wanted;
use crate::answers::watch::{Machine, Picture, Totals};
use crate::failure::Result;

/// How often machines that have joined meanwhile are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The machines, the drives and the logs, with what was seen of them.
#[derive(Debug)]
pub struct Board {
    seen: Mutex<Seen>,
    drives: Vec<PathBuf>,
    logs: usize,
    /// The capacities that were measured.
    measured: Measured,
    custodian: Custodian,
    /// What machines are asked with.
    session: Session,
    /// What the nodes of drives are asked with.
    patient: Session,
    changed: Notify,
}

#[derive(Debug)]
struct Seen {
    room: Option<String>,
    /// In the order in which they became known. None is removed.
    machines: Vec<WatchedMachine>,
    /// The links of nodes, by the names of the hosts.
    links: BTreeMap<String, WatchedLink>,
    drives: Vec<DriveSeen>,
    logs: Vec<WatchedLog>,
}

impl Board {
    /// A board of these drives and logs, of which nothing was seen yet.
    pub fn new(
        (drives, logs): (Vec<PathBuf>, Vec<PathBuf>),
        measured: Measured,
        custodian: &Custodian,
        (session, patient): (Session, Session),
    ) -> Self {
        let count = logs.len();
        let seen = Seen {
            room: None,
            machines: Vec::new(),
            links: BTreeMap::new(),
            drives: drives.iter().cloned().map(DriveSeen::new).collect(),
            logs: logs.into_iter().map(|log| WatchedLog::new(log, custodian.clone())).collect(),
        };
        let custodian = custodian.clone();
        let (seen, changed) = (Mutex::new(seen), Notify::new());
        Self { seen, drives, logs: count, measured, custodian, session, patient, changed }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state of a machine or a drive is another. One task may wait.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds the machines that became known, and returns how to ask them, with their numbers.
    fn add_new(&self, wanted: &Wanted) -> Result<Vec<(usize, Asker)>> {
        let (room, targets) = wanted.now()?;
        let mut seen = self.seen();
        seen.room = room;
        let mut known: HashSet<_> = seen.machines.iter().map(|machine| machine.target.key()).collect();
        let mut new = Vec::new();
        for target in targets {
            if known.insert(target.key()) {
                let index = seen.machines.len();
                new.push((index, Asker::new(&target, &self.session)));
                if let Some(host) = target.host().filter(|_| target.is_node) {
                    seen.links.entry(host).or_insert_with(|| WatchedLink::new(&target)).nodes.push(index);
                }
                seen.machines.push(WatchedMachine::new(target));
            }
        }
        Ok(new)
    }

    /// Asks everything once.
    pub async fn ask_once(&self, wanted: &Wanted) -> Result<()> {
        let new = self.add_new(wanted)?;
        let machines =
            join_all(new.into_iter().map(async |(index, mut asker)| self.ask_machine(index, &mut asker).await));
        let drives = join_all((0..self.drives.len()).map(|index| self.ask_drive(index)));
        tokio::join!(machines, drives);
        (0..self.logs).for_each(|index| self.look_at_log(index));
        Ok(())
    }

    async fn ask_machine(&self, index: usize, asker: &mut Asker) {
        let answer = asker.ask().await;
        let mut seen = self.seen();
        let Seen { machines, links, .. } = &mut *seen;
        let Some(machine) = machines.get_mut(index) else { return };
        if machine.note(answer) {
            self.changed.notify_one();
        }
        if let Some(link) = machine.target.host().and_then(|host| links.get_mut(&host)) {
            let nodes = link.nodes.clone();
            link.note(nodes.into_iter().filter_map(|node| machines.get(node)?.read_bytes_per_s()));
        }
    }

    async fn ask_drive(&self, index: usize) {
        let Some(path) = self.drives.get(index) else { return };
        let Some(records) = self.seen().drives.get(index).map(DriveSeen::records) else { return };
        let answer = drive::ask(path, records, (&self.custodian, &self.patient)).await;
        if self.seen().drives.get_mut(index).is_some_and(|drive| drive.note(answer)) {
            self.changed.notify_one();
        }
    }

    fn look_at_log(&self, index: usize) {
        if let Some(log) = self.seen().logs.get_mut(index) {
            log.look();
        }
    }

    /// Asks everything again and again, each thing at its own pace.
    ///
    /// # Errors
    ///
    /// If the room's register cannot be read.
    pub async fn keep_asking(board: &Arc<Self>, wanted: Wanted, every: Duration) -> Result<()> {
        let mut tasks = JoinSet::new();
        for index in 0..board.drives.len() {
            let board = Arc::clone(board);
            tasks.spawn(async move {
                loop {
                    board.ask_drive(index).await;
                    sleep(every).await;
                }
            });
        }
        for index in 0..board.logs {
            let board = Arc::clone(board);
            tasks.spawn(async move {
                loop {
                    let board = Arc::clone(&board);
                    // Checking a long log takes a while.
                    let _ = spawn_blocking(move || board.look_at_log(index)).await;
                    sleep(every).await;
                }
            });
        }
        loop {
            for (index, mut asker) in board.add_new(&wanted)? {
                let board = Arc::clone(board);
                tasks.spawn(async move {
                    loop {
                        board.ask_machine(index, &mut asker).await;
                        sleep(every).await;
                    }
                });
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// What is known now.
    pub fn picture(&self) -> Picture {
        let seen = self.seen();
        let mut machines: Vec<Machine> = seen.machines.iter().filter_map(WatchedMachine::shown).collect();
        machines.sort_by(|one, other| {
            let rank = |machine: &Machine| (machine.state.is_healthy(), machine.name.clone(), machine.address.clone());
            rank(one).cmp(&rank(other))
        });
        let drives: Vec<_> = seen.drives.iter().filter_map(DriveSeen::shown).collect();
        let custody: Vec<_> = seen.logs.iter().map(WatchedLog::end).collect();
        let unasked = (seen.machines.len() - machines.len()) + (seen.drives.len() - drives.len());
        let (state, sentence) = judge::judge(&machines, &drives, &custody, unasked);
        Picture {
            at_ms: now_ms(),
            custody,
            jobs: seen.drives.iter().flat_map(DriveSeen::jobs).collect(),
            links: seen.links.values().map(|link| link.shown(&self.measured)).collect(),
            totals: totals(&machines),
            drives,
            machines,
            room: seen.room.clone(),
            sentence,
            state,
        }
    }
}

/// Sums over the machines that answer.
pub fn totals(machines: &[Machine]) -> Totals {
    let mut totals = Totals { machines: machines.len(), ..Totals::default() };
    for machine in machines.iter().filter(|machine| machine.state.is_healthy()) {
        totals.answering += 1;
        if let Some(lends) = &machine.lends {
            totals.free_bytes = totals.free_bytes.saturating_add(lends.free_bytes);
            totals.lent_bytes = totals.lent_bytes.saturating_add(lends.lent_bytes);
            totals.used_bytes = totals.used_bytes.saturating_add(lends.used_bytes);
        }
    }
    totals
}
