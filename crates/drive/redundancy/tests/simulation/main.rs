//! A seeded, single-threaded, deterministic simulation of a redundant drive: the very code that ships, over simulated
//! nodes and a simulated network, in virtual time.
//!
//! `make simulate FAULTS=1000000 SEED=1` runs it at length. A seed that fails is printed with the command that replays
//! it.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::expect_used, reason = "a test")]

mod checker;
mod directed;
mod model;
mod network;
mod node;
mod process;
mod random;
mod schedule;
mod sealing;

use schedule::{Outcome, Plan, run};

/// Whether every message is printed.
fn verbose() -> bool {
    static VERBOSE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *VERBOSE.get_or_init(|| std::env::var_os("SIMULATE_VERBOSE").is_some())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_fault_makes_a_wrong_byte() {
    simulate("no_fault_makes_a_wrong_byte", 3000, Plan::of);
}

/// A byte of a sealed drive is one of a version that may be there, or an error.
#[test]
fn no_fault_makes_a_wrong_byte_of_a_sealed_drive() {
    let outcome = simulate("no_fault_makes_a_wrong_byte_of_a_sealed_drive", 1500, Plan::sealed);
    // The few nodes of a few seeds may go back to what they hold, or to what nobody reads.
    let is_short = number("SIMULATE_SEED").is_some() && outcome.faults.rolled_back < 100;
    assert!(is_short || outcome.faults.rolled_back == 0 || outcome.altered > 0, "no old snapshot was found");
}

/// Runs seeds until this many faults were injected. `SIMULATE_SEED` alone replays one seed.
fn simulate(test: &str, faults: u64, plan_of: fn(u64) -> Plan) -> Outcome {
    let begun = std::time::Instant::now();
    let first = number("SIMULATE_SEED").unwrap_or(1);
    let wanted = number("SIMULATE_FAULTS");
    let threads = if wanted.is_some() { number("SIMULATE_THREADS").unwrap_or(2) } else { 1 };
    let wanted = match (wanted, number("SIMULATE_SEED")) {
        (Some(wanted), _) => wanted,
        (None, Some(_)) => 1,
        (None, None) => faults,
    };
    let next = std::sync::atomic::AtomicU64::new(first);
    let total = std::sync::Mutex::new((network::Faults::default(), Outcome::default(), 0u64));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while total.lock().unwrap().0.total() < wanted {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let plan = plan_of(seed);
                    let outcome = run(&plan);
                    let mut total = total.lock().unwrap();
                    total.0.add(&outcome.faults);
                    total.1.trace ^= outcome.trace;
                    total.1.reads += outcome.reads;
                    total.1.blocks_read += outcome.blocks_read;
                    total.1.writes += outcome.writes;
                    total.1.errors += outcome.errors;
                    total.1.reader_errors += outcome.reader_errors;
                    total.1.bad_ranges += outcome.bad_ranges;
                    total.1.altered += outcome.altered;
                    total.1.refused += outcome.refused;
                    total.1.moves.begun += outcome.moves.begun;
                    total.1.moves.moved += outcome.moves.moved;
                    total.1.moves.given_up += outcome.moves.given_up;
                    total.2 += 1;
                    if wanted == 1 {
                        println!("{plan:?}\ntrace {:016x}, {:?}", outcome.trace, outcome.faults);
                    }
                    if !outcome.problems.is_empty() {
                        println!("seed {seed} ({:?}, {:?}):", plan.shape, plan.bounds);
                        outcome.problems.iter().for_each(|problem| println!("  {problem}"));
                        println!(
                            "  replay: SIMULATE_SEED={seed} cargo test -p cheetah-redundancy --test simulation \
                             -- --exact {test} --nocapture"
                        );
                        total.1.problems.push(format!("seed {seed}"));
                    }
                }
            });
        }
    });
    let (faults, mut outcome, seeds) = total.into_inner().unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} faults in {seconds:.1} s ({:.0} a second) over {seeds} seeds: {} writes, {} reads, {} blocks checked, \
         {} errors beyond the bounds, {} of readers behind the map, {} bad ranges beyond the bounds, all healed, {} seeds with wrong bytes or errors within bounds",
        faults.total(),
        faults.total() as f64 / seconds,
        outcome.writes,
        outcome.reads,
        outcome.blocks_read,
        outcome.errors,
        outcome.reader_errors,
        outcome.bad_ranges,
        outcome.problems.len()
    );
    println!("{faults:?}, {:?}, {} refused, {} altered units", outcome.moves, outcome.refused, outcome.altered);
    println!("trace {:016x} of the seeds from {first} on", outcome.trace);
    assert!(outcome.problems.is_empty(), "{} seeds failed: {:?}", outcome.problems.len(), outcome.problems);
    outcome.faults = faults;
    outcome
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces: Vec<u64> = (0..2).map(|_| run(&Plan::of(4)).trace).collect();
    println!("trace {:016x}", traces[0]);
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], run(&Plan::of(5)).trace);
}
