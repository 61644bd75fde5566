//! Where work on a drive was done.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::lending::KeyLending;

/// Where work on a drive was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkDone {
    /// Bytes that nodes worked on, by the node's name.
    pub node_bytes: BTreeMap<Arc<str>, u64>,
    /// Bytes that this machine read and worked on, by the reason.
    pub here_bytes: BTreeMap<Arc<str>, u64>,
    /// The key of the sealed drive, if nodes were lent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_lent: Option<KeyLending>,
}

/// What works on some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DoneBy {
    /// The node of this name.
    Node(Arc<str>),
    /// This process, for this reason.
    Here(Arc<str>),
}

impl WorkDone {
    /// All of `bytes` was read by this machine.
    pub fn all_here(bytes: u64, why: Arc<str>) -> Self {
        Self { here_bytes: [(why, bytes)].into(), ..Self::default() }
    }

    /// Counts bytes.
    pub(crate) fn add(&mut self, by: &DoneBy, bytes: u64) {
        let (counts, key) = match by {
            DoneBy::Node(name) => (&mut self.node_bytes, name),
            DoneBy::Here(why) => (&mut self.here_bytes, why),
        };
        *counts.entry(key.clone()).or_default() += bytes;
    }
}
