//! Choosing the fastest method of packing for each piece of content. No I/O, no clock.
//!
//! One processor packs a piece, then it is sent. With many pieces in flight, packing and sending overlap, so the slower
//! of the two determines the time. Earlier pieces show the speed of each method, and how its ratio relates to a
//! [`Sample`]'s. The method with the least time is chosen, if it gains enough over not packing.

use std::time::Duration;

use super::sample::Sample;
use crate::proto::packed::Compression;

/// The methods, the initial estimate of one processor's speed in bytes a second, and the ratio of a whole piece to its
/// sample's. That ratio depends on the content, so it is corrected for all methods alike: methods tried on different
/// content must not be ranked by it.
const WAYS: [(Compression, f64, f64); 5] = [
    (Compression::Stored, 2e9, 1.0),
    (Compression::Lz4, 500e6, 0.9),
    (Compression::Zstd(1), 250e6, 0.75),
    (Compression::Zstd(3), 130e6, 0.7),
    // Higher levels gain too little on 1 MiB for the memory of their tables.
    (Compression::Zstd(6), 50e6, 0.67),
];

/// The estimates are exponential averages over this many pieces.
const MEMORY_PIECES: u32 = 10;
/// One piece of this many tries a method next to the best, to keep its estimate current.
const TRIAL_EVERY: u32 = 64;
/// Packing must take less than this fraction of the time of not packing: a smaller gain is not worth the processors.
const GAIN_MIN: f64 = 0.96;
/// On a link this many times slower than the fastest Zstandard level, even pieces with a hopeless sample are packed: a
/// piece may hold files of several kinds, and the processors are idle.
const IDLE_MIN: f64 = 16.0;
/// The index of that level.
const LIGHT: usize = 2;
/// A client on this machine that takes more bytes a second than this is not at the other end of a tunnel.
const TUNNEL_RATE_MAX: f64 = 150e6;

/// The conditions of a choice, besides the content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// The link's bandwidth, in bytes a second.
    pub link_rate: f64,
    /// Processors that pack at the same time.
    pub processors: f64,
    /// Whether other pieces are packed or sent meanwhile. A lone piece takes the time of packing *and* sending.
    pub overlaps: bool,
    /// Whether the clients are on this machine, so that unpacking and hashing take the same processors as packing, and
    /// memory is faster than both. The end of a tunnel to a client looks the same, but is slower.
    pub shared: bool,
}

/// The estimates of all methods.
#[derive(Debug, Clone)]
pub struct Auto {
    known: [Known; WAYS.len()],
    /// The correction of the predicted packed size.
    correction: f64,
    /// Pieces since the last trial.
    since_trial: u32,
    /// Whether the next trial is of the faster neighbour.
    try_lighter: bool,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    how: Compression,
    /// Bytes a second.
    speed: f64,
    /// The ratio of a whole piece's packed size to its sample's.
    scale: f64,
    /// Pieces packed by this method, up to the length of the average.
    pieces: u32,
}

/// The part of a sample that predicts this method.
fn of_sample(how: Compression, sample: Sample) -> Option<f64> {
    match how {
        Compression::Stored => None,
        Compression::Lz4 => Some(sample.lz4),
        Compression::Zstd(_) => Some(sample.lz4.min(sample.entropy)),
    }
}

impl Default for Auto {
    fn default() -> Self {
        let known = WAYS.map(|(how, speed, scale)| Known { how, speed, scale, pieces: 0 });
        Self { known, correction: 1.0, since_trial: 0, try_lighter: false }
    }
}

impl Auto {
    /// Chooses the method for content with this sample.
    pub fn choose(&mut self, sample: Sample, conditions: Conditions) -> Compression {
        if conditions.shared && conditions.link_rate > TUNNEL_RATE_MAX {
            return Compression::Stored;
        }
        if sample.is_hopeless() {
            let light = &self.known[LIGHT];
            let idle = light.speed * conditions.processors > IDLE_MIN * conditions.link_rate;
            return if idle { light.how } else { Compression::Stored };
        }
        let best = self.best(sample, conditions);
        self.since_trial += 1;
        if self.since_trial < TRIAL_EVERY {
            return self.known[best].how;
        }
        self.since_trial = 0;
        self.try_lighter = !self.try_lighter;
        let heavier = (best + 1).min(WAYS.len() - 1);
        let tried = if self.try_lighter && best > 1 { best - 1 } else { heavier };
        self.known[tried].how
    }

