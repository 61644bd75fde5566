//! Which way of packing is fastest, piece by piece. No I/O, no clock.
//!
//! A piece is packed by one of the processors and then sent; with many pieces under way both go on at once, so all of
//! it takes as long as the slower of the two. For each way of packing that is known from what it did so far: how fast
//! it is, and how far it packs content that a [`Sample`] says so much of. The way with the least time wins, if it
//! gains enough over not packing at all.

use std::time::Duration;

use super::sample::Sample;
use crate::proto::packed::How;

/// What there is to choose from, with the speed of one processor in bytes a second, and what becomes of a sample's
/// size in the whole, until something better is known.
const WAYS: [(How, f64, f64); 5] = [
    (How::Stored, 2e9, 1.0),
    (How::Lz4, 500e6, 0.9),
    (How::Zstd(1), 250e6, 0.75),
    (How::Zstd(3), 130e6, 0.7),
    // Beyond this level, what is gained in a piece of 1 MiB is not worth the memory its tables take.
    (How::Zstd(6), 50e6, 0.65),
];

/// What is known is an average over so many pieces, the last ones counting most.
const MEMORY_PIECES: u32 = 10;
/// One piece of so many is packed the way next to the best, lest better is never known of it.
const TRIAL_EVERY: u32 = 64;
/// Packing must take less than this of the time that not packing takes.
const GAIN_MIN: f64 = 0.85;

/// What the choice depends on besides the content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Bytes a second that the link takes.
    pub link_rate: f64,
    /// Processors that pack at the same time: 1 where there is one piece, which then is packed *and* sent before the
    /// next.
    pub processors: f64,
}

/// What is known of each way.
#[derive(Debug, Clone)]
pub struct Auto {
    known: [Known; WAYS.len()],
    /// Pieces chosen for since the last trial.
    since_trial: u32,
    /// Whether the next trial is of the way that packs less.
    try_lighter: bool,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    how: How,
    /// Bytes a second.
    speed: f64,
    /// Size in the whole to size of the sample.
    scale: f64,
    /// Pieces packed this way, as far as it matters.
    pieces: u32,
}

impl Known {
    /// What part of the content is left.
    fn ratio(&self, sample: Sample) -> f64 {
        let of_sample = match self.how {
            How::Stored => 1.0,
            How::Lz4 => sample.lz4,
            How::Zstd(_) => sample.lz4.min(sample.entropy),
        };
        (of_sample * self.scale).min(1.0)
    }

    /// Seconds for a byte of content.
    fn time(&self, sample: Sample, conditions: Conditions) -> f64 {
        let wire = self.ratio(sample) / conditions.link_rate;
        let work = 1.0 / (self.speed * conditions.processors.max(0.01));
        if conditions.processors > 1.0 { wire.max(work) } else { wire + work }
    }
}

impl Default for Auto {
    fn default() -> Self {
        let known = WAYS.map(|(how, speed, scale)| Known { how, speed, scale, pieces: 0 });
        Self { known, since_trial: 0, try_lighter: false }
    }
}

