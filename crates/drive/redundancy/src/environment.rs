//! An array's environment: connections to its members, and a place to store its map.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::DynDevice;
use futures::future::BoxFuture;

use crate::engine::Epoch;
use crate::map::Map;

/// The connection to a member.
pub trait MemberLink: Send + Sync {
    /// The member's content.
    fn device(&self) -> &DynDevice;

    /// How long the member has been silent while it owed an answer; `None` if it owes none. A member that is slow is
    /// not silent: it answers something.
    fn silent_for(&self) -> Option<Duration>;
}

/// A shared connection.
pub type DynLink = Arc<dyn MemberLink>;

/// The reason of a failure, as the environment knows it; a clause.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a map is not stored; a clause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotStored {
    /// Too few members have it.
    #[error("{stored} of {members} nodes have it ({})", joined(why))]
    TooFew {
        /// The number of members that have it.
        stored: usize,
        /// The number of members.
        members: usize,
        /// Why others do not.
        why: Vec<Cause>,
    },
    /// Another writer has the drive, or had it meanwhile.
    #[error(transparent)]
    Fenced(Cause),
    /// The writer is not sure that no other one has the drive.
    #[error(transparent)]
    Unconfirmed(Cause),
    /// The drive file, which has a vote, does not have it.
    #[error(transparent)]
    File(Cause),
}

fn joined(why: &[Cause]) -> String {
    why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a member is not connected again; a clause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotReached {
    /// Nothing tells whether it holds the content that it held.
    #[error("it is no Cheetah node: what it missed cannot be known")]
    Unknown,
    /// It does not answer.
    #[error("no answer")]
    Silent,
    /// The writer has no lease there.
    #[error(transparent)]
    NoLease(Cause),
    /// Another writer wrote to it, apart from this one.
    #[error(transparent)]
    Diverged(Cause),
    /// It cannot be connected to.
    #[error(transparent)]
    Unreachable(Cause),
}

/// A writer's environment. All operations end in bounded time: writes wait for them.
pub trait Environment: Send + Sync {
    /// Stores a map at members with more than half of the votes ([`Votes`](crate::Votes)). Does not wait for the
    /// others: one may be silent. A member refuses an epoch older than its own.
    ///
    /// # Errors
    ///
    /// If too few members stored it, or the writer may not store it.
    fn store(&self, map: Map) -> BoxFuture<'_, Result<(), NotStored>>;

    /// Reconnects to a member that was cut off. The member must hold the content that it held when it was cut off.
    /// Former connections of this writer end, and nothing sent over them may take effect from now on.
    ///
    /// # Errors
    ///
    /// If it cannot be reached, or no longer holds that content.
    fn reconnect(&self, member: usize) -> BoxFuture<'_, Result<DynLink, NotReached>>;

    /// The bytes that all clients have read from a member; `None` if the member does not answer soon. Wraps around.
    fn read_bytes(&self, member: usize) -> BoxFuture<'_, Option<u64>>;

    /// Whether the process that held a member's bytes has certainly ended, so that no reader can read from it. Called
    /// once a member is excluded; false if the answer is not known soon.
    fn is_gone(&self, member: usize) -> BoxFuture<'_, bool>;

    /// Notes that the node that a member moves to has the member's place in maps of this epoch and of later ones, none of
    /// which is being stored yet. Called with the engine locked.
    fn moved(&self, member: usize, epoch: Epoch);
}

/// A member in this process, which is never silent.
pub struct LocalMember(pub DynDevice);

impl MemberLink for LocalMember {
    fn device(&self) -> &DynDevice {
        &self.0
    }

    fn silent_for(&self) -> Option<Duration> {
        None
    }
}
