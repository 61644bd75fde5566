//! Messages between the process that has the drive open for writing and `repair`, `rebalance` and `status`: notes at the drive's
//! nodes.
//!
//! Only the holder of the leases can change the map, so the holder repairs a drive that is in use. `repair` leaves a
//! request at every node that it reaches, and the holder looks for requests while a node is lost. Notes need no lease,
//! and reach the holder from any machine. They outlive both processes, so nothing is lost if either is killed.

use cheetah_error::{Next, Result};
use cheetah_kit::clock::now_ms;
use cheetah_kit::random;
use cheetah_redundancy::RecoveryStats;
use serde::{Deserialize, Serialize};

use crate::file::SetNode;
use crate::file::check::SPARES_MAX;
use crate::lease::holder;
use crate::node::note::{read, store};
use crate::session::Session;

/// A request of `repair`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    /// A random id for each request; empty if there is no request.
    pub id: String,
    /// When it was made, in milliseconds since 1970. The latest request counts.
    pub made_ms: u64,
    /// Nodes that may take the place of lost ones, in the user's notation.
    pub spares: Vec<String>,
    /// The NBD URIs of members to replace at once. Others are replaced once they have been lost for a while.
    pub replace: Vec<String>,
}

/// The holder's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    /// The id of the request.
    pub request: String,
    /// Why nodes were not replaced, a sentence each.
    pub problems: Vec<String>,
}

impl Request {
    /// A new request.
    pub fn new(spares: Vec<String>, replace: Vec<String>) -> Result<Self> {
        Ok(Self { id: random::id()?, made_ms: now_ms(), spares, replace })
    }

    /// Leaves it at every node that can be reached.
    ///
    /// # Errors
    ///
    /// If no node takes it, with their reasons.
    pub async fn leave(&self, nodes: &[SetNode], session: &Session) -> Result<()> {
        store(nodes, ("repair-request", self), session).await
    }

    /// The latest request at the nodes; an empty one if there is none.
    pub async fn latest(nodes: &[SetNode], session: &Session) -> Self {
        let mut latest =
            read::<Self>(nodes, "repair-request", session).await.into_iter().max_by_key(|found| found.made_ms);
        if let Some(found) = &mut latest {
            found.spares.truncate(SPARES_MAX);
        }
        latest.unwrap_or_default()
    }

    /// The holder's answer to it, if there is one.
    pub async fn answer(&self, nodes: &[SetNode], session: &Session) -> Option<Answer> {
        read::<Answer>(nodes, "repair-answer", session).await.into_iter().find(|answer| answer.request == self.id)
    }
}

impl Answer {
    /// Leaves it at every node that can be reached.
    pub async fn leave(&self, nodes: &[SetNode], session: &Session) {
        store(nodes, ("repair-answer", self), session).await.ok();
    }
}

/// Counts of the faults and repairs of a process that has the drive open for writing, since it opened the drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Recovery {
    /// The time of these counts, in milliseconds since 1970.
    pub at_ms: u64,
    /// The process.
    pub writer: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: RecoveryStats,
}

impl Recovery {
    /// The counts of this process; `None` if nothing has happened.
    pub(crate) fn of(counts: RecoveryStats) -> Option<Self> {
        (counts != RecoveryStats::default()).then(|| Self { at_ms: now_ms(), writer: holder(), counts })
    }

    /// Leaves it at every node that can be reached.
    pub(crate) async fn leave(&self, nodes: &[SetNode], session: &Session) {
        store(nodes, ("recovery", self), session).await.ok();
    }

    /// The latest counts at the nodes.
    pub(crate) async fn latest(nodes: &[SetNode], session: &Session) -> Option<Self> {
        read::<Self>(nodes, "recovery", session).await.into_iter().max_by_key(|found| found.at_ms)
    }
}

/// A request of `rebalance`, at the node that a part is to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveRequest {
    /// The node that is to take the part, in the user's notation; empty if the request is taken back.
    pub to: String,
}

impl MoveRequest {
    /// The request at a node, if there is one.
    pub async fn at(node: &SetNode, session: &Session) -> Option<Self> {
        let found: Option<Self> = read(std::slice::from_ref(node), "move-request", session).await.pop();
        found.filter(|request| !request.to.is_empty())
    }

    /// Leaves it at the node.
    ///
    /// # Errors
    ///
    /// If the node does not take it, with its reason.
    pub async fn leave(&self, node: &SetNode, session: &Session) -> Result<()> {
        store(std::slice::from_ref(node), ("move-request", self), session).await
    }
}

/// What a writer says at a node that is draining, or that a part is to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaving {
    /// When it was said, in milliseconds since 1970.
    pub at_ms: u64,
    /// The process.
    pub writer: String,
    /// The drive's name.
    pub drive: String,
    /// The nodes that the mark names: this is said of that mark.
    pub to: Vec<String>,
    /// The progress.
    pub step: Step,
}

/// The progress of the part of a draining node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// Another part of the drive moves first, or has to be resynchronized.
    Waiting,
    /// It moves.
    Moving {
        /// Regions to copy.
        regions_left: u64,
        /// Regions of the drive.
        regions: u64,
    },
    /// It cannot be moved now.
    Stuck {
        /// The reason, as a clause.
        why: String,
        /// Whether waiting does not help: false if a node did not answer in time, which a busy machine may cause.
        #[serde(default = "yes")]
        is_certain: bool,
        /// The next steps, if there are some.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "cheetah_error::next::known")]
        next: Vec<Next>,
    },
}

const fn yes() -> bool {
    true
}

impl Leaving {
    /// The name of the note.
    pub const NOTE: &str = "drain";

    /// The progress of a drive's part now.
    pub fn new(drive: String, to: Vec<String>, step: Step) -> Self {
        Self { at_ms: now_ms(), writer: holder(), drive, to, step }
    }

    /// The last word at the node.
    pub async fn at(node: &SetNode, session: &Session) -> Option<Self> {
        read(std::slice::from_ref(node), Self::NOTE, session).await.pop()
    }

    /// Leaves it at the node.
    pub async fn leave(&self, node: &SetNode, session: &Session) {
        store(std::slice::from_ref(node), (Self::NOTE, self), session).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_recovery_are_read_from_the_note_that_older_writers_leave() {
        let note = r#"{"at_ms":7,"writer":"root@lab, process 1","members_lost":1,"resynced_bytes":4096,"of_later":2}"#;
        let counts = RecoveryStats { members_lost: 1, resynced_bytes: 4096, ..RecoveryStats::default() };
        let read: Recovery = serde_json::from_str(note).unwrap();
        assert_eq!(read, Recovery { at_ms: 7, writer: "root@lab, process 1".into(), counts });
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!((&written["members_lost"], &written["late_reads"]), (&1.into(), &0.into()));
    }
}
