//! What was searched where, over all processes that went on with a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use cheetah_drive::WorkDone;
use serde::{Deserialize, Serialize};

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
                let count = counts.entry(name.to_string()).or_default();
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
