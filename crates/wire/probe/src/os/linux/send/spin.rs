//! The common part of the backends that spin: frames are queued ahead of time, and released when they are due.

use std::io;
use std::time::Duration;

use rustix::thread::sched_getcpu;

use super::allowance::Allowance;
use super::lead::{with_lead, without_lead};
use super::queue::FrameQueue;
use super::quiet::{Pauses, quiet_start};
use super::realtime::Realtime;
use super::stalls::StallWatch;
use super::wait;
use super::warm::{self, WarmUp};
use crate::clock::Nanos;
use crate::send::call::SendCall;
use crate::send::{Backend, Departures, Options, PreDispatch, SendError, SendNote, Sender, Train};

/// How long a new sender looks for regular pauses: some ticks of any host.
const OBSERVED: Duration = Duration::from_millis(12);

/// A sender that releases queued frames when they are due.
pub(super) struct SpinSender<L> {
    line: L,
    interface: String,
    options: Options,
    notes: Vec<SendNote>,
    failed: bool,
    warm: WarmUp<L>,
    allowance: Allowance,
    pauses: Pauses,
}

impl<L: FrameQueue> SpinSender<L> {
    pub(super) fn new(line: L, interface: String, mut options: Options) -> Self {
        let warm = WarmUp::by(L::to_warm_up());
        if options.realtime {
            // All trains leave on the same CPU: each has its own pauses.
            options.cpu.get_or_insert_with(sched_getcpu);
        }
        let (notes, allowance, pauses) = (Vec::new(), Allowance::new(), observed(options));
        Self { line, interface, options, notes, failed: false, warm, allowance, pauses }
    }
}

/// Returns the pauses that a thread meets which spins as senders do.
fn observed(options: Options) -> Pauses {
    let _realtime = options.realtime.then(|| Realtime::enter(options.cpu));
    let (mut watch, mut pauses) = (StallWatch::begin(), Pauses::default());
    wait::spin(Nanos::now() + OBSERVED, &mut watch);
    pauses.note(watch.pauses());
    pauses
}

impl<L: FrameQueue> Sender for SpinSender<L> {
    fn backend(&self) -> Backend {
        L::BACKEND
    }

    fn frame_bytes_max(&self) -> usize {
        self.line.frame_bytes_max()
    }

    fn notes(&self) -> &[SendNote] {
        &self.notes
    }

    fn quiet_start(&self, earliest: Nanos, offsets: &[Duration]) -> Nanos {
        quiet_start(&self.pauses, earliest, offsets)
    }

    fn send(&mut self, train: &Train) -> Result<Departures, SendError> {
        train.check(self.line.frame_bytes_max())?;
        if self.failed {
            return Err(SendError::Train("an earlier train was interrupted: open the sender anew"));
        }
        let led = with_lead(train, Nanos::now());
        let (train, is_led) = (led.as_ref().unwrap_or(train), led.is_some());
        let mut calls = Vec::with_capacity(train.frames.len());
        let mut watch = StallWatch::begin();
        {
            let mut realtime = self.options.realtime.then(|| Realtime::enter(self.options.cpu));
            self.allowance.begin();
            let heed = |now| {
                if let Some(realtime) = realtime.as_mut().filter(|_| self.allowance.is_used_up(now)) {
                    realtime.give_up();
                }
            };
            let when = self.options.pre_dispatch;
            if let Err(error) = drive(&mut self.line, &mut self.warm, train, when, &mut watch, heed, &mut calls) {
                // Frames still queued must not leave with the next train.
                self.failed = true;
                return Err(SendError::sending(&self.interface, error));
            }
            self.notes = realtime.map(Realtime::leave).unwrap_or_default();
        }
        let mut departures = match self.line.stamps(&calls) {
            Some(left) => Departures::stamped(left),
            None => Departures::called(&calls),
        };
        self.pauses.note(watch.pauses());
        departures.stalls = watch.end();
        Ok(if is_led { without_lead(departures) } else { departures })
    }
}

/// Queues frames when they are to be handed over, and releases them when they are due. Notes stalls of this thread in `watch`, and
/// calls `heed` with the time now and then.
fn drive(
    line: &mut impl FrameQueue,
    warm: &mut WarmUp<impl FrameQueue>,
    train: &Train,
    when: PreDispatch,
    watch: &mut StallWatch,
    mut heed: impl FnMut(Nanos),
    calls: &mut Vec<SendCall>,
) -> io::Result<()> {
    let (mut put, mut gone) = (0, 0);
    let mut now = Nanos::now();
    let mut last_gone = now;
    while let Some(due) = train.due.get(gone).copied() {
        while train.due.get(put).is_some_and(|due| handed_over(*due, when) <= now)
            && train.frames.get(put).is_some_and(|frame| line.put(frame))
        {
            put += 1;
        }
        let next = train.due.get(put).map(|due| handed_over(*due, when)).filter(|next| *next > now);
        now = match next {
            Some(next) if put == gone || next < due => wait::until(next, watch),
            _ if put > gone => {
                if !wait::sleep_before(due, watch) && gone > 0 {
                    wait::until(due - warm::BEGIN, watch);
                }
                warm.up(due, || line.idle());
                wait::until(due, watch)
            }
            // Every place holds a released frame that is not sent yet: the interface is slow, or stuck.
            _ => {
                wait::Patience::since(last_gone.max(due)).wait()?;
                watch.resume();
                Nanos::now()
            }
        };
        let ready = train.due.get(gone..put).unwrap_or_default().partition_point(|due| *due <= now);
        if ready > 0 {
            let before = Nanos::now();
            line.go(ready)?;
            let after = Nanos::now();
            calls.push(SendCall { packets: ready, before, after });
            gone += ready;
            (now, last_gone) = (after, after);
        }
        heed(now);
    }
    Ok(())
}

