//! A run of a sealed drive.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Device, Error};
use cheetah_redundancy::Redundant;
use cheetah_seal::Sealed;
use tokio::time::{sleep, timeout};

use super::{Bounds, Phase, Run};
use crate::checker::BLOCK;
use crate::network::Process;
use crate::process::{Reader, Writer};
use crate::sealing::{Sealing, UNIT};

/// A reader elsewhere opens the drive again after this many reads.
const READS_MAX: u64 = 20;

/// The content of a node, at some time.
pub(super) struct Snapshot {
    node: usize,
    instance: u64,
    content: Vec<u8>,
}

impl Run {
    /// Bytes of content.
    pub(super) fn size(&self) -> u64 {
        self.sealing.as_ref().map_or(self.plan.shape.size(), Sealing::size)
    }

    pub(super) fn rolls_back(&self) -> bool {
        self.plan.seal.is_some_and(|seal| seal.rolls_back)
    }

    /// Whether an error is what a sealed drive owes the user: for a unit that is unverified, or after a node has gone back
    /// to a snapshot.
    pub(super) fn is_refused(&self, error: &Error) -> bool {
        let is_unverified = matches!(error, Error::Withheld { reason: Withheld::Unverified, .. });
        self.sealing.is_some() && (self.rolls_back() || is_unverified)
    }

    /// Opens the sealed device of a writer, which accepts unverified units or not.
    pub(super) async fn open_sealed(&self, sealing: &Sealing, mut writer: Writer) -> Result<Writer, String> {
        let opened = sealing.open(&self.world, &writer.process, &writer.drive, true).await;
        let accepted = match opened {
            Ok(sealed) => {
                let accepts = self.below(2) == 0;
                let accepted = if accepts { sealed.accept_unverified().await } else { Ok(()) };
                accepted.map(|()| sealed).map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        match accepted {
            Ok(sealed) => {
                writer.sealed = Some(sealed);
                Ok(writer)
            }
            Err(why) => {
                writer.kill(&self.world);
                Err(why)
            }
        }
    }

    /// Takes snapshots of nodes, and has nodes go back to them.
    pub(super) fn roll_back(&self, snapshots: &mut Vec<Snapshot>) {
        if !self.rolls_back() {
            return;
        }
        let nodes = self.world.state.lock().nodes.len() as u64;
        let node = self.below(nodes) as usize;
        match self.below(12) {
            0 => {
                let (instance, content) = self.world.with_node(node, |node| (node.instance, node.content.clone()));
                snapshots.retain(|snapshot| snapshot.node != node);
                snapshots.push(Snapshot { node, instance, content });
            }
            1 => {
                let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.node == node) else { return };
                let rolled_back = self.world.with_node(node, |node| {
                    let is_it = node.up && node.instance == snapshot.instance;
                    if is_it {
                        node.content.clone_from(&snapshot.content);
                    }
                    is_it
                });
                self.world.state.lock().faults.rolled_back += u64::from(rolled_back);
            }
            _ => {}
        }
    }

    /// Reads in another process. It has the seal record of the time at which it opened the drive, or a later one.
    pub(super) async fn read_sealed_elsewhere(
        &self,
        sealing: &Sealing,
        process: &Arc<Process>,
        drive: &Arc<Redundant>,
    ) {
        while self.phase() != Phase::Over {
            let since = self.checker.lock().now();
            let Ok(sealed) = sealing.open(&self.world, process, drive, false).await else {
                self.problem("a reader cannot open the sealed drive".into());
                return;
            };
            for _ in 0..READS_MAX {
                if self.phase() == Phase::Over {
                    return;
                }
                sleep(Duration::from_millis(5 + self.below(40))).await;
                let blocks = self.some_blocks();
                let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
                match timeout(self.operation_max(), sealed.read(range)).await {
                    Ok(Ok(data)) => {
                        if let Err(wrong) = self.checker.lock().check_flushed(blocks.start, &data, since) {
                            self.problem(format!("reader {} read wrong bytes: {wrong}", process.id));
                        }
                    }
                    // Its record or its map may be old.
                    Ok(Err(_)) => self.outcome.lock().reader_errors += u64::from(self.plan.bounds == Bounds::Survived),
                    Err(_) => self.problem("a reader hangs".into()),
                }
            }
            self.count_altered(&sealed);
        }
    }

    fn count_altered(&self, sealed: &Sealed) {
        self.outcome.lock().altered += sealed.altered().values().sum::<u64>();
    }

    /// Closes the drive once redundancy is complete, and checks what each sufficient set of members returns.
    pub(super) async fn compare_sealed(&self, sealing: &Sealing, writer: &Arc<Writer>) {
        *self.phase.lock() = Phase::Over;
        // Waits for the workers to end.
        sleep(self.operation_max() + Duration::from_secs(10)).await;
        let Some(former) = &writer.sealed else { return };
        let begun = self.checker.lock().now();
        if former.flush().await.is_ok() {
            self.checker.lock().flushed(begun);
        }
        if let Err(error) = former.close().await
            && !self.may_fail()
        {
            self.problem(format!("a complete drive cannot be closed: {error}"));
        }
        self.count_altered(former);
        self.checker.lock().writer_is_gone();
        // Another process accepts what earlier writers left.
        let sealed = match sealing.open(&self.world, &writer.process, &writer.drive, true).await {
            Ok(sealed) => sealed,
            Err(why) => return self.problem(format!("a complete drive cannot be opened: {why}")),
        };
        if let Err(error) = sealed.accept_unverified().await {
            return self.problem(format!("unverified units cannot be accepted: {error}"));
        }
        let found = self.units_of(&sealed).await;
        if let Some(Err(error)) = found.iter().find(|unit| unit.is_err())
            && !self.may_fail()
        {
            self.problem(format!("after recovery: {error}"));
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
            let elsewhere = match sealing.open(&self.world, &process, &reader.drive, false).await {
                Ok(elsewhere) => elsewhere,
                Err(why) => return self.problem(format!("a closed drive cannot be opened: {why}")),
            };
            for (index, (expected, unit)) in found.iter().zip(self.units_of(&elsewhere).await).enumerate() {
                match (expected, unit) {
                    (Ok(expected), Ok(unit)) if *expected == unit => {}
                    (_, Ok(_)) => self.problem(format!("without {without:?}, unit {index} is another one")),
                    (Ok(_), Err(error)) if !self.may_fail() => {
                        self.problem(format!("without {without:?}, unit {index}: {error}"));
                    }
                    (_, Err(_)) => {}
                }
            }
        }
        if let Err(error) = sealed.close().await
            && !self.may_fail()
        {
            self.problem(format!("a complete drive cannot be closed: {error}"));
        }
        self.count_altered(&sealed);
    }

    /// Whether content may be lost: more is lost than the layout survives, or nodes returned wrong content.
    fn may_fail(&self) -> bool {
        self.plan.bounds != Bounds::Survived || self.rolls_back()
    }

    /// Reads each unit, and checks it.
    async fn units_of(&self, sealed: &Sealed) -> Vec<Result<Vec<u8>, String>> {
        let since = self.checker.lock().now();
        let mut units = Vec::new();
        for range in ByteRange::new(0, self.size() / BLOCK * BLOCK).split_at_multiples(UNIT) {
            let read = sealed.read(range).await;
            if let Ok(data) = &read
                && let Err(wrong) = self.checker.lock().check(range.offset / BLOCK, data, Some(since))
            {
                self.problem(format!("after recovery: {wrong}"));
            }
            units.push(read.map(|data| data.into_bytes().to_vec()).map_err(|error| error.to_string()));
        }
        units
    }
}
