//! Why a machine is not admitted, or a register cannot be used.

use cheetah_error::Next;
use cheetah_error::next::Room;

use super::MEMBERS_MAX;

/// Why a machine is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The token is not one of this room.
    #[error("this room does not know the invitation")]
    Unknown,
    /// The invitation's time is over.
    #[error("the invitation has expired")]
    Expired,
    /// It was used as often as it may be.
    #[error("the invitation was used as often as it may be")]
    UsedUp,
    /// It was closed.
    #[error("the invitation was closed, as when a member that it admitted is revoked")]
    Closed,
    /// The key is that of a revoked member.
    #[error("the key of this machine was revoked")]
    RevokedKey,
    /// The key is that of a member that was admitted in another way.
    #[error("another member has this key; remove the credential of one of the two machines")]
    KeyTaken,
    /// No member has the key.
    #[error("this room has no member with this key")]
    NoMember,
    /// The room is full.
    #[error("the room has {MEMBERS_MAX} members, which is the most; make a new room")]
    Full,
}

impl Denied {
    /// The next step, if there is one.
    pub fn next(self) -> Option<Next> {
        match self {
            Self::Unknown | Self::Expired | Self::Closed => Some(Room::Invite.into()),
            Self::UsedUp => Some(Room::InviteForUses.into()),
            Self::RevokedKey => Some(Room::JoinAgain.into()),
            Self::NoMember => Some(Room::JoinByInvitation.into()),
            Self::KeyTaken | Self::Full => None,
        }
    }
}

/// Why a register cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRegister {
    /// It is not one.
    #[error("it is damaged or was edited ({0})")]
    Malformed(String),
    /// It is of a newer format.
    #[error("it was written by a newer Cheetah (format {0}); use that version or later")]
    Newer(u32),
}
