//! The capacity of a path by how far apart trains arrive that left without gaps.

use crate::clock::Nanos;
use crate::estimate::{Arrival, capacity, dispersion};
use crate::path::{Capacity, Method};

/// Looks at no more arrivals than so many for each packet that left, whatever a far end says: few packets are duplicated, and
/// finding the rate takes time in proportion to the square of how many there are.
const COPIES_MAX: usize = 2;

/// A packet of a train that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// Which.
    pub seq: u32,
    /// When, by the clock of where it came to.
    pub at: Nanos,
    /// Its size, IP header included.
    pub ip_bytes: u32,
}

/// The capacity, of trains of `per_train` packets each, in the order they came. `left` has when each packet left, by the clock
/// of where it came from. Absent if too few came whole and in order.
#[must_use]
pub fn of_trains(came: &[Came], left: &[Nanos], per_train: usize) -> Option<Capacity> {
    let arrivals: Vec<_> = came
        .iter()
        .take(left.len().saturating_mul(COPIES_MAX))
        .filter_map(|&Came { seq, at, ip_bytes }| {
            Some(Arrival { seq, sent: *left.get(seq as usize)?, came: at, ip_bytes })
        })
        .collect();
    let train_of = |arrival: &Arrival| arrival.seq as usize / per_train.max(1);
    let trains: Vec<_> = arrivals.chunk_by(|a, b| train_of(a) == train_of(b)).collect();
    let pairs: Vec<_> = trains.iter().flat_map(|train| dispersion::pairs(train)).collect();
    let whole: Vec<_> = trains.iter().filter_map(|train| dispersion::train(train, per_train)).collect();
    capacity::estimate(Method::Far, &pairs, &whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten trains over a link of 100 Mbit/s, which takes 121.12 µs for a frame of 1514 bytes.
    fn trains() -> (Vec<Came>, Vec<Nanos>) {
        let (mut came, mut left) = (Vec::new(), Vec::new());
        for seq in 0..200u32 {
            let (train, place) = (u64::from(seq / 20), u64::from(seq % 20));
            left.push(Nanos(train * 20_000_000 + place * 2_000));
            came.push(Came { seq, at: Nanos(7_000_000_000 + train * 20_000_000 + place * 121_120), ip_bytes: 1500 });
        }
        (came, left)
    }

    #[test]
    fn the_far_clock_may_be_any() {
        let (came, left) = trains();
        let capacity = of_trains(&came, &left, 20).unwrap();
        assert!((capacity.bits_per_s / 1e8 - 1.0).abs() < 0.01 && !capacity.at_least, "{capacity:?}");
    }

    #[test]
    fn what_the_far_end_makes_up_harms_nobody() {
        let (mut came, left) = trains();
        came.iter_mut().for_each(|packet| packet.seq = u32::MAX);
        assert_eq!(of_trains(&came, &left, 20), None);
        let (came, _) = trains();
        assert_eq!(of_trains(&came, &[], 20), None);
        let (came, left) = trains();
        let again = came.iter().cycle().take(200 * came.len()).copied().collect::<Vec<_>>();
        let capacity = of_trains(&again, &left, 20).unwrap();
        assert!((capacity.samples as usize) <= COPIES_MAX * left.len(), "{capacity:?}");
        let (mut came, left) = trains();
        came.reverse();
        assert_eq!(of_trains(&came, &left, 0), None);
    }
}
