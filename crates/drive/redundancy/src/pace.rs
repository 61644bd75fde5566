//! The rate of resynchronization while users' requests run. Does no I/O and has no clock.
//!
//! Resynchronization runs in *bursts* of a few steps at a time. A burst shares the bottleneck (a link or a processor)
//! with the foreground. The proportions depend on the concurrency of both, and are measured. The pause after the burst
//! reduces the average share of resynchronization to [`SHARE`]:
//!
//! ```text
//! time    |--- burst ---|----- pause -----|--- burst ---|
//! share        s = own / (own + foreground)        burst * s / (burst + pause) = SHARE
//! ```
//!
//! The foreground therefore keeps 1 − [`SHARE`], even if it gets nothing during a burst. Resynchronization gets
//! [`SHARE`], less the cost of the ends of a burst. There are no pauses if the share is lower even without them, or if
//! there are no foreground requests. The capacity of the bottleneck need not be known.
//!
//! The foreground is the requests of this process's users and the reads of other processes. Members count the bytes
//! that they send; the excess over the reads of this process is the others' ([`Others`]).

use std::time::Duration;

/// The share of the bottleneck that resynchronization takes while there is a foreground. Users must keep 0.70. A repair
/// needs 0.20, and loses a fifth of its share at the ends of bursts.
pub const SHARE: f64 = 0.27;
/// The bytes, on the busiest member, of a burst while there is a foreground: the most that a request waits behind.
pub const BURST_BYTES: u64 = 4 << 20;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Whether a step may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It has begun.
    Begun,
    /// Not before this time.
    At(Duration),
    /// Not before one of the running steps has ended.
    AfterStep,
}

/// The pace of resynchronization. Times are since any fixed moment; bytes are those on the busiest member.
#[derive(Debug, Default)]
pub struct Pacer {
    /// No burst begins before this time.
    resume: Duration,
    burst: Option<Burst>,
    /// The foreground's bytes when the last burst ended.
    foreground_before: u64,
}

#[derive(Debug)]
struct Burst {
    begun: Duration,
    running: usize,
    /// Bytes of the steps that have begun, and of those that have ended.
    begun_bytes: u64,
    ended_bytes: u64,
    foreground_at_begin: u64,
    /// When the last step ended.
    ended: Duration,
    /// There was a foreground when the burst began, or since.
    is_busy: bool,
}

impl Pacer {
    /// Asks for a step of `bytes`. `foreground` counts the foreground's bytes since any fixed moment.
    pub fn begin(&mut self, now: Duration, foreground: u64, bytes: u64) -> Turn {
        if self.burst.as_ref().is_some_and(|burst| burst.running == 0)
            && let Some(burst) = self.burst.take()
        {
            self.resume = burst.ended + burst.pause(now, foreground);
            self.foreground_before = foreground;
        }
        if now < self.resume {
            return Turn::At(self.resume);
        }
        let is_busy = foreground > self.foreground_before;
        let burst = self.burst.get_or_insert(Burst {
            begun: now,
            running: 0,
            begun_bytes: 0,
            ended_bytes: 0,
            foreground_at_begin: foreground,
            ended: now,
            is_busy,
        });
        burst.is_busy |= is_busy;
        if !is_busy {
            // There was no foreground until now; the rate measured without one does not apply once there is one.
            burst.begun = now;
            burst.begun_bytes = burst.begun_bytes.saturating_sub(burst.ended_bytes);
            burst.ended_bytes = 0;
        }
        // A step larger than a burst counts as a burst.
        if is_busy && burst.running > 0 && burst.begun_bytes + bytes > BURST_BYTES {
            return Turn::AfterStep;
        }
        burst.running += 1;
        burst.begun_bytes += bytes;
        Turn::Begun
    }

    /// Notes that a step has ended.
    pub fn end(&mut self, now: Duration, bytes: u64) {
        let Some(burst) = &mut self.burst else { return };
        burst.running = burst.running.saturating_sub(1);
        burst.ended_bytes += bytes;
        burst.ended = now;
    }
}

impl Burst {
    /// The pause after the burst. `foreground` is counted now, which may be later than the burst's end.
    fn pause(&self, now: Duration, foreground: u64) -> Duration {
        let lasted = self.ended.saturating_sub(self.begun);
        let since = now.saturating_sub(self.begun).max(Duration::from_nanos(1));
        let beside = (foreground - self.foreground_at_begin) as f64 * (lasted.as_secs_f64() / since.as_secs_f64());
        if !self.is_busy && foreground == self.foreground_at_begin {
            return Duration::ZERO;
        }
        let own = self.ended_bytes as f64;
        let share = own / (own + beside).max(1.0);
        lasted.mul_f64((share / SHARE - 1.0).max(0.0)).min(PAUSE_MAX)
    }
}

/// The bytes that other processes have read, from the members' counts.
#[derive(Debug, Default)]
pub struct Others {
    /// For each member, the bytes read by others when it first answered.
    first: Vec<Option<u64>>,
    most: u64,
}

