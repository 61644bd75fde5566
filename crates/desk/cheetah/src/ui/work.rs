//! What an operation has to do, which its progress counts.

use cheetah_device::Size;

use super::pace::{pace, time_left};

/// The lowest rate from which the time left is computed, in units a second.
const RATE_MIN: f64 = 0.001;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    /// Things with this name, in the plural.
    Things(&'static str),
}

/// What an operation has to do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// 0 if unknown.
    pub(super) total: u64,
    unit: Unit,
    /// What an earlier run has done: no time of this one went into it.
    pub(super) before: u64,
}

impl Work {
    /// This number of bytes; 0 if it is unknown.
    pub const fn bytes(total: u64) -> Self {
        Self { total, unit: Unit::Bytes, before: 0 }
    }

    /// This number of things, whose name is in the plural, such as "files".
    pub const fn things(total: u64, name: &'static str) -> Self {
        Self { total, unit: Unit::Things(name), before: 0 }
    }

    /// The same, of which this was done before.
    #[must_use]
    pub const fn after(self, before: u64) -> Self {
        Self { before, ..self }
    }

    /// How much is done, of all.
    pub(super) fn so_far(self, done: u64) -> String {
        match self.unit {
            Unit::Bytes => format!("{} of {}", Size(done), Size(self.total)),
            Unit::Things(name) => format!("{done} of {} {name}", self.total),
        }
    }

    /// The rate of bytes, and the time left, at this rate in a second.
    pub(super) fn pace(self, done: u64, rate: f64) -> String {
        let left = self.total.saturating_sub(done) as f64;
        let left_s = |rate_min: f64| (rate >= rate_min).then(|| (left / rate) as u64);
        match self.unit {
            Unit::Bytes => pace(rate, left_s(1.0)),
            Unit::Things(_) => time_left(left_s(RATE_MIN)),
        }
    }
}

impl From<u64> for Work {
    fn from(total_bytes: u64) -> Self {
        Self::bytes(total_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_rate_and_things_have_their_name() {
        let bytes = Work::bytes(4 << 30);
        assert_eq!(bytes.so_far(1 << 30), "1GiB of 4GiB");
        assert_eq!(bytes.pace(1 << 30, f64::from(1 << 20)), "1 MiB/s, 51 min 12 s left");
        let files = Work::things(40, "files");
        assert_eq!(files.so_far(12), "12 of 40 files");
        assert_eq!(files.pace(12, 0.5), "56 s left");
        assert_eq!(files.pace(0, 0.0), "time left unknown");
    }
}