impl Auto {
    /// The way to pack content of which this is a sample.
    pub fn choose(&mut self, sample: Sample, conditions: Conditions) -> How {
        if sample.is_hopeless() {
            return How::Stored;
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
        let time = |index: &usize| self.known[*index].time(sample, conditions);
        let best = (1..WAYS.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
        best.filter(|best| time(best) < GAIN_MIN * time(&0)).unwrap_or(0)
    }

    /// One processor packed `len` bytes this way into `packed_len`, in this time.
    pub fn learn(&mut self, how: How, sample: Sample, len: usize, packed_len: usize, took: Duration) {
        let (len, packed_len) = (len as f64, packed_len as f64);
        for known in self.known.iter_mut().filter(|known| known.how == how) {
            known.pieces = (known.pieces + 1).min(MEMORY_PIECES);
            let learning = 1.0 / f64::from(known.pieces);
            let seen = len / took.as_secs_f64().max(1e-6);
            // Times are averaged, not speeds: a piece that took ten times as long counts as ten.
            known.speed = 1.0 / ((1.0 - learning) / known.speed + learning / seen);
            let of_sample = known.ratio(sample) / known.scale;
            if how != How::Stored && of_sample > 0.0 {
                let seen = (packed_len / len / of_sample).clamp(0.1, 1.5);
                known.scale += (seen - known.scale) * learning;
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
        /// How fast this machine is, beside the usual.
        pace: f64,
    }

    impl World {
        fn speed(&self, how: How) -> f64 {
            let speed = match how {
                How::Stored => 3e9,
                How::Lz4 => 600e6,
                How::Zstd(1) => 300e6,
                How::Zstd(3) => 180e6,
                How::Zstd(_) => 60e6,
            };
            speed * self.pace
        }

        fn ratio(&self, how: How) -> f64 {
            match how {
                How::Stored => 1.0,
                How::Lz4 => 0.5,
                How::Zstd(1) => 0.36,
                How::Zstd(3) => 0.34,
                How::Zstd(_) => 0.32,
            }
        }

        /// Seconds a piece takes if all are packed this way.
        fn time(&self, how: How) -> f64 {
            let wire = self.ratio(how) / self.link_rate;
            PIECE as f64 * wire.max(1.0 / (self.speed(how) * self.processors))
        }

        /// Lets a policy that knows nothing pack so many pieces of text: the time it takes, once it had a fifth of a
        /// second to learn, over the best there is.
        fn run(&self, pieces: usize) -> (f64, How) {
            let (mut auto, mut link) = (Auto::default(), LinkRate::default());
            let (mut total, mut how) = (0.0, How::Stored);
            for _ in 0..pieces {
                let conditions = Conditions { link_rate: link.rate(), processors: self.processors };
                how = auto.choose(TEXT, conditions);
                let packed = (PIECE as f64 * self.ratio(how)) as usize;
                let took = Duration::from_secs_f64(PIECE as f64 / self.speed(how));
                auto.learn(how, TEXT, PIECE, packed, took);
                total += self.time(how);
                let wire = packed as f64 / self.link_rate;
                if wire >= self.time(how) * 0.99 {
                    link.drained(packed, Duration::from_secs_f64(wire));
                } else {
                    link.flowed(packed);
                }
            }
            let best = WAYS.into_iter().map(|(how, ..)| self.time(how)).min_by(f64::total_cmp).unwrap();
            ((total - 0.2) / (best * pieces as f64), how)
        }
    }

    #[test]
    fn it_comes_close_to_the_best_way_everywhere() {
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
    fn slow_links_get_all_it_can_do_and_fast_ones_are_left_alone() {
        let how = |link_rate| World { link_rate, processors: 2.0, pace: 1.0 }.run(500).1;
        assert!(matches!(how(12e6), How::Zstd(_)), "{:?}", how(12e6));
        assert!(matches!(how(118e6), How::Zstd(1 | 3)), "{:?}", how(118e6));
        assert_eq!(how(4e9), How::Stored);
    }

    #[test]
    fn what_does_not_shrink_is_given_up_at_once() {
        let conditions = Conditions { link_rate: 1e6, processors: 4.0 };
        assert_eq!(Auto::default().choose(NOISE, conditions), How::Stored);
        // Nothing repeats in Base64, but single bytes of it tell little.
        let base64 = Sample { lz4: 1.0, entropy: 0.75 };
        assert!(matches!(Auto::default().choose(base64, conditions), How::Zstd(_)));
    }

    #[test]
    fn a_single_piece_is_both_packed_and_sent() {
        // As fast as two processors could pack, one piece after the other is sooner there as it is.
        let conditions = Conditions { link_rate: 1e9, processors: 1.0 };
        assert_eq!(Auto::default().choose(TEXT, conditions), How::Stored);
    }
}
