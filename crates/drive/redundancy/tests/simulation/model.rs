//! A redundant drive against plain memory, while members are lost, silent, late or damaged, and return or are replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Zeroing};
use cheetah_redundancy::{MemberState, Redundancy};
use proptest::prelude::*;
use tokio::time::sleep;

use crate::network::{Process, Weather, World};
use crate::node;
use crate::process::{Reader, Shape, Writer, open};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
enum Step {
    Write { at: u64, len: u64, byte: u8 },
    Zero { at: u64, len: u64, trim: bool },
    Read { at: u64, len: u64 },
    Flush,
    Kill(usize),
    Freeze(usize),
    Isolate(usize),
    Damage { node: usize, page: u64 },
    Return,
    Recover,
    Reopen,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (any::<u64>(), prop_oneof![1u64..600, 1u64..20_000, 1u64..200_000]);
    prop_oneof![
        8 => (range(), 1u8..).prop_map(|((at, len), byte)| Step::Write { at, len, byte }),
        1 => (range(), any::<bool>()).prop_map(|((at, len), trim)| Step::Zero { at, len, trim }),
        8 => range().prop_map(|(at, len)| Step::Read { at, len }),
        1 => Just(Step::Flush),
        1 => (0usize..6).prop_map(Step::Kill),
        1 => (0usize..6).prop_map(Step::Freeze),
        1 => (0usize..6).prop_map(Step::Isolate),
        2 => (0usize..6, any::<u64>()).prop_map(|(node, page)| Step::Damage { node, page }),
        1 => Just(Step::Return),
        2 => Just(Step::Recover),
        1 => Just(Step::Reopen),
        2 => (1u64..3000).prop_map(Step::Wait),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let redundancy = prop_oneof![
        (2usize..=3).prop_map(|copies| Redundancy::Mirror { copies }),
        (1usize..=2).prop_map(|parities| Redundancy::Parity { parities }),
    ];
    (redundancy, 0usize..3, 1u64..4, 0u32..2, 0u32..3).prop_map(|(redundancy, more, cycles, unit, region)| Shape {
        redundancy,
        members: redundancy.members_min() + more,
        unit: 4096 << unit,
        cycles,
        region_bytes: 8192 << region,
    })
}

struct Model {
    world: Arc<World>,
    shape: Shape,
    writer: Option<Writer>,
    processes: u64,
    bytes: Vec<u8>,
    /// Nodes that a further loss must not join.
    impaired: BTreeSet<usize>,
}

impl Model {
    async fn new(shape: Shape) -> Self {
        let world = World::new(1, shape.members, shape.geometry().member_bytes(), Weather::default());
        world.state.lock().drive_file = Some(shape.created(&world));
        let bytes = vec![0; shape.size() as usize];
        let mut model = Self { world, shape, writer: None, processes: 0, bytes, impaired: BTreeSet::new() };
        model.open().await;
        model
    }

    async fn open(&mut self) {
        self.processes += 1;
        self.writer = Some(open(&self.world, &Process::new(self.processes), &self.shape).await.unwrap());
    }

    fn drive(&self) -> &cheetah_redundancy::Redundant {
        &self.writer.as_ref().unwrap().drive
    }

    fn range(&self, at: u64, len: u64) -> ByteRange {
        let size = self.bytes.len() as u64;
        let at = at % size;
        ByteRange::new(at, len.min(size - at))
    }

    /// Whether this node may be impaired, too; it is from then on.
    fn may_impair(&mut self, node: usize) -> bool {
        let mut after = self.impaired.clone();
        after.insert(node);
        let allowed = node < self.shape.members && after.len() <= self.shape.losses_max();
        if allowed {
            self.impaired = after;
        }
        allowed
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Write { at, len, byte } => {
                let range = self.range(at, len);
                let content: Vec<u8> = (0..range.len).map(|index| byte.wrapping_add(index as u8 & 31)).collect();
                self.drive().write(range.offset, Data::from(content.clone()), false).await.unwrap();
                self.bytes[range.offset as usize..range.end() as usize].copy_from_slice(&content);
            }
            Step::Zero { at, len, trim } => {
                let range = self.range(at, len);
                match trim {
                    true => self.drive().trim(range).await.unwrap(),
                    false => self.drive().zero(range, Zeroing::default()).await.unwrap(),
                }
                self.bytes[range.offset as usize..range.end() as usize].fill(0);
            }
            Step::Read { at, len } => {
                let range = self.range(at, len);
                let read = self.drive().read(range).await.unwrap().into_bytes();
                assert!(read == self.bytes[range.offset as usize..range.end() as usize]);
            }
            Step::Flush => self.drive().flush().await.unwrap(),
            Step::Kill(node) if self.may_impair(node) => self.world.kill(node),
            Step::Freeze(node) if self.may_impair(node) => self.world.freeze(node, true),
            Step::Isolate(node) if self.may_impair(node) => self.world.isolate(node, true),
            Step::Damage { node, page } if self.may_impair(node) => {
                let page = page % (self.shape.geometry().member_bytes() / node::PAGE);
                self.world.with_node(node, |node| node.up && node.damaged.insert(page));
            }
            Step::Return => self.all_return(),
            Step::Recover => self.recover().await,
            Step::Reopen if self.impaired.is_empty() => {
                self.writer.take().unwrap().kill(&self.world);
                self.open().await;
            }
            Step::Wait(pause) => sleep(Duration::from_millis(pause)).await,
            _ => {}
        }
    }