    fn best(&self, sample: Sample, conditions: Conditions) -> usize {
        let time = |index: &usize| self.time(&self.known[*index], sample, conditions);
        let best = (1..WAYS.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
        best.filter(|best| time(best) < GAIN_MIN * time(&0)).unwrap_or(0)
    }

    /// Seconds for a byte of content.
    fn time(&self, way: &Known, sample: Sample, conditions: Conditions) -> f64 {
        let ratio = of_sample(way.how, sample).map_or(1.0, |size| size * way.scale * self.correction);
        let wire = ratio.min(1.0) / conditions.link_rate;
        let work = 1.0 / (way.speed * conditions.processors.max(0.01));
        if conditions.overlaps { wire.max(work) } else { wire + 1.0 / way.speed }
    }

    /// Records that one processor packed `len` bytes into `packed_len`, in this time. Pieces with a hopeless sample say
    /// nothing about others: compressors skip noise several times as fast as they pack content.
    pub fn learn(&mut self, how: Compression, sample: Sample, len: usize, packed_len: usize, took: Duration) {
        if sample.is_hopeless() {
            return;
        }
        let (len, packed_len) = (len as f64, packed_len as f64);
        for known in self.known.iter_mut().filter(|known| known.how == how) {
            known.pieces = (known.pieces + 1).min(MEMORY_PIECES);
            let learning = 1.0 / f64::from(known.pieces);
            let seen = len / took.as_secs_f64().max(1e-6);
            // Times are averaged, not speeds: a piece that took ten times as long counts as ten.
            known.speed = 1.0 / ((1.0 - learning) / known.speed + learning / seen);
            if let Some(size) = of_sample(how, sample).filter(|size| *size > 0.0) {
                let seen = (packed_len / len / (size * known.scale)).clamp(0.1, 2.0);
                self.correction += (seen - self.correction) / f64::from(MEMORY_PIECES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::LinkRate;
    use super::*;

    const TEXT: Sample = Sample { lz4: 0.6, entropy: 0.6 };
    const NOISE: Sample = Sample { lz4: 1.0, entropy: 1.0 };
    const PIECE: usize = 1 << 20;

    /// A machine and its link.
    struct World {
        link_rate: f64,
        processors: f64,
        /// The speed of this machine, relative to the initial estimates.
        pace: f64,
    }

    impl World {
        fn speed(&self, how: Compression) -> f64 {
            let speed = match how {
                Compression::Stored => 3e9,
                Compression::Lz4 => 600e6,
                Compression::Zstd(1) => 300e6,
                Compression::Zstd(3) => 180e6,
                Compression::Zstd(_) => 60e6,
            };
            speed * self.pace
        }

        fn ratio(&self, how: Compression) -> f64 {
            match how {
                Compression::Stored => 1.0,
                Compression::Lz4 => 0.5,
                Compression::Zstd(1) => 0.36,
                Compression::Zstd(3) => 0.34,
                Compression::Zstd(_) => 0.32,
            }
        }

        /// Seconds a piece takes if all are packed this way.
        fn time(&self, how: Compression) -> f64 {
            let wire = self.ratio(how) / self.link_rate;
            PIECE as f64 * wire.max(1.0 / (self.speed(how) * self.processors))
        }

        /// Lets a new policy pack that number of pieces of text. Returns the time it takes after a fifth of a second of
        /// learning, relative to that of the best method.
        fn run(&self, pieces: usize) -> (f64, Compression) {
            let (total, best, how) = self.seconds(pieces);
            ((total - 0.2) / best, how)
        }

        /// The same as seconds: with this policy, learning included, and with the best method from the start.
        fn seconds(&self, pieces: usize) -> (f64, f64, Compression) {
            let (mut auto, mut link) = (Auto::default(), LinkRate::default());
            let (mut total, mut how) = (0.0, Compression::Stored);
            for _ in 0..pieces {
                let conditions =
                    Conditions { link_rate: link.rate(), processors: self.processors, overlaps: true, shared: false };
                how = auto.choose(TEXT, conditions);
                let packed = (PIECE as f64 * self.ratio(how)) as usize;
                let took = Duration::from_secs_f64(PIECE as f64 / self.speed(how));
                auto.learn(how, TEXT, PIECE, packed, took);
                total += self.time(how);
                let wire = packed as f64 / self.link_rate;
                if wire >= self.time(how) * 0.99 {
                    link.drained(packed, Duration::from_secs_f64(wire));
                } else {
                    link.flowed(packed, Duration::from_secs_f64(self.time(how)));
                }
            }
            let best = WAYS.into_iter().map(|(how, ..)| self.time(how)).min_by(f64::total_cmp).unwrap();
            (total, best * pieces as f64, how)
        }
    }

    #[test]
    fn the_choice_is_close_to_the_best_for_every_link_and_content() {
        for link_rate in [0.1e6, 1.2e6, 12e6, 60e6, 118e6, 300e6, 1e9, 5e9] {
            for processors in [2.0, 4.0, 8.0] {
                for pace in [0.3, 1.0, 2.0] {
                    let world = World { link_rate, processors, pace };
                    let (over, how) = world.run(2000);
                    assert!(over < 1.3, "{link_rate} × {processors} × {pace}: {over:.2} times the best, with {how:?}");
                }
            }
        }
    }

    #[test]
    fn up_to_a_gigabit_learning_costs_less_than_a_twentieth_of_the_time_of_a_small_image() {
        for (link_rate, pieces) in [(12e6, 128), (118e6, 512), (118e6, 10_000)] {
            for processors in [1.2, 2.0, 4.0] {
                for pace in [0.3, 0.6, 1.0, 2.0] {
                    let (total, best, how) = World { link_rate, processors, pace }.seconds(pieces);
                    assert!(total < best / 0.95, "{link_rate} × {processors} × {pace}: {total} of {best} s, {how:?}");
                }
            }
        }
    }

    #[test]
    fn slow_links_get_strong_compression_and_fast_ones_none() {
        let how = |link_rate| World { link_rate, processors: 2.0, pace: 1.0 }.run(500).1;
        assert!(matches!(how(12e6), Compression::Zstd(_)), "{:?}", how(12e6));
        assert!(matches!(how(118e6), Compression::Zstd(1 | 3)), "{:?}", how(118e6));
        assert_eq!(how(4e9), Compression::Stored);
    }

    #[test]
    fn noise_is_stored_unless_the_processors_are_idle() {
        let conditions = Conditions { link_rate: 118e6, processors: 4.0, overlaps: true, shared: false };
        assert_eq!(Auto::default().choose(NOISE, conditions), Compression::Stored);
        // Idle processors compress it lightly.
        let idle = Conditions { link_rate: 12e6, ..conditions };
        assert_eq!(Auto::default().choose(NOISE, idle), Compression::Zstd(1));
        // Base64 has no repetition, but low entropy per byte.
        let base64 = Sample { lz4: 1.0, entropy: 0.75 };
        assert!(matches!(Auto::default().choose(base64, conditions), Compression::Zstd(_)));
    }

    #[test]
    fn noise_on_a_fast_link_is_stored_however_fast_noise_is_packed() {
        let conditions = Conditions { link_rate: 118e6, processors: 4.0, overlaps: true, shared: false };
        let mut auto = Auto::default();
        for how in [Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3)] {
            (0..100).for_each(|_| auto.learn(how, NOISE, PIECE, PIECE, Duration::from_micros(300)));
        }
        (0..200).for_each(|_| assert_eq!(auto.choose(NOISE, conditions), Compression::Stored));
    }

    #[test]
    fn clients_on_this_machine_get_content_stored_unless_a_tunnel_is_slow() {
        let conditions = |link_rate| Conditions { link_rate, processors: 2.0, overlaps: true, shared: true };
        for sample in [TEXT, NOISE] {
            let mut auto = Auto::default();
            (0..200).for_each(|_| assert_eq!(auto.choose(sample, conditions(400e6)), Compression::Stored));
        }
        assert!(matches!(Auto::default().choose(TEXT, conditions(12e6)), Compression::Zstd(_)));
    }

    #[test]
    fn without_overlap_packing_time_adds_to_sending_time() {
        // With overlap, a piece is packed while another is sent; without, storing is faster.
        let conditions = |overlaps| Conditions { link_rate: 600e6, processors: 2.0, overlaps, shared: false };
        assert!(Auto::default().choose(TEXT, conditions(true)) != Compression::Stored);
        assert_eq!(Auto::default().choose(TEXT, conditions(false)), Compression::Stored);
    }
}
