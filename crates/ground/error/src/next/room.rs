//! What can be done about a room, and about membership in it.

use serde::{Deserialize, Serialize};

/// What can be done about a room, and about membership in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Room {
    /// The server accepts members of its room only.
    SayRoom,
    /// The connection would not be encrypted.
    SayRoomOrInsecure,
    /// The server does not encrypt.
    StartWithRoom,
    /// The room's machine was not found.
    NameMachine,
    /// The room's machine does not answer.
    StartServing,
    /// The machine of an invitation does not answer.
    StartServingInviter,
    /// The room hands out another drive of the name.
    RemoveDrive {
        /// The drive's name.
        name: String,
    },
    /// Another machine answers than the expected one.
    CompareMembers,
    /// Too many machines ask to join.
    WaitOrInvite,
    /// No machine waits with this code.
    SeePending,
    /// The machine asks for another role.
    SayRole {
        /// The role.
        role: String,
    },
    /// The invitation is of no use any more.
    Invite,
    /// The invitation was used up.
    InviteForUses,
    /// The member was revoked.
    InviteAgain,
    /// The key of this machine was revoked.
    JoinAgain,
    /// The certificate of this machine is revoked.
    RejoinByInvitation,
    /// No member has the key.
    JoinByInvitation,
    /// This machine knows no room of the name.
    InviteOrInit {
        /// The room's name.
        name: String,
    },
    /// The member has another role than the one that is needed.
    InviteWithRole {
        /// The role.
        role: String,
    },
    /// There is a room of the name.
    UseRoom,
    /// There is no room of the name.
    InitOrGoThere {
        /// The room's name.
        name: String,
    },
    /// A file of the room is damaged.
    RestoreOrInit,
}
