//! The loops that forward frames: a thread for each direction, or one thread for both that is accurate to the
//! microsecond.

use std::io;

use crate::alarm::Alarm;
use crate::direction::Direction;
use crate::port::{now_ns, wait};

/// The maximum number of frames received before due frames are sent.
const BATCH: usize = 16;
/// On spaced links, no frame is received this shortly before another is due: about the time that receiving takes.
const RECEIVE_NS: u64 = 2_000;
/// On spaced links, the relay wakes this long before a frame is due: timers are hardly ever later.
const EARLY_NS: u64 = 200_000;
/// How long the loop of spaced links stays awake after a frame: waking it costs the sender of the next frame 10 µs or
/// more, and a processor that has slept is slow for as long again, which would show in measurements.
const AWAKE_NS: u64 = 5_000_000;

/// Forwards frames in one direction at little cost, sometimes late by a wake-up.
pub fn one_way(mut direction: Direction) -> io::Result<()> {
    let mut alarm = Alarm::default();
    loop {
        for _ in 0..BATCH {
            if !direction.take_in()? {
                break;
            }
        }
        direction.let_out()?;
        let now = now_ns();
        match direction.next_due_ns() {
            None => {
                direction.from().wait(None)?;
            }
            Some(due_ns) if alarm.is_near(due_ns, now) => spin_until(due_ns),
            Some(due_ns) => {
                let target_ns = alarm.target_ns(due_ns);
                if !direction.from().wait(Some(target_ns - now))? {
                    alarm.went_off(target_ns, now_ns());
                }
            }
        }
    }
}

/// Forwards frames in both directions, on time: one thread keeps a processor busy while frames are in flight.
pub fn both_ways(mut directions: [Direction; 2]) -> io::Result<()> {
    let mut awake_until_ns = 0;
    loop {
        let mut busy = false;
        for index in 0..directions.len() {
            if next_due_ns(&directions) > now_ns() + RECEIVE_NS {
                busy |= directions[index].take_in()?;
            }
            for direction in &mut directions {
                busy |= direction.let_out()?;
            }
        }
        let (now, due_ns) = (now_ns(), next_due_ns(&directions));
        if busy {
            awake_until_ns = now + AWAKE_NS;
        }
        if now < awake_until_ns || due_ns <= now + EARLY_NS {
            continue;
        }
        let timeout_ns = (due_ns < u64::MAX).then(|| due_ns - EARLY_NS - now);
        wait(&[directions[0].from(), directions[1].from()], timeout_ns)?;
    }
}

/// Returns when the next frame of either direction is due.
fn next_due_ns(directions: &[Direction; 2]) -> u64 {
    directions.iter().filter_map(Direction::next_due_ns).min().unwrap_or(u64::MAX)
}

fn spin_until(due_ns: u64) {
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}
