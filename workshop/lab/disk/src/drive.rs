//! A drive in virtual time: commands go in, and it says which have ended by when. It neither waits nor has data.
//!
//! A read that has to wait for the platter takes what passes meanwhile into the buffer, so that reading backward does not
//! cost a revolution each time.
//!
//! Commands become visible after the command overhead, and wait for the mechanism in the order of their arrival. Reads that
//! the buffer has end at once, at the speed of the interface. Writes end when they are in the write cache, which waits for
//! room, and go to the platters in the background, in the order that takes the head least time. A flush ends when the
//! write cache is empty; later writes wait for it. Among the first reads in the queue, as many as the drive may reorder, the
//! one that ends first is next, unless the oldest has waited for too long.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::cache::{ReadCache, WriteCache};
use crate::extent::Extent;
use crate::mechanism::Mechanism;
use crate::model::Model;

/// The largest piece written in one movement: reads wait for its end.
const PIECE_BYTES_MAX: u64 = 512 << 10;
/// The number of cached writes that the drive considers for the next movement.
const PIECES_CONSIDERED: usize = 64;
/// After waiting for this long, a read is next.
const PATIENCE_NS: u64 = 1_000_000_000;
const NS_PER_S: f64 = 1e9;

/// What a command asks for. Extents are not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read(Extent),
    Write(Extent),
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: u64,
    operation: Operation,
    /// When its overhead is over.
    ready_ns: u64,
}

/// What the mechanism does.
#[derive(Debug, Clone, Copy)]
struct Work {
    ends_ns: u64,
    extent: Extent,
    /// The read; none writes what is cached.
    read: Option<u64>,
}

enum Next {
    Read(Waiting),
    Write(Extent),
}

/// A drive.
#[derive(Debug)]
pub struct Drive {
    model: Model,
    mechanism: Mechanism,
    read_cache: ReadCache,
    write_cache: WriteCache,
    waiting: VecDeque<Waiting>,
    working: Option<Work>,
    due: BinaryHeap<Reverse<(u64, u64)>>,
    ended: Vec<u64>,
    interface_free_ns: u64,
    /// Reads and cached writes take turns when both are urgent.
    wrote_last: bool,
    now_ns: u64,
}

impl Drive {
    /// Returns an idle drive.
    pub fn new(model: Model) -> Self {
        Self {
            mechanism: Mechanism::new(&model),
            read_cache: ReadCache::new(&model),
            write_cache: WriteCache::new(&model),
            model,
            waiting: VecDeque::new(),
            working: None,
            due: BinaryHeap::new(),
            ended: Vec::new(),
            interface_free_ns: 0,
            wrote_last: false,
            now_ns: 0,
        }
    }

    /// Takes a command that arrived at `arrived_ns`. If that is past already, because the caller was late, its overhead
    /// may be over.
    pub fn submit(&mut self, arrived_ns: u64, id: u64, operation: Operation) {
        if self.model.instant {
            return self.ended.push(id);
        }
        self.advance(arrived_ns);
        self.waiting.push_back(Waiting { id, operation, ready_ns: arrived_ns + self.model.command_ns });
        self.step(self.now_ns);
    }

