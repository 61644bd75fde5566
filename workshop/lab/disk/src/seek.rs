//! The time of a seek by its distance.
//!
//! A short seek takes the square root of its distance, since the arm accelerates and brakes; a long one moves at a
//! constant speed. The sum of both, t = track + a √d + b d, has the three times of the data sheet: of one track, of the
//! whole stroke, and the mean over random pairs of tracks, for which the mean of √d is 8/15 and that of d is 1/3.

use crate::model::SeekTimes;

const MEAN_OF_ROOT: f64 = 8.0 / 15.0;
const MEAN: f64 = 1.0 / 3.0;

/// The curve of a drive.
#[derive(Debug, Clone, Copy)]
pub struct SeekCurve {
    track_ns: f64,
    root_ns: f64,
    linear_ns: f64,
}

impl SeekCurve {
    /// Fits the curve to a data sheet.
    pub fn new(times: &SeekTimes) -> Self {
        let track_ns = times.track_ns as f64;
        let (average_ns, full_ns) = (times.average_ns as f64 - track_ns, times.full_ns as f64 - track_ns);
        let root_ns = (average_ns - MEAN * full_ns) / (MEAN_OF_ROOT - MEAN);
        Self { track_ns, root_ns, linear_ns: full_ns - root_ns }
    }

    /// Returns the time of a seek over a share of the stroke; none within a track.
    pub fn ns(&self, distance: f64) -> u64 {
        if distance <= 0.0 {
            return 0;
        }
        (self.track_ns + self.root_ns * distance.sqrt() + self.linear_ns * distance) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ALL, Model};

    fn curves() -> impl Iterator<Item = (Model, SeekTimes)> {
        ALL.into_iter().flat_map(|model| [(model, model.read), (model, model.write)])
    }

    #[test]
    fn a_longer_seek_never_takes_less_time() {
        for (model, times) in curves() {
            let curve = SeekCurve::new(&times);
            let of = |step: u32| curve.ns(f64::from(step) / 1000.0);
            assert!((0..1000).all(|step| of(step) <= of(step + 1)), "{}", model.name);
        }
    }

    #[test]
    fn the_curve_has_the_times_of_the_data_sheet() {
        for (_, times) in curves() {
            let curve = SeekCurve::new(&times);
            assert!(curve.ns(1e-12).abs_diff(times.track_ns) < 20_000);
            assert!(curve.ns(1.0).abs_diff(times.full_ns) < 2);
        }
    }
}
