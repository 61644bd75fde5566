//! The liveness phase of a run: redundancy returns, and every sufficient set of members returns the same bytes.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Device};
use tokio::time::{Instant, sleep};

use super::{Bounds, Phase, RECOVERY_MAX, Run};
use crate::checker::BLOCK;
use crate::network::{Process, Weather};
use crate::process::{Reader, Writer};

impl Run {
    /// Ends every fault, waits until redundancy is complete, and compares the bytes that each set of members returns.
    pub(super) async fn recover(&self) {
        *self.phase.lock() = Phase::Liveness;
        {
            let mut state = self.world.state.lock();
            state.weather = Weather { stalled_ppm: 0, broken_ppm: 0, latency: true };
        }
        sleep(Duration::from_secs(4)).await;
        let nodes = self.world.state.lock().nodes.len();
        self.world.cut_off(None);
        for node in 0..nodes {
            self.world.freeze(node, false);
            self.world.isolate(node, false);
            self.world.with_node(node, |node| (node.refuse_maps, node.pressed) = (0, false));
            if !self.world.with_node(node, |node| node.up) {
                self.world.restart(node);
            }
        }
        let begun = Instant::now();
        let complete = || {
            let writer = self.writer.lock().clone().filter(|writer| writer.process.is_alive())?;
            let stored = self.world.state.lock().drive_file.clone()?;
            let is_stored = stored.map.members_in_sync() == stored.map.members.len();
            (is_stored && writer.is_complete()).then_some(writer)
        };
        let writer = loop {
            if let Some(writer) = complete() {
                break writer;
            }
            if begun.elapsed() > RECOVERY_MAX {
                // Beyond the layout's bounds, the only copy may be gone.
                if self.plan.bounds != Bounds::Exceeded && !self.rolls_back() {
                    let map = self.writer.lock().as_ref().map(|writer| writer.map());
                    self.problem(format!("redundancy does not return: {map:?}"));
                }
                return;
            }
            sleep(Duration::from_millis(100)).await;
        };
        self.world.note(&[50, begun.elapsed().as_millis() as u64]);
        match &self.sealing {
            Some(sealing) => self.compare_sealed(sealing, &writer).await,
            None => self.compare(&writer).await,
        }
    }

    /// Checks that each sufficient set of members returns the same bytes, and that the same ranges are bad until they
    /// are written.
    async fn compare(&self, writer: &Arc<Writer>) {
        *self.phase.lock() = Phase::Over;
        // Waits for the workers to end.
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
