//! Measures how fast words are found in one image: by the product's search, by each of its ways alone, and by other libraries. The results
//! are the reasons of the limits in the product's `literal/scanner.rs`.

// The product's ways are its own files: its public search chooses one of them by the number of words.
#[allow(dead_code)]
#[path = "../../../../crates/evidence/search/src/memory.rs"]
mod memory;
#[path = "../../../../crates/evidence/search/src/literal/patterns.rs"]
#[allow(dead_code)]
mod patterns;
#[path = "../../../../crates/evidence/search/src/literal/sampled.rs"]
#[allow(dead_code)]
mod sampled;
#[path = "../../../../crates/evidence/search/src/literal/together.rs"]
mod together;

mod image;
mod lists;
mod table;
mod ways;

use std::process;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::image::MIB;
use crate::table::Row;
use crate::ways::Way;

const USAGE: &str = "usage: bench-words [MIB [ROUNDS]]
           searches an image of MIB (256) for lists of words, ROUNDS (3) times with each way in turns, and prints tables: MiB
           for each second of processor time, and the processor time in which the words were prepared; taskset keeps it on one processor";

/// What ends the program: text for its user.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// As the product's module of this name has it.
mod found {
    /// An index as it is stored.
    pub fn number(index: usize) -> u32 {
        u32::try_from(index).unwrap_or(u32::MAX)
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("bench-words: {error}");
        process::exit(1);
    }
}

fn run() -> Fallible<()> {
    let numbers = std::env::args().skip(1).map(|word| word.parse::<usize>()).collect::<Result<Vec<_>, _>>();
    let (size_mib, rounds) = match numbers.map_err(|_| USAGE)?[..] {
        [] => (256, 3),
        [size_mib] => (size_mib, 3),
        [size_mib, rounds] => (size_mib, rounds),
        _ => return Err(USAGE.into()),
    };
    if size_mib == 0 || rounds == 0 {
        return Err(USAGE.into());
    }
    let lists = lists::all();
    let image = image::of(size_mib, &lists);
    let mut rows = Vec::new();
    for list in &lists {
        eprintln!("{}", list.what);
        let mut ways = ways::of(list)?;
        let mut hits = None;
        for round in 0..rounds {
            for turn in 0..ways.len() {
                let at = (round + turn) % ways.len();
                if let Some(way) = ways.get_mut(at) {
                    measure(way, &image, &mut hits)?;
                }
            }
        }
        rows.push(Row { what: list.what.clone(), hits: hits.unwrap_or_default(), ways });
    }
    print!("{}", table::shown(&rows));
    Ok(())
}

/// Searches the image once, and notes the rate. Every way must find as many hits.
fn measure(way: &mut Way, image: &[u8], hits: &mut Option<usize>) -> Fallible<()> {
    let begun = processor_time();
    let found = (way.find)(image)?;
    let rate = image.len() as f64 / MIB as f64 / (processor_time() - begun).as_secs_f64();
    if found != *hits.get_or_insert(found) {
        return Err(format!("{} has {found} hits, and another way {}", way.name, hits.unwrap_or_default()).into());
    }
    eprintln!("  {:<24} {rate:>8.0} MiB/s, {found} hits", way.name);
    way.rates.push(rate);
    Ok(())
}

/// The processor time that this thread has had. That of other programs does not count.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
