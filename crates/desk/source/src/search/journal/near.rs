//! What was searched where, over all processes that went on with a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use cheetah_drive::WorkDone;
use serde::{Deserialize, Serialize};

/// The most names of nodes, and the most reasons, that are kept apart, and the most characters of each: nodes give reasons in their own
/// words.
const NAMES_MAX: usize = 1000;
const CHARS_MAX: usize = 300;
/// As what the others are counted.
const OTHERS: &str = "others";

/// Bytes that were searched, by the node's name, or by the reason for which this machine read them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Near {
    /// Bytes that nodes searched, by the node's name.
    pub node_bytes: BTreeMap<String, u64>,
    /// Bytes that this machine read and searched, by the reason.
    pub here_bytes: BTreeMap<String, u64>,
}

impl Near {
    /// These, and those of a search that went on.
    #[must_use]
    pub fn and(&self, more: &WorkDone) -> Self {
        let mut sum = self.clone();
        for (counts, more) in [(&mut sum.node_bytes, &more.node_bytes), (&mut sum.here_bytes, &more.here_bytes)] {
            for (name, bytes) in more {
                let name: String = name.chars().take(CHARS_MAX).collect();
                let has_room = counts.len() < NAMES_MAX || counts.contains_key(&name);
                let count = counts.entry(if has_room { name } else { OTHERS.to_owned() }).or_default();
                *count = count.saturating_add(*bytes);
            }
        }
        sum
    }

    /// As of one search, without the keys that were lent.
    pub fn work_done(&self) -> WorkDone {
        let shared = |counts: &BTreeMap<String, u64>| -> BTreeMap<Arc<str>, u64> {
            counts.iter().map(|(name, bytes)| (name.as_str().into(), *bytes)).collect()
        };
        WorkDone { node_bytes: shared(&self.node_bytes), here_bytes: shared(&self.here_bytes), key_lent: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_endless_reasons_some_are_named_and_the_bytes_of_all_are_counted() {
        let why = |number: u64| -> (Arc<str>, u64) { (format!("{number} {}", "x".repeat(10_000)).into(), 2) };
        let done = WorkDone { here_bytes: (0..5000).map(why).collect(), ..WorkDone::default() };
        let near = Near::default().and(&done).and(&done);
        assert!(near.here_bytes.len() <= NAMES_MAX + 1);
        assert!(near.here_bytes.keys().all(|why| why.len() <= CHARS_MAX));
        assert_eq!(near.here_bytes.values().sum::<u64>(), 2 * 2 * 5000);
    }
}
