//! The best that was seen lately, of what is measured of a link.

/// Samples after which old ones are forgotten.
const SAMPLES: u32 = 64;

/// The best of between the last [`SAMPLES`] and twice as many samples.
#[derive(Default)]
pub(crate) struct Lately<T> {
    now: Option<T>,
    before: Option<T>,
    samples: u32,
}

impl<T: Copy> Lately<T> {
    /// Notes a sample; only one that `counts` makes others older.
    pub(crate) fn note(&mut self, sample: T, counts: bool, better: impl Fn(T, T) -> T) {
        if counts && self.samples == SAMPLES {
            (self.before, self.now, self.samples) = (self.now, None, 0);
        }
        self.samples += u32::from(counts);
        self.now = Some(self.now.map_or(sample, |now| better(now, sample)));
    }

    /// Whether there has been a sample that counts.
    pub(crate) fn is_settled(&self) -> bool {
        self.samples > 0 || self.before.is_some()
    }

    /// The best; `None` before the first sample.
    pub(crate) fn best(&self, better: impl Fn(T, T) -> T) -> Option<T> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(better(now, before)),
            (now, before) => now.or(before),
        }
    }
}
