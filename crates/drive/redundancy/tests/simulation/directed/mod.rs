//! Schedules in which one message is delayed, or one party dies, in a state that matters.

mod damage;
mod lending;
mod losses;
mod moves;
mod readers;
mod requests;
mod resynchronization;
mod snapshots;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Result};
use cheetah_redundancy::Redundancy;

use crate::network::{Process, Weather, World};
use crate::process::{Reader, Shape, Writer, open};

const PATIENCE: Duration = Duration::from_secs(60);
const PARITY: Redundancy = Redundancy::Parity { parities: 1 };
const MIRROR: Redundancy = Redundancy::Mirror { copies: 2 };

struct Rig {
    world: Arc<World>,
    shape: Shape,
    processes: u64,
}

impl Rig {
    fn new(redundancy: Redundancy, members: usize) -> Self {
        let shape = Shape { redundancy, members, unit: 4096, cycles: 4, region_bytes: 16384 };
        let world = World::new(1, members + 1, shape.geometry().member_bytes(), Weather::default());
        world.state.lock().drive_file = Some(shape.created(&world));
        Self { world, shape, processes: 0 }
    }

    /// A drive whose bytes are all 1, and its writer.
    async fn written(redundancy: Redundancy, members: usize) -> (Self, Writer) {
        let mut rig = Self::new(redundancy, members);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        (rig, writer)
    }

    async fn open(&mut self) -> Writer {
        self.processes += 1;
        open(&self.world, &Process::new(self.processes), &self.shape).await.unwrap()
    }

    async fn write(&self, writer: &Writer, byte: u8) -> Result<()> {
        let content = vec![byte; self.shape.size() as usize];
        writer.drive.write(0, content.into(), false).await
    }

    /// Checks that all bytes are `byte`, with all members and without any one of them.
    async fn check(&self, writer: &Writer, byte: u8) {
        self.check_pages(writer, |_| byte).await;
    }

    /// Checks the bytes at each offset, with all members and without any one of them.
    async fn check_pages(&self, writer: &Writer, expected: impl Fn(u64) -> u8) {
        let whole = ByteRange::new(0, self.shape.size());
        let is_right = |data: Data| data.into_bytes().iter().enumerate().all(|(at, held)| *held == expected(at as u64));
        assert!(is_right(writer.drive.read(whole).await.unwrap()));
        for without in 0..self.shape.members {
            let reader = Reader::open(&self.world, &Process::new(99), &self.shape).await.unwrap();
            reader.drive.members().follow(&writer.map(), vec![(without, None)]);
            assert!(is_right(reader.drive.read(whole).await.unwrap()), "without member {without}");
        }
    }
}

/// Runs in virtual time.
fn play(schedule: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let schedule = async { tokio::time::timeout(Duration::from_secs(3600), schedule).await };
    assert!(runtime.block_on(schedule).is_ok(), "nothing takes an hour");
}
