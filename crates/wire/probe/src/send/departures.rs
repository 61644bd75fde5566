//! When the packets of a train left.

use super::call::SendCall;
use crate::clock::Nanos;
use crate::selfcheck::{Bound, TimeRange, Verdict, check, check_whole, gap_errors};

/// The source of departure times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The kernel's stamp: when it gave the packet to the interface's driver, or when the driver completed it.
    Kernel,
    /// This program's clock reading right after the call that sent the packet. Of several packets sent by one call,
    /// only the beginning and the end of the call are known; [`Departures::left`] spreads them evenly between.
    Own,
}

/// The longest stalls during a train, in nanoseconds; 0 if there was none of at least 20 µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The longest time that the host of this virtual machine took.
    pub host_ns: u64,
    /// The longest time that other threads took.
    pub threads_ns: u64,
}

/// When the packets of a train left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departures {
    /// For each packet, when it left, as precisely as is known; absent if there is no stamp.
    pub left: Vec<Option<Nanos>>,
    /// The source of these times.
    pub stamp: Stamp,
    /// The longest stalls of the thread that sent them; absent if the kernel does not tell. Where the kernel holds the
    /// packets, this thread sleeps meanwhile, and notes stalls only while it hands packets over and when it wakes up.
    pub stalls: Option<Stalls>,
    /// For each packet, the times between which it left; absent if there is no stamp.
    between: Vec<Option<TimeRange>>,
}

impl Departures {
    /// Departures by the kernel's stamps.
    #[must_use]
    pub fn stamped(left: Vec<Option<Nanos>>) -> Self {
        let between = left.iter().map(|left| left.map(TimeRange::exactly)).collect();
        Self { left, stamp: Stamp::Kernel, stalls: None, between }
    }

    /// Departures by our own clock readings around all calls. A packet sent alone left when its call returned, or a
    /// constant short time before. So did the last of several; the others left at any time during the call.
    pub(crate) fn called(calls: &[SendCall]) -> Self {
        let each = || calls.iter().flat_map(|call| (1..=call.packets).map(move |nth| (call, nth)));
        let between = |(call, nth): (&SendCall, usize)| {
            let earliest = if nth < call.packets { call.before } else { call.after };
            Some(TimeRange { earliest, latest: call.after })
        };
        Self {
            left: each().map(|(call, nth)| Some(interpolate(call, nth))).collect(),
            stamp: Stamp::Own,
            stalls: None,
            between: each().map(between).collect(),
        }
    }

    /// Removes the first packet.
    pub(crate) fn remove_first(&mut self) {
        self.left.drain(..self.left.len().min(1));
        self.between.drain(..self.between.len().min(1));
    }

    /// Checks a train that was due at `due` by the bounds of each gap.
    #[must_use]
    pub fn check(&self, due: &[Nanos], bound: Bound) -> Verdict {
        check(due, &self.between, bound)
    }

    /// Checks a train of which only the rate matters, such as packets sent back to back: by the bounds of each gap, or
    /// else by the duration of the train.
    #[must_use]
    pub fn check_back_to_back(&self, due: &[Nanos], bound: Bound) -> Verdict {
        match self.check(due, bound) {
            Verdict::Unknown => check_whole(due, &self.between, bound),
            known => known,
        }
    }

    /// The largest possible error of each gap: see [`gap_errors`].
    #[must_use]
    pub fn gap_errors(&self, due: &[Nanos]) -> Option<Vec<i64>> {
        gap_errors(due, &self.between)
    }
}

/// Returns when the `nth` packet of a call left, from 1, if all took the same time.
fn interpolate(call: &SendCall, nth: usize) -> Nanos {
    let took = u128::from(call.after.0.saturating_sub(call.before.0));
    let (nth, packets) = (nth as u128, (call.packets as u128).max(1));
    Nanos(call.before.0 + u64::try_from(took * nth / packets).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUND: Bound = Bound { gap_error_max: Duration::from_micros(5) };

    fn called(calls: &[(usize, u64, u64)]) -> Departures {
        let call = |&(packets, before, after): &_| SendCall { packets, before: Nanos(before), after: Nanos(after) };
        Departures::called(&calls.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn packets_of_one_call_are_spread_over_it() {
        let departures = called(&[(1, 100, 110), (4, 200, 240)]);
        let left: Vec<_> = departures.left.into_iter().flatten().map(|nanos| nanos.0).collect();
        assert_eq!(left, [110, 210, 220, 230, 240]);
    }

    #[test]
    fn a_gap_within_one_call_is_not_known_to_be_right() {
        // 32 packets, in the midst of which an interrupt took 30 µs: 3 µs each on average.
        let (departures, due) = (called(&[(32, 0, 94_000)]), vec![Nanos(0); 32]);
        assert_eq!(departures.check(&due, BOUND), Verdict::Unknown);
        assert!(matches!(departures.check_back_to_back(&due, BOUND), Verdict::Accepted(_)));
        // The kernel's stamps show it.
        let left = (0..32).map(|nth| Some(Nanos(2_000 * nth + if nth < 16 { 0 } else { 30_000 }))).collect();
        assert!(matches!(Departures::stamped(left).check(&due, BOUND), Verdict::Spoiled { at: 16, error_ns: 32_000 }));
    }

    #[test]
    fn a_pair_sent_by_one_call_is_no_further_apart_than_the_call_is_long() {
        let due = [Nanos(0); 2];
        assert_eq!(called(&[(2, 0, 4_000)]).gap_errors(&due), Some(vec![4_000]));
        assert!(matches!(called(&[(2, 0, 4_000)]).check(&due, BOUND), Verdict::Accepted(_)));
        // Half of the call's duration would be within the bound.
        assert_eq!(called(&[(2, 0, 9_000)]).check(&due, BOUND), Verdict::Unknown);
        let spoiled = Verdict::Spoiled { at: 1, error_ns: 9_000 };
        assert_eq!(called(&[(2, 0, 9_000)]).check_back_to_back(&due, BOUND), spoiled);
    }

    #[test]
    fn packets_due_apart_but_sent_by_one_call_are_spoiled() {
        let due = [0, 50_000, 100_000].map(Nanos);
        let departures = called(&[(1, 0, 2_000), (2, 100_000, 103_000)]);
        assert!(matches!(departures.check(&due, BOUND), Verdict::Spoiled { at: 1 | 2, .. }));
    }

    #[test]
    fn calls_of_one_packet_each_are_exact() {
        let due = [0, 50_000, 100_000].map(Nanos);
        let departures = called(&[(1, 0, 2_000), (1, 50_000, 52_500), (1, 100_000, 102_000)]);
        assert_eq!(departures.gap_errors(&due), Some(vec![500, -500]));
    }
}
