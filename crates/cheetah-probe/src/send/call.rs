//! Calls that sent packets, and when their packets left by our own clock readings.

use crate::clock::Nanos;

/// One system call that sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// How many.
    pub(super) packets: usize,
    /// When it was begun.
    pub(super) before: Nanos,
    /// When it had returned.
    pub(super) after: Nanos,
}

/// When the packets of all calls left. A packet sent alone left when its call returned, or shortly before by what is the same
/// each time; of several, the last left then and the others evenly before it.
pub(super) fn departures(calls: &[Call]) -> Vec<Option<Nanos>> {
    calls.iter().flat_map(|call| (1..=call.packets).map(move |nth| Some(left(call, nth)))).collect()
}

fn left(call: &Call, nth: usize) -> Nanos {
    let took = u128::from(call.after.0.saturating_sub(call.before.0));
    let (nth, packets) = (nth as u128, (call.packets as u128).max(1));
    Nanos(call.before.0 + u64::try_from(took * nth / packets).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_one_call_are_spread_over_it() {
        let calls = [
            Call { packets: 1, before: Nanos(100), after: Nanos(110) },
            Call { packets: 4, before: Nanos(200), after: Nanos(240) },
        ];
        let left: Vec<_> = departures(&calls).into_iter().flatten().map(|nanos| nanos.0).collect();
        assert_eq!(left, [110, 210, 220, 230, 240]);
    }
}
