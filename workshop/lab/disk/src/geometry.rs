//! Where bytes are on the platters.
//!
//! Simplified: the drive is one spiral in zones of equal width, whose rate falls in equal steps from the outer to the
//! inner edge. There are no heads and no skew: their cost is part of the sustained rate. Within a zone, reading on
//! loses no revolution.

use crate::extent::Extent;
use crate::model::Model;

const ZONES: u32 = 16;
const NS_PER_S: f64 = 1e9;
/// The share of a revolution by which the platter may be early for a byte without missing it, far more than the
/// rounding to nanoseconds.
const EARLY_TURNS_MAX: f64 = 1e-4;

#[derive(Debug, Clone, Copy)]
struct Zone {
    extent: Extent,
    bytes_per_s: f64,
    /// The number of tracks before it.
    tracks_before: f64,
}

/// The layout of a drive.
#[derive(Debug)]
pub struct Geometry {
    zones: Vec<Zone>,
    revolution_ns: u64,
    tracks: f64,
}

impl Geometry {
    /// Lays out a drive.
    pub fn new(model: &Model) -> Self {
        let (outer, inner) = (model.outer_bytes_per_s, model.inner_bytes_per_s);
        let rates = (0..ZONES).map(|zone| outer + (inner - outer) * f64::from(zone) / f64::from(ZONES - 1));
        let sum: f64 = rates.clone().sum();
        let turn_s = model.revolution_ns as f64 / NS_PER_S;
        let (mut start, mut tracks) = (0, 0.0);
        let mut zones = Vec::new();
        for (number, bytes_per_s) in (1..).zip(rates) {
            let share = (model.capacity_bytes as f64 * bytes_per_s / sum) as u64;
            let end = if number == ZONES { model.capacity_bytes } else { start + share };
            zones.push(Zone { extent: Extent { start, end }, bytes_per_s, tracks_before: tracks });
            tracks += (end - start) as f64 / (bytes_per_s * turn_s);
            start = end;
        }
        Self { zones, revolution_ns: model.revolution_ns, tracks }
    }

    fn zone(&self, offset: u64) -> &Zone {
        let after = self.zones.partition_point(|zone| zone.extent.start <= offset);
        &self.zones[after.max(1) - 1]
    }

    fn track_bytes_of(&self, zone: &Zone) -> f64 {
        zone.bytes_per_s * self.revolution_ns as f64 / NS_PER_S
    }

    /// Returns the bytes of a track there.
    pub fn track_bytes(&self, offset: u64) -> u64 {
        self.track_bytes_of(self.zone(offset)) as u64
    }

    /// Returns the place of a byte in tracks from the outer edge.
    fn track(&self, offset: u64) -> f64 {
        let zone = self.zone(offset);
        zone.tracks_before + (offset - zone.extent.start) as f64 / self.track_bytes_of(zone)
    }

    /// Returns the distance of two bytes as a share of the whole stroke; 0 within a track.
    pub fn distance(&self, from: u64, to: u64) -> f64 {
        let tracks = (self.track(from) - self.track(to)).abs();
        if tracks < 1.0 { 0.0 } else { tracks / self.tracks }
    }

    /// Returns how long the platter turns until a byte is under the head, from `at_ns` on.
    pub fn wait_ns(&self, offset: u64, at_ns: u64) -> u64 {
        let zone = self.zone(offset);
        let wanted = ((offset - zone.extent.start) as f64 / self.track_bytes_of(zone)).fract();
        let now = (at_ns % self.revolution_ns) as f64 / self.revolution_ns as f64;
        let turns = (wanted - now).rem_euclid(1.0);
        if turns > 1.0 - EARLY_TURNS_MAX { 0 } else { (turns * self.revolution_ns as f64) as u64 }
    }

    /// Returns how long an extent passes under the head, at least a nanosecond.
    pub fn transfer_ns(&self, extent: Extent) -> u64 {
        let (mut ns, mut from) = (0.0, extent.start);
        while from < extent.end {
            let zone = self.zone(from);
            let to = if zone.extent.end > from { extent.end.min(zone.extent.end) } else { extent.end };
            ns += (to - from) as f64 / zone.bytes_per_s * NS_PER_S;
            from = to;
        }
        (ns.ceil() as u64).max(1)
    }

    /// Returns the byte under the head `ns` after it was at `from`, at most `limit`.
    pub fn reached(&self, from: u64, ns: u64, limit: u64) -> u64 {
        let (mut at, mut left_s) = (from, ns as f64 / NS_PER_S);
        while at < limit {
            let zone = self.zone(at);
            let end = if zone.extent.end > at { limit.min(zone.extent.end) } else { limit };
            let needed_s = (end - at) as f64 / zone.bytes_per_s;
            if needed_s > left_s {
                return at + (left_s * zone.bytes_per_s) as u64;
            }
            left_s -= needed_s;
            at = end;
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DESKTOP, IDE};

    #[test]
    fn reading_on_within_a_zone_waits_for_no_revolution() {
        let geometry = Geometry::new(&DESKTOP);
        let (mut at, mut now_ns) = (0, 5_000_000);
        now_ns += geometry.wait_ns(at, now_ns);
        for _ in 0..1000 {
            assert_eq!(geometry.wait_ns(at, now_ns), 0, "at {at}");
            now_ns += geometry.transfer_ns(Extent { start: at, end: at + 100_000 });
            at += 100_000;
        }
    }

    #[test]
    fn a_byte_that_has_just_passed_comes_back_after_a_revolution() {
        let geometry = Geometry::new(&IDE);
        let at_ns = 7_000_000 + geometry.wait_ns(0, 7_000_000) + 10_000;
        let wait_ns = geometry.wait_ns(0, at_ns);
        assert!((IDE.revolution_ns - 11_000..IDE.revolution_ns).contains(&wait_ns), "{wait_ns}");
    }

    #[test]
    fn the_edges_have_the_rates_of_the_data_sheet() {
        let geometry = Geometry::new(&DESKTOP);
        let rate = |start| 1e15 / geometry.transfer_ns(Extent { start, end: start + 1_000_000 }) as f64;
        assert!((rate(0) / DESKTOP.outer_bytes_per_s - 1.0).abs() < 1e-3);
        assert!((rate(DESKTOP.capacity_bytes - 1_000_000) / DESKTOP.inner_bytes_per_s - 1.0).abs() < 1e-3);
    }

    #[test]
    fn the_stroke_from_edge_to_edge_is_whole() {
        let geometry = Geometry::new(&DESKTOP);
        assert!((geometry.distance(0, DESKTOP.capacity_bytes - 1) - 1.0).abs() < 1e-4);
        assert_eq!(geometry.distance(0, 4096), 0.0);
    }

    #[test]
    fn the_head_reaches_in_a_time_what_takes_that_time() {
        let geometry = Geometry::new(&DESKTOP);
        // Across the end of the first zone.
        let from = geometry.zones[0].extent.end - 500_000;
        let ns = geometry.transfer_ns(Extent { start: from, end: from + 1_000_000 });
        assert!(geometry.reached(from, ns, u64::MAX).abs_diff(from + 1_000_000) <= 2);
        assert_eq!(geometry.reached(from, ns, from + 7), from + 7);
    }
}