impl Others {
    /// Takes `all`, the bytes that each member has sent to all clients, and `own`, those that this process has read,
    /// counted afterwards. Returns the bytes read by others since the first call, on the member with the most. The
    /// result never falls.
    pub fn heard(&mut self, all: &[Option<u64>], own: &[u64]) -> u64 {
        self.first.resize(self.first.len().max(all.len()), None);
        for ((first, all), own) in self.first.iter_mut().zip(all).zip(own) {
            let Some(all) = all else { continue };
            let others = all.wrapping_sub(*own);
            let since = others.wrapping_sub(*first.get_or_insert(others)).cast_signed();
            // A node that replaces another counts from zero.
            self.most = self.most.max(u64::try_from(since).unwrap_or(0));
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the foreground on a link.
    #[derive(Debug, Clone, Copy)]
    enum Foreground {
        None,
        /// It takes this many times the share of one step that runs beside it.
        Streams(f64),
        /// One small request at a time, which waits behind every step.
        Latency,
    }

    const STEP_BYTES: u64 = 1 << 20;
    const STEPS: usize = 4;
    const TICK: Duration = Duration::from_micros(200);

    /// Runs a repair with `STEPS` steps at a time on a link; returns the shares of the link that it and the foreground
    /// got.
    fn play(foreground: Foreground, link_bytes_per_s: f64) -> (f64, f64) {
        let (mut pacer, mut now, mut steps) = (Pacer::default(), Duration::ZERO, Vec::<f64>::new());
        let (mut repaired, mut served) = (0.0, 0.0);
        let end = Duration::from_secs(60);
        while now < end {
            while steps.len() < STEPS && pacer.begin(now, served as u64, STEP_BYTES) == Turn::Begun {
                steps.push(STEP_BYTES as f64);
            }
            let capacity = link_bytes_per_s * TICK.as_secs_f64();
            let (weight, demand) = match foreground {
                Foreground::None => (0.0, 0.0),
                Foreground::Streams(weight) => (weight, capacity),
                Foreground::Latency => (0.0, if steps.is_empty() { capacity * 0.01 } else { capacity * 0.0001 }),
            };
            let own = match steps.len() {
                0 => 0.0,
                count => capacity * count as f64 / (count as f64 + weight),
            };
            served += if own > 0.0 && demand >= capacity { capacity - own } else { demand };
            let each = own / steps.len().max(1) as f64;
            steps.iter_mut().for_each(|left| *left -= each);
            repaired += own;
            now += TICK;
            let before = steps.len();
            steps.retain(|left| *left > 0.0);
            (steps.len()..before).for_each(|_| pacer.end(now, STEP_BYTES));
        }
        let all = link_bytes_per_s * end.as_secs_f64();
        let undisturbed = if matches!(foreground, Foreground::Latency) { all * 0.01 } else { all };
        (repaired / all, served / undisturbed)
    }

    #[test]
    fn a_repair_takes_a_fifth_of_the_link_and_the_foreground_keeps_seven_tenths() {
        for link in [125e6, 1.25e9] {
            for weight in [0.3, 1.0, 4.0, 9.0] {
                let (repair, foreground) = play(Foreground::Streams(weight), link);
                assert!(repair >= 0.20 && foreground >= 0.70, "{weight} streams: {repair:.2}, {foreground:.2}");
            }
            let (repair, foreground) = play(Foreground::Latency, link);
            assert!(repair >= 0.20 && foreground >= 0.70, "latency: {repair:.2}, {foreground:.2}");
        }
    }

    #[test]
    fn a_repair_that_nobody_disturbs_takes_the_whole_link() {
        let (repair, _) = play(Foreground::None, 125e6);
        assert!(repair > 0.95, "{repair:.2}");
    }

    #[test]
    fn a_repair_goes_on_at_once_when_the_foreground_has_ended() {
        let mut pacer = Pacer::default();
        let second = Duration::from_secs(1);
        assert_eq!(pacer.begin(second, 1000, BURST_BYTES), Turn::Begun);
        assert_eq!(pacer.begin(second, 1000, 1), Turn::AfterStep);
        pacer.end(2 * second, BURST_BYTES);
        let Turn::At(resume) = pacer.begin(2 * second, 2000, BURST_BYTES) else { panic!("no pause") };
        assert!(resume <= 2 * second + PAUSE_MAX);
        assert_eq!(pacer.begin(resume, 2000, BURST_BYTES), Turn::Begun);
        pacer.end(resume + second, BURST_BYTES);
        // There was no foreground meanwhile.
        for _ in 0..9 {
            assert_eq!(pacer.begin(resume + second, 2000, BURST_BYTES), Turn::Begun);
        }
    }

    #[test]
    fn pauses_end() {
        let mut pacer = Pacer::default();
        pacer.begin(Duration::ZERO, 1, 1);
        pacer.end(Duration::from_secs(3600), 1 << 40);
        let Turn::At(resume) = pacer.begin(Duration::from_secs(3600), 2, 1) else { panic!("no pause") };
        assert_eq!(resume, Duration::from_secs(3602));
        assert_eq!(pacer.begin(resume, 3, 1), Turn::Begun);
    }

    #[test]
    fn what_a_member_read_beyond_own_requests_is_that_of_others() {
        let mut others = Others::default();
        assert_eq!(others.heard(&[Some(5000), None], &[0, 0]), 0, "before");
        assert_eq!(others.heard(&[Some(5600), Some(100)], &[600, 0]), 0, "own requests");
        assert_eq!(others.heard(&[Some(5700), Some(100)], &[900, 0]), 0, "a request in flight");
        assert_eq!(others.heard(&[Some(7900), Some(300)], &[900, 0]), 2000);
        assert_eq!(others.heard(&[Some(20), Some(300)], &[900, 0]), 2000, "a node that was restarted");
    }
}
