//! The maps that a node keeps for the writers of its exports. No I/O.
//!
//! A map is text that says where the parts of a redundant drive are and which of them are current. The node does not
//! read it. It keeps the map with the highest epoch, in ordinary memory.

use std::collections::BTreeMap;

use cheetah_control::api::{MAP_BYTES_MAX, StoredMap};

/// The most bytes of all maps of a node.
pub const MAPS_BYTES_MAX: usize = 16 << 20;

/// Maps by the names of their exports.
#[derive(Debug, Default)]
pub struct Maps {
    by_export: BTreeMap<String, StoredMap>,
    bytes: usize,
}

/// Why a map was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapRefusal {
    /// It is not newer than the stored map.
    #[error("the export holds a map of epoch {0}: a new one must have a later epoch")]
    Outdated(u64),
    /// It is too long.
    #[error("a map of {0} bytes is too long: the most is {MAP_BYTES_MAX}")]
    TooLong(usize),
    /// All maps together would be too long.
    #[error("this node has no room for another map: it keeps {MAPS_BYTES_MAX} bytes of them")]
    NoRoom,
}

impl Maps {
    /// Stores an export's map in place of an older one. The same map may be stored again.
    pub fn store(&mut self, export: &str, new: StoredMap) -> Result<(), MapRefusal> {
        if new.map.len() > MAP_BYTES_MAX {
            return Err(MapRefusal::TooLong(new.map.len()));
        }
        let old = self.by_export.get(export);
        match old {
            Some(old) if *old == new => return Ok(()),
            Some(old) if new.epoch <= old.epoch => return Err(MapRefusal::Outdated(old.epoch)),
            _ => {}
        }
        let bytes = self.bytes - old.map_or(0, |old| old.map.len()) + new.map.len();
        if bytes > MAPS_BYTES_MAX {
            return Err(MapRefusal::NoRoom);
        }
        self.bytes = bytes;
        self.by_export.insert(export.to_owned(), new);
        Ok(())
    }

    /// The map of an export, if it holds one.
    pub fn get(&self, export: &str) -> Option<&StoredMap> {
        self.by_export.get(export)
    }

    /// Drops the map of an export.
    pub fn remove(&mut self, export: &str) {
        self.bytes -= self.by_export.remove(export).map_or(0, |old| old.map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(epoch: u64, map: impl Into<String>) -> StoredMap {
        StoredMap { epoch, map: map.into() }
    }

    #[test]
    fn only_a_later_epoch_replaces_a_map() {
        let mut maps = Maps::default();
        maps.store("e", map(7, "seven")).unwrap();
        assert_eq!(maps.store("e", map(6, "six")), Err(MapRefusal::Outdated(7)));
        assert_eq!(maps.store("e", map(6, "seven")), Err(MapRefusal::Outdated(7)));
        assert_eq!(maps.store("e", map(7, "other")), Err(MapRefusal::Outdated(7)));
        maps.store("e", map(7, "seven")).unwrap();
        assert_eq!(maps.get("e"), Some(&map(7, "seven")));
        maps.store("e", map(9, "nine")).unwrap();
        assert_eq!(maps.store("e", map(7, "seven")), Err(MapRefusal::Outdated(9)));
        maps.store("f", map(0, "")).unwrap();
        assert_eq!((maps.get("e"), maps.get("f")), (Some(&map(9, "nine")), Some(&map(0, ""))));
    }

    #[test]
    fn a_refused_map_leaves_the_old_one_and_removal_makes_room() {
        let mut maps = Maps::default();
        let longest = "x".repeat(MAP_BYTES_MAX);
        assert_eq!(maps.store("e", map(1, format!("{longest}x"))), Err(MapRefusal::TooLong(MAP_BYTES_MAX + 1)));
        let fit = MAPS_BYTES_MAX / MAP_BYTES_MAX;
        for index in 0..fit {
            maps.store(&index.to_string(), map(1, &*longest)).unwrap();
        }
        maps.store("short", map(1, "")).unwrap();
        assert_eq!(maps.store("short", map(2, "x")), Err(MapRefusal::NoRoom));
        assert_eq!(maps.get("short"), Some(&map(1, "")));
        // The length of a map does not count against the map that replaces it.
        maps.store("0", map(2, &*longest)).unwrap();
        maps.remove("0");
        maps.remove("0");
        maps.remove("unknown");
        assert_eq!(maps.get("0"), None);
        maps.store("short", map(2, &*longest)).unwrap();
    }
}
