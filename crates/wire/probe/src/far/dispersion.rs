//! Computes a path's capacity from the trains that one end sent and the other received.

use super::trains::TrainPlan;
use crate::clock::Nanos;
use crate::estimate::capacity::{self, Observations, Unknown};
use crate::estimate::{Arrival, TrainArrivals};
use crate::path::{Capacity, Method};

/// The most arrivals used for each packet that left: duplicates are rare, and a far end may make arrivals up.
const COPIES_MAX: usize = 2;

/// A packet of a train, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Its sequence number.
    pub seq: u32,
    /// When it arrived, by the receiver's clock.
    pub at: Nanos,
    /// Its size, IP header included.
    pub ip_bytes: u32,
}

/// Returns the capacity from the trains of `plan`, in order of arrival. `left` has when each packet left, by the
/// sender's clock.
///
/// # Errors
///
/// If they do not determine it.
pub fn of_trains(came: &[ReceivedPacket], left: &[Nanos], plan: &TrainPlan) -> Result<Capacity, Unknown> {
    let arrivals: Vec<_> = came
        .iter()
        .take(left.len().saturating_mul(COPIES_MAX))
        .filter_map(|&ReceivedPacket { seq, at, ip_bytes }| {
            Some(Arrival { seq, sent: *left.get(seq as usize)?, came: at, ip_bytes })
        })
        .collect();
    let mut seen = Observations::default();
    for arrivals in arrivals.chunk_by(|a, b| plan.train_of(a.seq) == plan.train_of(b.seq)) {
        let Some((is_paced, packets)) = arrivals.first().map(|arrival| plan.kind_of(plan.train_of(arrival.seq))) else {
            continue;
        };
        let train = TrainArrivals { packets, arrivals: arrivals.to_vec() };
        if is_paced { seen.paced.push(train) } else { seen.trains.push(train) }
    }
    capacity::estimate(Method::Far, &seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trains over a link of 100 Mbit/s, which takes 121.12 µs for a frame of 1514 bytes.
    fn trains() -> (Vec<ReceivedPacket>, Vec<Nanos>, TrainPlan) {
        let plan = TrainPlan::new(usize::MAX);
        let (mut came, mut left, mut free_at) = (Vec::new(), Vec::new(), 0);
        for (seq, due) in (0..).zip(plan.pattern().offsets()) {
            let due = due.as_nanos() as u64 + u64::from(seq) * 2_000;
            free_at = due.max(free_at) + 121_120;
            left.push(Nanos(due));
            came.push(ReceivedPacket { seq, at: Nanos(7_000_000_000 + free_at), ip_bytes: 1500 });
        }
        (came, left, plan)
    }

    #[test]
    fn the_far_clock_may_differ() {
        let (came, left, plan) = trains();
        let capacity = of_trains(&came, &left, &plan).unwrap();
        assert!((capacity.bits_per_s / 1e8 - 1.0).abs() < 0.01 && !capacity.at_least, "{capacity:?}");
    }

    #[test]
    fn trains_that_arrive_in_batches_are_not_taken_for_a_faster_link() {
        let (mut came, left, plan) = trains();
        for packet in &mut came {
            packet.at = Nanos(packet.at.0.next_multiple_of(3_000_000) + u64::from(packet.seq) * 4_000);
        }
        let capacity = of_trains(&came, &left, &plan);
        assert!(
            capacity.as_ref().is_err() || capacity.as_ref().is_ok_and(|found| found.bits_per_s < 102e6),
            "{capacity:?}"
        );
    }

    #[test]
    fn arrivals_a_far_end_makes_up_are_bounded() {
        let (mut came, left, plan) = trains();
        came.iter_mut().for_each(|packet| packet.seq = u32::MAX);
        assert!(of_trains(&came, &left, &plan).is_err());
        let (came, ..) = trains();
        assert!(of_trains(&came, &[], &plan).is_err());
        let (came, left, plan) = trains();
        let again = came.iter().cycle().take(200 * came.len()).copied().collect::<Vec<_>>();
        if let Ok(capacity) = of_trains(&again, &left, &plan) {
            assert!((capacity.samples as usize) <= COPIES_MAX * left.len(), "{capacity:?}");
        }
        let (mut came, left, plan) = trains();
        came.reverse();
        assert!(of_trains(&came, &left, &plan).is_err());
    }
}
