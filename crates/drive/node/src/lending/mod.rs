//! How much a node lends of a machine that others use too, and which exports have to go when they need the memory. No I/O.
//!
//! The node looks at the machine ten times a second ([`watch`](crate::watch)). Free memory beyond what the machine keeps
//! is lent. When the machine uses more:
//!
//! 1. the node lends less, at once. Memory that holds nothing is not taken from the machine anyway;
//! 2. if exports were promised more than the node may lend now, enough of them are marked: their writers move them to
//!    other nodes;
//! 3. an export is dropped if the machine has little memory left, and the time for moving is over, or at once if it has
//!    almost none.
//!
//! The node lends more again only after there has been room for some seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long there must be room before the node lends more.
const RISE: Duration = Duration::from_secs(5);
/// How long the machine keeps more free memory after processes had to wait for memory.
const CALM: Duration = Duration::from_secs(10);
/// The time in which writers move an export elsewhere.
pub const MOVE_TIME: Duration = Duration::from_secs(120);

/// The rules of lending.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Bytes that the machine keeps available for others.
    pub keep_free_bytes: u64,
    /// The most bytes to lend.
    pub lent_bytes_max: u64,
}

/// The machine's memory at a look.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Bytes available to any process without swapping.
    pub available_bytes: u64,
    /// Whether processes wait for memory.
    pub is_pressed: bool,
}

/// The node's memory at a look.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Bytes that hold content.
    pub used_bytes: u64,
    /// Bytes promised to exports.
    pub promised_bytes: u64,
    /// The exports.
    pub parts: Vec<HeldPart>,
}

/// An export at a look.
#[derive(Debug, Clone)]
pub struct HeldPart {
    /// Its name.
    pub name: String,
    /// Bytes promised to it.
    pub promised_bytes: u64,
    /// Bytes of its content.
    pub used_bytes: u64,
    /// Whether a process has its drive open for writing, and so may move it.
    pub has_writer: bool,
}

/// What to do after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Bytes to lend.
    pub lent_bytes: u64,
    /// The exports to be moved elsewhere, and until when.
    pub leaving: BTreeMap<String, Instant>,
    /// An export to drop now.
    pub drop: Option<String>,
}

/// The state between looks.
#[derive(Debug)]
pub struct Lending {
    rules: Rules,
    lent_bytes: u64,
    /// The least room found since then, while there is more than is lent.
    room: Option<(Instant, u64)>,
    pressed: Option<Instant>,
    leaving: BTreeMap<String, Instant>,
}

impl Lending {
    /// Lends what is idle at the first look.
    pub fn new(rules: Rules, now: Instant, seen: Seen) -> Self {
        let mut lending = Self { rules, lent_bytes: 0, room: None, pressed: None, leaving: BTreeMap::new() };
        lending.lent_bytes = lending.room(now, seen, 0);
        lending
    }

    /// Bytes lent now.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// Bytes that the node may use now.
    fn room(&mut self, now: Instant, seen: Seen, used_bytes: u64) -> u64 {
        if seen.is_pressed {
            self.pressed = Some(now);
        }
        let is_calm = self.pressed.is_none_or(|at| now.saturating_duration_since(at) >= CALM);
        let kept = self.rules.keep_free_bytes;
        let kept = if is_calm { kept } else { kept + kept / 2 };
        let room = (seen.available_bytes + used_bytes).saturating_sub(kept).min(self.rules.lent_bytes_max);
        // Whole MiB, so that a figure changes only when something happens.
        room >> 20 << 20
    }

    /// Decides after a look.
    pub fn look(&mut self, now: Instant, seen: Seen, held: &Held) -> Decision {
        let room = self.room(now, seen, held.used_bytes);
        self.follow(now, room);
        self.choose(now, held);
        let drop = self.last_resort(now, seen, held);
        Decision { lent_bytes: self.lent_bytes, leaving: self.leaving.clone(), drop }
    }

    /// Lends less at once, and more only after there has been room for a while.
    fn follow(&mut self, now: Instant, room: u64) {
        if room <= self.lent_bytes {
            (self.lent_bytes, self.room) = (room, None);
            return;
        }
        let (since, least) = self.room.map_or((now, room), |(since, least)| (since, least.min(room)));
        self.room = Some((since, least));
        if now.saturating_duration_since(since) >= RISE {
            (self.lent_bytes, self.room) = (least, None);
        }
    }

    /// Marks enough exports that the rest fits in what is lent. Those marked before, and those that a process can move, go
    /// first; of these, the smallest that is enough, or the largest.
    fn choose(&mut self, now: Instant, held: &Held) {
        let mut short = held.promised_bytes.saturating_sub(self.lent_bytes);
        let mut leaving = BTreeMap::new();
        let mut left: Vec<&HeldPart> = held.parts.iter().filter(|part| part.promised_bytes > 0).collect();
        while short > 0 && !left.is_empty() {
            let rank = |part: &HeldPart| {
                let is_enough = part.promised_bytes >= short;
                let size = part.promised_bytes;
                (
                    !self.leaving.contains_key(&part.name),
                    !part.has_writer,
                    !is_enough,
                    if is_enough { size } else { u64::MAX - size },
                )
            };
            let Some(next) = (0..left.len()).min_by_key(|index| rank(left[*index])) else { break };
            let part = left.swap_remove(next);
            short = short.saturating_sub(part.promised_bytes);
            let by = self.leaving.get(&part.name).copied().unwrap_or(now + MOVE_TIME);
            leaving.insert(part.name.clone(), by);
        }
        self.leaving = leaving;
    }

    /// The next export to drop, if any: one at a time, since the next look may find enough memory.
    fn last_resort(&mut self, now: Instant, seen: Seen, held: &Held) -> Option<String> {
        let kept = self.rules.keep_free_bytes;
        if seen.available_bytes >= kept {
            // Others need nothing now: writers have more time.
            self.leaving.values_mut().for_each(|by| *by = (*by).max(now + Duration::from_secs(1)));
            return None;
        }
        let is_urgent = seen.available_bytes < kept / 4;
        let filled = held.parts.iter().filter(|part| part.used_bytes > 0);
        let due = filled.filter(|part| self.leaving.get(&part.name).is_some_and(|by| is_urgent || *by <= now));
        let missing = (kept / 2).saturating_sub(seen.available_bytes);
        due.min_by_key(|part| {
            let is_enough = part.used_bytes >= missing;
            (!is_enough, if is_enough { part.used_bytes } else { u64::MAX - part.used_bytes })
        })
        .map(|part| part.name.clone())
    }
}

#[cfg(test)]
mod tests;
