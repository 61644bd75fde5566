//! What holds for every mix of commands.

use proptest::prelude::*;

use crate::drive::Operation;
use crate::extent::Extent;
use crate::model::{DESKTOP, IDE, Model, VELOCIRAPTOR, ZERO};
use crate::simulation::{Numbers, Outcome, run};

const COMMANDS_MAX: usize = 60;

fn models() -> impl Strategy<Value = Model> {
    prop_oneof![Just(IDE), Just(DESKTOP), Just(VELOCIRAPTOR)]
}

/// Places near each other and far apart, small and large.
fn extents() -> impl Strategy<Value = Extent> {
    let starts = prop_oneof![0..64u64, 0..10_000u64, 0..14_000_000u64];
    (starts, 1..256u64).prop_map(|(start, len)| Extent { start: start * 4096, end: (start + len) * 4096 })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        4 => extents().prop_map(Operation::Read),
        4 => extents().prop_map(Operation::Write),
        1 => Just(Operation::Flush),
    ];
    proptest::collection::vec(one, 1..COMMANDS_MAX)
}

fn reads() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(extents().prop_map(Operation::Read), 1..COMMANDS_MAX)
}

/// The bytes of the union of extents.
fn distinct_bytes(extents: impl Iterator<Item = Extent>) -> u64 {
    let mut sorted: Vec<_> = extents.collect();
    sorted.sort_by_key(|extent| extent.start);
    let (mut bytes, mut end) = (0, 0);
    for extent in sorted {
        bytes += extent.end.saturating_sub(extent.start.max(end));
        end = end.max(extent.end);
    }
    bytes
}

fn least_ns(model: &Model, bytes: u64) -> u64 {
    (bytes as f64 / model.outer_bytes_per_s * 1e9) as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_command_ends_exactly_once(model in models(), operations in operations(), depth in 1usize..40) {
        let Outcome { mut order, .. } = run(&model, &operations, depth);
        order.sort_unstable();
        prop_assert_eq!(order, (0..operations.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn reads_are_never_faster_than_the_platters(model in models(), reads in reads(), depth in 1usize..40) {
        let bytes = distinct_bytes(reads.iter().filter_map(|one| match one {
            Operation::Read(extent) => Some(*extent),
            _ => None,
        }));
        let elapsed_ns = run(&model, &reads, depth).elapsed_ns;
        prop_assert!(elapsed_ns >= least_ns(&model, bytes), "{elapsed_ns}");
    }

    #[test]
    fn a_flush_ends_after_earlier_writes_are_on_the_platters(model in models(), extents in proptest::collection::vec(extents(), 1..40)) {
        let bytes = distinct_bytes(extents.iter().copied());
        let mut operations: Vec<_> = extents.into_iter().map(Operation::Write).collect();
        operations.push(Operation::Flush);
        let outcome = run(&model, &operations, 40);
        let flushed_ns = outcome.ended_ns[&(operations.len() as u64 - 1)];
        prop_assert_eq!(flushed_ns, outcome.elapsed_ns);
        prop_assert!(flushed_ns >= least_ns(&model, bytes), "{flushed_ns}");
    }

    #[test]
    fn the_same_commands_take_the_same_time(model in models(), operations in operations(), depth in 1usize..40) {
        prop_assert_eq!(run(&model, &operations, depth).order, run(&model, &operations, depth).order);
    }
}

fn random_reads(seed: u64) -> Vec<Operation> {
    let mut numbers = Numbers(seed);
    let mut start = || numbers.below(DESKTOP.capacity_bytes / 4096 - 1) * 4096;
    (0..64).map(|_| start()).map(|start| Operation::Read(Extent { start, end: start + 4096 })).collect()
}

#[test]
fn reordering_takes_less_time_than_the_order_of_arrival_on_average() {
    let in_order = Model { depth: 1, ..DESKTOP };
    let total_ns = |model: &Model| (0..50).map(|seed| run(model, &random_reads(seed), 32).elapsed_ns).sum::<u64>();
    let (reordered_ns, in_order_ns) = (total_ns(&DESKTOP), total_ns(&in_order));
    assert!(reordered_ns * 10 < in_order_ns * 8, "{reordered_ns} of {in_order_ns}");
}

#[test]
fn writes_that_fit_into_the_cache_end_before_they_are_on_the_platters() {
    let writes: Vec<_> = random_reads(1)
        .into_iter()
        .take(16)
        .map(|one| match one {
            Operation::Read(extent) => Operation::Write(extent),
            other => other,
        })
        .collect();
    let cached_ns = run(&DESKTOP, &writes, 1).elapsed_ns;
    let flushed_ns = run(&DESKTOP, &[&writes[..], &[Operation::Flush]].concat(), 1).elapsed_ns;
    assert!(cached_ns * 5 < flushed_ns, "{cached_ns} and {flushed_ns}");
}

#[test]
fn writing_in_sequence_is_as_fast_as_the_platters() {
    let writes = (0..2000).map(|number| number * 131_072u64);
    let writes: Vec<_> = writes.map(|start| Operation::Write(Extent { start, end: start + 131_072 })).collect();
    let elapsed_ns = run(&IDE, &[&writes[..], &[Operation::Flush]].concat(), 4).elapsed_ns;
    let least_ns = least_ns(&IDE, 2000 * 131_072);
    assert!((least_ns..least_ns * 105 / 100).contains(&elapsed_ns), "{elapsed_ns} of {least_ns}");
}

#[test]
fn a_slow_reader_finds_what_was_read_ahead() {
    use crate::drive::Drive;
    let (mut drive, mut now_ns, mut waited_ns) = (Drive::new(DESKTOP), 0, 0);
    for number in 0..400u64 {
        let start = number * 65_536;
        drive.submit(now_ns, number, Operation::Read(Extent { start, end: start + 65_536 }));
        let asked_ns = now_ns;
        while drive.take_ended().is_empty() {
            now_ns = drive.next_ns().unwrap();
            drive.advance(now_ns);
        }
        waited_ns += if number > 0 { now_ns - asked_ns } else { 0 };
        // Slower than the platters, which stop when the segment is full.
        now_ns += 2_000_000;
    }
    assert!(waited_ns / 399 < 1_000_000, "{waited_ns}");
}

#[test]
fn reading_backward_does_not_cost_a_revolution_for_each_record() {
    let starts = (0..2000u64).rev().map(|number| number * 4096);
    let reads: Vec<_> = starts.map(|start| Operation::Read(Extent { start, end: start + 4096 })).collect();
    let elapsed_ns = run(&IDE, &reads, 1).elapsed_ns;
    assert!(elapsed_ns < 2000 * IDE.revolution_ns / 5, "{elapsed_ns}");
}

#[test]
fn a_command_that_is_handed_over_late_ends() {
    use crate::drive::Drive;
    for operation in [Operation::Read(Extent { start: 0, end: 4096 }), Operation::Flush] {
        let mut drive = Drive::new(DESKTOP);
        let late_ns = 1_000 * DESKTOP.command_ns;
        drive.advance(late_ns);
        drive.submit(5, 1, operation);
        while let Some(next_ns) = drive.next_ns() {
            assert!(next_ns >= late_ns);
            drive.advance(next_ns);
        }
        assert_eq!(drive.take_ended(), [1]);
    }
}

#[test]
fn a_drive_without_delays_ends_everything_at_once() {
    assert_eq!(run(&ZERO, &random_reads(3), 8).elapsed_ns, 0);
}
