//! How rates and durations are shown.

/// The rate and the time left, as every operation shows them.
pub fn pace(rate_bytes_s: f64, left_s: Option<u64>) -> String {
    let left = left_s.map_or_else(|| "time left unknown".to_owned(), |seconds| format!("{} left", duration(seconds)));
    format!("{:.0} MiB/s, {left}", rate_bytes_s / f64::from(1 << 20))
}

/// Formats a duration with at most two units.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_shows_its_pace_alike() {
        assert_eq!(pace(f64::from(112 << 20), Some(75)), "112 MiB/s, 1 min 15 s left");
        assert_eq!(pace(0.0, None), "0 MiB/s, time left unknown");
    }
}