fn handed_over(due: Nanos, when: PreDispatch) -> Nanos {
    match when {
        PreDispatch::Initial => Nanos::default(),
        PreDispatch::OnTheFly(before) => due - before,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::super::realtime::scheduler;
    use super::*;
    use crate::send::PACKETS_MAX;
    use cheetah_testing::skip;

    /// A queue that records released frames and frees their places.
    struct Noted {
        places: usize,
        waiting: VecDeque<Vec<u8>>,
        left: Vec<(Vec<u8>, Nanos)>,
        most_waiting: usize,
        policies: Vec<i32>,
    }

    impl Noted {
        fn new(places: usize) -> Self {
            Self { places, waiting: VecDeque::new(), left: Vec::new(), most_waiting: 0, policies: Vec::new() }
        }
    }

    impl FrameQueue for Noted {
        const BACKEND: Backend = Backend::Ring;

        fn frame_bytes_max(&self) -> usize {
            8
        }

        fn put(&mut self, frame: &[u8]) -> bool {
            let free = self.waiting.len() < self.places;
            if free {
                self.waiting.push_back(frame.to_vec());
                self.most_waiting = self.most_waiting.max(self.waiting.len());
            }
            free
        }

        fn go(&mut self, packets: usize) -> io::Result<()> {
            assert!(packets <= self.waiting.len());
            self.policies.push(scheduler().unwrap() & !libc::SCHED_RESET_ON_FORK);
            self.left.extend(self.waiting.drain(..packets).map(|frame| (frame, Nanos::now())));
            Ok(())
        }

        fn idle(&mut self) {}

        fn to_warm_up() -> Option<Self> {
            None
        }

        fn stamps(&mut self, _: &[SendCall]) -> Option<Vec<Option<Nanos>>> {
            None
        }
    }

    fn sent(places: usize, when: PreDispatch, gap: Duration) -> (Train, Noted) {
        let start = Nanos::now() + Duration::from_micros(500);
        let due: Vec<_> = (0..20).map(|i| start + gap * i).collect();
        let train = Train { frames: (0..20).map(|i| vec![i]).collect(), due };
        let mut line = Noted::new(places);
        let mut calls = Vec::new();
        let mut watch = StallWatch::begin();
        drive(&mut line, &mut WarmUp::<Noted>::by(None), &train, when, &mut watch, |_| {}, &mut calls).unwrap();
        assert_eq!(calls.iter().map(|call| call.packets).sum::<usize>(), 20);
        (train, line)
    }

    #[test]
    fn packets_leave_in_order_and_never_early_however_they_are_handed_over() {
        let on_the_fly = |micros| PreDispatch::OnTheFly(Duration::from_micros(micros));
        for when in [PreDispatch::Initial, on_the_fly(0), on_the_fly(100), on_the_fly(1_000_000)] {
            for gap in [0, 1, 50, 700].map(Duration::from_micros) {
                for places in [1, 3, 100] {
                    let (train, line) = sent(places, when, gap);
                    let (frames, left): (Vec<_>, Vec<_>) = line.left.into_iter().unzip();
                    assert_eq!(frames, train.frames);
                    assert!(left.iter().zip(&train.due).all(|(left, due)| left >= due));
                }
            }
        }
    }

    #[test]
    fn on_the_fly_keeps_few_packets_waiting() {
        // On a machine that stalls, a whole train may wait, but not at every attempt.
        let waiting = || sent(100, PreDispatch::OnTheFly(Duration::ZERO), Duration::from_millis(2)).1.most_waiting;
        assert!((0..100).any(|_| waiting() < 20));
        let (_, line) = sent(100, PreDispatch::Initial, Duration::from_millis(2));
        assert_eq!(line.most_waiting, 20);
    }

    #[test]
    fn real_time_priority_ends_when_its_allowance_is_used_up() {
        // A machine that stalls sends its overdue packets at once, but not at every attempt.
        for attempt in 0..10 {
            let mut sender = SpinSender::new(Noted::new(1000), "none".to_owned(), Options::default());
            let start = Nanos::now() + Duration::from_millis(1);
            let due: Vec<_> = (0..1000).map(|nth| start + Duration::from_micros(400) * nth).collect();
            sender.send(&Train { frames: vec![vec![0]; due.len()], due }).unwrap();
            let (first, last) = (sender.line.policies.first(), sender.line.policies.last());
            if first != Some(&libc::SCHED_FIFO) {
                return skip(&format!("real-time priority is not permitted here: {:?}", sender.notes));
            }
            if last == Some(&libc::SCHED_FIFO) && attempt < 9 {
                continue;
            }
            assert_eq!(last, Some(&libc::SCHED_OTHER));
            assert_eq!(sender.notes[0], SendNote::GaveUpPriority);
            return;
        }
    }

    #[test]
    fn invalid_train_is_refused() {
        let train = |packets: usize, due: &[u64]| Train {
            frames: vec![vec![0; 9]; packets],
            due: due.iter().copied().map(Nanos).collect(),
        };
        assert!(train(2, &[1, 1]).check(9).is_ok());
        assert!(train(0, &[]).check(9).is_ok());
        for (packets, due, bytes_max) in [(1, &[1, 2][..], 9), (2, &[2, 1], 9), (1, &[1], 8)] {
            assert!(train(packets, due).check(bytes_max).is_err());
        }
        assert!(train(PACKETS_MAX + 1, &vec![0; PACKETS_MAX + 1]).check(9).is_err());
    }
}
