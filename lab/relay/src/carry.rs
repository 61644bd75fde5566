//! Carrying frames, for ever: each way by itself, or both by one thread that keeps to the microsecond.

use std::io;

use crate::alarm::Alarm;
use crate::port::{now_ns, wait};
use crate::way::Way;

/// Frames taken in before those due get their turn again.
const BATCH: usize = 16;
/// Where it is to be on time, no frame is taken in so shortly before one is due: about what that takes.
const RECEIVE_NS: u64 = 2_000;
/// Where it is to be on time, it wakes so long before a frame is due: later than that timers hardly ever are.
const EARLY_NS: u64 = 200_000;
/// Where it is to be on time, it stays awake so long after a frame: waking it costs whoever sends the next one ten
/// microseconds and more, and a processor that has slept is slow for as long again, which those who measure would see.
const AWAKE_NS: u64 = 5_000_000;

/// Carries frames one way: late by what a wake-up takes at times, and at little cost.
pub fn one_way(mut way: Way) -> io::Result<()> {
    let mut alarm = Alarm::default();
    loop {
        for _ in 0..BATCH {
            if !way.take_in()? {
                break;
            }
        }
        way.let_out()?;
        let now = now_ns();
        match way.next_due_ns() {
            None => {
                way.from().wait(None)?;
            }
            Some(due_ns) if alarm.is_near(due_ns, now) => spin_until(due_ns),
            Some(due_ns) => {
                let target_ns = alarm.target_ns(due_ns);
                if !way.from().wait(Some(target_ns - now))? {
                    alarm.went_off(target_ns, now_ns());
                }
            }
        }
    }
}

/// Carries frames both ways, on time: a processor is busy with nothing else while frames are under way.
pub fn both_ways(mut ways: [Way; 2]) -> io::Result<()> {
    let mut awake_until_ns = 0;
    loop {
        let mut busy = false;
        for index in 0..ways.len() {
            if next_due_ns(&ways) > now_ns() + RECEIVE_NS {
                busy |= ways[index].take_in()?;
            }
            for way in &mut ways {
                busy |= way.let_out()?;
            }
        }
        let (now, due_ns) = (now_ns(), next_due_ns(&ways));
        if busy {
            awake_until_ns = now + AWAKE_NS;
        }
        if now < awake_until_ns || due_ns <= now + EARLY_NS {
            continue;
        }
        let timeout_ns = (due_ns < u64::MAX).then(|| due_ns - EARLY_NS - now);
        wait(&[ways[0].from(), ways[1].from()], timeout_ns)?;
    }
}

/// When the next frame is to leave, of either way.
fn next_due_ns(ways: &[Way; 2]) -> u64 {
    ways.iter().filter_map(Way::next_due_ns).min().unwrap_or(u64::MAX)
}

fn spin_until(due_ns: u64) {
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}