    /// Moves time on.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(at_ns) = self.next_ns().filter(|at_ns| *at_ns <= now_ns) {
            self.step(at_ns);
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Removes and returns the commands that have ended, in the order of their ends.
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }

    /// Returns when something happens next.
    pub fn next_ns(&self) -> Option<u64> {
        let due_ns = self.due.peek().map(|Reverse((at_ns, _))| *at_ns);
        let ready_ns = self.waiting.iter().map(|one| one.ready_ns).filter(|at_ns| *at_ns > self.now_ns).min();
        let works_ns = self.working.map(|work| work.ends_ns);
        due_ns.into_iter().chain(ready_ns).chain(works_ns).min()
    }

    fn step(&mut self, now_ns: u64) {
        // Time never goes back, or a command would be neither ready nor awaited.
        let now_ns = self.now_ns.max(now_ns);
        self.now_ns = now_ns;
        while let Some(Reverse((_, id))) = self.due.peek().filter(|Reverse((at_ns, _))| *at_ns <= now_ns).copied() {
            self.due.pop();
            self.ended.push(id);
        }
        if let Some(work) = self.working.filter(|work| work.ends_ns <= now_ns) {
            self.working = None;
            self.end_work(work);
        }
        self.serve_without_mechanism(now_ns);
        if self.working.is_none() {
            self.begin_work(now_ns);
        }
    }

    fn end_work(&mut self, work: Work) {
        self.mechanism.moved_to(work.extent.end);
        match work.read {
            Some(id) => {
                self.read_cache.read_to(work.extent.end);
                self.mechanism.read_on(work.ends_ns, work.extent.end + self.model.segment_bytes);
                self.due.push(Reverse((work.ends_ns, id)));
            }
            None => self.write_cache.written(work.extent.len()),
        }
    }

    /// Ends what needs no movement: reads that the buffer has, writes that find room, flushes of an empty cache.
    fn serve_without_mechanism(&mut self, now_ns: u64) {
        self.read_cache_up_to(now_ns);
        let mut barrier = false;
        for one in std::mem::take(&mut self.waiting) {
            let is_ready = one.ready_ns <= now_ns;
            let is_served = is_ready
                && match one.operation {
                    Operation::Read(extent) => self.serve_read(one.id, extent, now_ns),
                    Operation::Write(extent) => !barrier && self.serve_write(one.id, extent, now_ns),
                    Operation::Flush => !barrier && self.serve_flush(one.id, now_ns),
                };
            if !is_served {
                barrier |= !matches!(one.operation, Operation::Read(_));
                self.waiting.push_back(one);
            }
        }
    }

    fn read_cache_up_to(&mut self, now_ns: u64) {
        if self.working.is_none() {
            self.read_cache.read_to(self.mechanism_reads_up_to(now_ns));
        }
    }

    /// Returns how far reading ahead has come; 0 without one.
    fn mechanism_reads_up_to(&self, now_ns: u64) -> u64 {
        if self.mechanism.reads_on() { self.mechanism.at(now_ns) } else { 0 }
    }

    fn serve_read(&mut self, id: u64, extent: Extent, now_ns: u64) -> bool {
        let is_there = self.read_cache.covers(extent) || self.write_cache.covers(extent);
        if is_there {
            self.transferred(id, extent, now_ns);
            self.keep_ahead_of(extent, now_ns);
        }
        is_there
    }

    /// Goes on reading ahead, if half of the segment is used up.
    fn keep_ahead_of(&mut self, extent: Extent, now_ns: u64) {
        let Some(segment) = self.read_cache.current().filter(|segment| segment.covers(extent)) else { return };
        if self.working.is_none() && segment.end - extent.end < self.model.segment_bytes / 2 {
            self.mechanism.read_on_to(now_ns, extent.end + self.model.segment_bytes);
        }
    }

    fn serve_write(&mut self, id: u64, extent: Extent, now_ns: u64) -> bool {
        let has_room = self.write_cache.has_room(extent.len());
        if has_room {
            self.write_cache.insert(extent);
            self.transferred(id, extent, now_ns);
        }
        has_room
    }

    fn serve_flush(&mut self, id: u64, now_ns: u64) -> bool {
        let is_clean = self.write_cache.is_clean();
        if is_clean {
            self.due.push(Reverse((now_ns, id)));
        }
        is_clean
    }

    /// Ends a command when its bytes have passed the interface.
    fn transferred(&mut self, id: u64, extent: Extent, now_ns: u64) {
        let took_ns = (extent.len() as f64 / self.model.interface_bytes_per_s * NS_PER_S) as u64;
        self.interface_free_ns = self.interface_free_ns.max(now_ns) + took_ns;
        self.due.push(Reverse((self.interface_free_ns, id)));
    }

    fn begin_work(&mut self, now_ns: u64) {
        match self.next(now_ns) {
            None => {}
            Some(Next::Read(one)) => {
                let Operation::Read(extent) = one.operation else { return };
                self.waiting.retain(|other| other.id != one.id);
                self.begin_read(one.id, extent, now_ns);
            }
            Some(Next::Write(piece)) => {
                let extent = self.write_cache.take(piece, PIECE_BYTES_MAX);
                let ends_ns = self.mechanism.access_ns(extent, now_ns, true);
                self.stop_reading_ahead(now_ns);
                self.wrote_last = true;
                self.working = Some(Work { ends_ns, extent, read: None });
            }
        }
    }

    fn begin_read(&mut self, id: u64, extent: Extent, now_ns: u64) {
        let missing = self.missing(extent);
        let ends_ns = self.mechanism.access_ns(missing, now_ns, false);
        let before_bytes = self.mechanism.bytes_on_arrival(missing, now_ns);
        self.stop_reading_ahead(now_ns);
        let reads_on = self.read_cache.current().is_some_and(|segment| segment.end == missing.start);
        if !reads_on {
            // Waiting for the platter, the drive reads what passes.
            self.read_cache.begin(missing.start.saturating_sub(before_bytes));
        }
        self.wrote_last = false;
        self.working = Some(Work { ends_ns, extent: missing, read: Some(id) });
    }

    /// Returns what the segment in use lacks of an extent; it was read up to now.
    fn missing(&self, extent: Extent) -> Extent {
        match self.read_cache.current() {
            Some(segment) if segment.start <= extent.start && extent.start < segment.end => {
                Extent { start: segment.end.min(extent.end - 1), ..extent }
            }
            _ => extent,
        }
    }

    fn stop_reading_ahead(&mut self, now_ns: u64) {
        if let Some(reached) = self.mechanism.stop(now_ns) {
            self.read_cache.read_to(reached);
        }
    }

    /// Returns what the mechanism does next.
    fn next(&self, now_ns: u64) -> Option<Next> {
        let read = self.next_read(now_ns);
        let wants_write =
            self.write_cache.has_dirty() && (read.is_none() || (self.is_pressed(now_ns) && !self.wrote_last));
        let piece = wants_write.then(|| self.next_piece(now_ns)).flatten();
        piece.map(Next::Write).or(read.map(Next::Read))
    }

    fn next_read(&self, now_ns: u64) -> Option<Waiting> {
        let is_read = |one: &&Waiting| matches!(one.operation, Operation::Read(_)) && one.ready_ns <= now_ns;
        let mut reads = self.waiting.iter().filter(is_read).take(self.model.depth.max(1)).copied();
        let oldest = reads.clone().next().filter(|one| now_ns - one.ready_ns > PATIENCE_NS);
        oldest.or_else(|| reads.by_ref().min_by_key(|one| self.read_ends_ns(one.operation, now_ns)))
    }

    fn read_ends_ns(&self, operation: Operation, now_ns: u64) -> u64 {
        match operation {
            Operation::Read(extent) => self.mechanism.access_ns(self.missing(extent), now_ns, false),
            Operation::Write(_) | Operation::Flush => u64::MAX,
        }
    }

    /// Returns whether a command waits for the write cache.
    fn is_pressed(&self, now_ns: u64) -> bool {
        let needs_writing = |one: &Waiting| !matches!(one.operation, Operation::Read(_)) && one.ready_ns <= now_ns;
        self.waiting.iter().any(needs_writing)
    }

    fn next_piece(&self, now_ns: u64) -> Option<Extent> {
        let pieces = self.write_cache.pieces(self.mechanism.at(now_ns), PIECES_CONSIDERED);
        pieces.min_by_key(|piece| {
            // The place matters, not the size.
            let first = Extent { end: piece.start + 1, ..*piece };
            self.mechanism.access_ns(first, now_ns, true)
        })
    }
}
