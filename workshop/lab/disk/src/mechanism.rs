//! Arm and platters: where the head is, what it reads ahead, and how long an access takes.

use crate::extent::Extent;
use crate::geometry::Geometry;
use crate::model::Model;
use crate::seek::SeekCurve;

/// Reading on after a read, into the buffer, while the drive has nothing else to do.
#[derive(Debug, Clone, Copy)]
struct Stream {
    from: u64,
    /// When `from` is under the head; it may lie ahead.
    began_ns: u64,
    /// Where the segment of the buffer is full.
    limit: u64,
}

/// The mechanism of a drive.
#[derive(Debug)]
pub struct Mechanism {
    geometry: Geometry,
    read: SeekCurve,
    write: SeekCurve,
    capacity_bytes: u64,
    at: u64,
    stream: Option<Stream>,
}

impl Mechanism {
    pub fn new(model: &Model) -> Self {
        let (read, write) = (SeekCurve::new(&model.read), SeekCurve::new(&model.write));
        let geometry = Geometry::new(model);
        Self { geometry, read, write, capacity_bytes: model.capacity_bytes, at: 0, stream: None }
    }

    /// Returns the byte under the head, or the one after the last that was read or written.
    pub fn at(&self, now_ns: u64) -> u64 {
        self.stream.map_or(self.at, |stream| self.reached(stream, now_ns))
    }

    /// Returns whether it reads ahead, or has stopped where the segment was full.
    pub fn reads_on(&self) -> bool {
        self.stream.is_some()
    }

    fn reached(&self, stream: Stream, now_ns: u64) -> u64 {
        self.geometry.reached(stream.from, now_ns.saturating_sub(stream.began_ns), stream.limit)
    }

    /// Returns when an access would have ended that begins now: seek, rotation and transfer.
    pub fn access_ns(&self, extent: Extent, now_ns: u64, is_write: bool) -> u64 {
        if !is_write && let Some(passed_ns) = self.passed_ns(extent, now_ns) {
            return passed_ns;
        }
        let distance = self.geometry.distance(self.at(now_ns), extent.start);
        let there_ns = now_ns + if is_write { self.write.ns(distance) } else { self.read.ns(distance) };
        there_ns + self.geometry.wait_ns(extent.start, there_ns) + self.geometry.transfer_ns(extent)
    }

    /// Returns the bytes before an extent that pass under the head while it waits for the extent, after a seek that begins
    /// now.
    pub fn bytes_on_arrival(&self, extent: Extent, now_ns: u64) -> u64 {
        if self.passed_ns(extent, now_ns).is_some() {
            return 0;
        }
        let there_ns = now_ns + self.read.ns(self.geometry.distance(self.at(now_ns), extent.start));
        let wait_ns = self.geometry.wait_ns(extent.start, there_ns);
        self.geometry.reached(extent.start, wait_ns, u64::MAX) - extent.start
    }

    /// Returns when the head, reading on, will have passed an extent that is just ahead of it.
    fn passed_ns(&self, extent: Extent, now_ns: u64) -> Option<u64> {
        let stream = self.stream?;
        let reached = self.reached(stream, now_ns);
        let is_ahead = extent.start >= reached && extent.start - reached < self.geometry.track_bytes(reached);
        let runs = reached < stream.limit;
        let from = Extent { start: reached, end: extent.end };
        (runs && is_ahead).then(|| now_ns.max(stream.began_ns) + self.geometry.transfer_ns(from))
    }

    /// Ends reading ahead; returns how far it came.
    pub fn stop(&mut self, now_ns: u64) -> Option<u64> {
        let stream = self.stream.take()?;
        self.at = self.reached(stream, now_ns);
        Some(self.at)
    }

    /// Records that an access ended after a byte.
    pub fn moved_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Reads on from where the head is, up to a limit.
    pub fn read_on(&mut self, now_ns: u64, limit: u64) {
        self.stream = Some(Stream { from: self.at, began_ns: now_ns, limit: limit.min(self.capacity_bytes) });
    }

    /// Moves the limit of reading ahead, if it is going on. Where it had stopped, it waits for the platter.
    pub fn read_on_to(&mut self, now_ns: u64, limit: u64) {
        let Some(stream) = self.stream else { return };
        let (reached, limit) = (self.reached(stream, now_ns), limit.min(self.capacity_bytes).max(stream.limit));
        self.stream = Some(if reached < stream.limit {
            Stream { limit, ..stream }
        } else {
            Stream { from: reached, began_ns: now_ns + self.geometry.wait_ns(reached, now_ns), limit }
        });
    }
}