    fn all_return(&self) {
        for node in 0..self.shape.members {
            self.world.freeze(node, false);
            self.world.isolate(node, false);
        }
    }

    async fn recover(&mut self) {
        self.all_return();
        let writer = self.writer.as_ref().unwrap();
        for node in 0..self.shape.members {
            if !self.world.with_node(node, |node| node.up) {
                writer.until_stale(node, true).await;
                self.world.restart(node);
                writer.replace(&self.world, node, node).await.unwrap();
            }
        }
        // A read finds a damaged page, so everything is read.
        self.world.state.lock().nodes.iter_mut().for_each(|node| node.damaged.clear());
        let begun = tokio::time::Instant::now();
        loop {
            assert!(writer.until_complete(PATIENCE).await, "redundancy does not return: {:?}", writer.map());
            // A loss may not have been noticed yet.
            sleep(Duration::from_secs(3)).await;
            if writer.until_complete(Duration::ZERO).await {
                break;
            }
            assert!(begun.elapsed() < 3 * PATIENCE);
        }
        self.impaired.clear();
    }

    /// With more losses than the layout survives, exactly what they alone held cannot be read.
    async fn lose_too_many(&mut self, first: usize) {
        self.recover().await;
        let geometry = self.shape.geometry();
        let members = self.shape.members;
        let lost: BTreeSet<usize> = (0..=self.shape.losses_max()).map(|index| (first + index) % members).collect();
        lost.iter().for_each(|node| self.world.kill(*node));
        for span in geometry.spans(ByteRange::new(0, self.shape.size())) {
            let mut holders = vec![geometry.data_member(span.group, span.index)];
            if !geometry.has_digests() {
                let copies = 0..geometry.redundancy_units();
                holders.extend(copies.map(|index| geometry.redundancy_member(span.group, index)));
            }
            let gone = holders.iter().all(|holder| lost.contains(holder));
            let range = ByteRange::new(span.at, span.within.len);
            match self.drive().read(range).await {
                Ok(data) => {
                    assert!(!gone);
                    assert!(data.into_bytes() == self.bytes[range.offset as usize..range.end() as usize]);
                }
                Err(error) => assert!(gone, "{range} is held by {holders:?}, lost are {lost:?}: {error}"),
            }
        }
    }
}

fn play(schedule: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let schedule = async { tokio::time::timeout(Duration::from_secs(3600), schedule).await };
    assert!(runtime.block_on(schedule).is_ok(), "nothing takes an hour");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_time: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_right_while_no_more_is_lost_than_the_layout_survives(
        shape in shape(), steps in prop::collection::vec(step(), 1..60), first in 0usize..6,
    ) {
        play(async move {
            let mut model = Model::new(shape).await;
            for step in steps {
                model.step(step).await;
            }
            model.recover().await;
            model.step(Step::Read { at: 0, len: u64::MAX }).await;
            model.lose_too_many(first).await;
        });
    }
}

/// QEMU's quorum driver with `vote-threshold=1,read-pattern=fifo` goes on reading a child that failed a write: it
/// serves the bytes from before the write once the child answers again.
#[test]
fn a_member_that_failed_a_write_is_not_read_before_it_was_resynchronized() {
    play(async {
        let shape = Shape {
            redundancy: Redundancy::Mirror { copies: 2 },
            members: 2,
            unit: 4096,
            cycles: 4,
            region_bytes: 8192,
        };
        let mut model = Model::new(shape).await;
        model.step(Step::Write { at: 0, len: u64::MAX, byte: 1 }).await;
        // This node holds the first copy of the first unit.
        model.world.isolate(0, true);
        model.step(Step::Write { at: 0, len: u64::MAX, byte: 2 }).await;
        let writer = model.writer.as_ref().unwrap();
        assert_eq!(writer.map().members[0].state, MemberState::Stale);
        // It answers again, with its old bytes.
        model.world.isolate(0, false);
        for _ in 0..400 {
            model.step(Step::Read { at: 0, len: u64::MAX }).await;
            sleep(Duration::from_millis(1)).await;
        }
        model.recover().await;
        // Now only this node can return the new bytes.
        model.world.kill(1);
        model.step(Step::Read { at: 0, len: u64::MAX }).await;
    });
}

/// The write hole: the writer dies after some of the members stored the write, then another member is lost.
#[test]
fn a_half_finished_write_and_a_loss_yield_old_bytes_new_bytes_or_an_error() {
    let layouts = [
        (Redundancy::Mirror { copies: 2 }, 3),
        (Redundancy::Mirror { copies: 3 }, 3),
        (Redundancy::Parity { parities: 1 }, 4),
        (Redundancy::Parity { parities: 2 }, 5),
    ];
    let mut errors = 0;
    for ((redundancy, members), taken) in
        layouts.into_iter().flat_map(|layout| (0..10).map(move |taken| (layout, taken)))
    {
        for len in [300, 4096, 20_000] {
            for lost in 0..members {
                let errors = &mut errors;
                play(async move {
                    let shape = Shape { redundancy, members, unit: 8192, cycles: 1, region_bytes: 1 << 20 };
                    let mut model = Model::new(shape).await;
                    model.step(Step::Write { at: 0, len: u64::MAX, byte: 1 }).await;
                    let old = model.bytes.clone();
                    let range = model.range(10_000, len);
                    let new = vec![200; range.len as usize];
                    model.world.state.lock().writes_left = Some(taken);
                    let write = model.drive().write(range.offset, new.into(), false);
                    tokio::time::timeout(Duration::from_millis(100), write).await.ok();
                    model.writer.take().unwrap().kill(&model.world);
                    model.world.state.lock().writes_left = None;
                    model.world.kill(lost);
                    let check = |at: u64, data: Data| {
                        for (index, byte) in data.into_bytes().iter().enumerate() {
                            let at = at + index as u64;
                            let written = (range.offset..range.end()).contains(&at);
                            assert!(*byte == old[at as usize] || (written && *byte == 200), "made-up bytes at {at}");
                        }
                    };
                    // A reader elsewhere, and the next writer, before and after it has settled all that it can.
                    let reader = Reader::open(&model.world, &Process::new(50), &model.shape).await.unwrap();
                    model.open().await;
                    for pause in [0, 20] {
                        sleep(Duration::from_secs(pause)).await;
                        for at in (0..model.shape.size()).step_by(512) {
                            let block = ByteRange::new(at, 512);
                            for drive in [&reader.drive, model.drive()] {
                                match drive.read(block).await {
                                    Ok(data) => check(at, data),
                                    Err(_) => *errors += 1,
                                }
                            }
                        }
                    }
                });
            }
        }
    }
    println!("{errors} blocks could not be read");
}

/// The same without the loss: the next writer makes redundancy agree with the data, so each member can be lost then.
#[test]
fn a_half_finished_write_is_settled_by_the_next_writer() {
    for taken in 0..8 {
        play(async move {
            let shape = Shape {
                redundancy: Redundancy::Parity { parities: 2 },
                members: 5,
                unit: 8192,
                cycles: 1,
                region_bytes: 1 << 20,
            };
            let mut model = Model::new(shape).await;
            model.step(Step::Write { at: 0, len: u64::MAX, byte: 1 }).await;
            model.world.state.lock().writes_left = Some(taken);
            let write = model.drive().write(5000, Data::from(vec![200; 20_000]), false);
            tokio::time::timeout(Duration::from_millis(100), write).await.ok();
            model.writer.take().unwrap().kill(&model.world);
            model.world.state.lock().writes_left = None;
            model.open().await;
            assert!(model.writer.as_ref().unwrap().until_complete(PATIENCE).await);
            let whole = ByteRange::new(0, model.shape.size());
            model.bytes = model.drive().read(whole).await.unwrap().into_bytes().to_vec();
            for lost in [0, 2] {
                model.world.kill(lost);
                model.step(Step::Read { at: 0, len: u64::MAX }).await;
            }
        });
    }
}
