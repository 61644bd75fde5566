//! What can be done about a room, and about membership in it.

use std::borrow::Cow;

use cheetah_error::next::Room;

/// The step as a clause.
pub(super) fn clause(step: &Room) -> Cow<'static, str> {
    match step {
        Room::SayRoom => "say which room with --room".into(),
        Room::SayRoomOrInsecure => "say which room with --room, or, on a network you trust, --insecure".into(),
        Room::StartWithRoom => "start it with --room; another program's server takes the certificates of `cheetah room export`".into(),
        Room::NameMachine => "name the machine that lets others in: --room HOST:PORT".into(),
        Room::StartServing => "on it, run: cheetah room serve".into(),
        Room::StartServingInviter => "on the machine that made the invitation, run: cheetah room serve".into(),
        Room::RemoveDrive { name } => format!("to hand out this one, run: cheetah room drives --remove {name}").into(),
        Room::CompareMembers => "compare with cheetah room list, and make a new invitation".into(),
        Room::WaitOrInvite => "wait, or use an invitation (cheetah room invite)".into(),
        Room::SeePending => "see cheetah room pending".into(),
        Room::SayRole { role } => format!("say --role {role} if that is right").into(),
        Room::Invite => "make a new one (cheetah room invite)".into(),
        Room::InviteForUses => "make a new one (cheetah room invite --uses N)".into(),
        Room::InviteAgain => "a new invitation (cheetah room invite) lets it in again".into(),
        Room::JoinAgain => "join again with a new invitation (cheetah room join INVITATION)".into(),
        Room::RejoinByInvitation => "to join again, it needs a new invitation (cheetah room invite there, and cheetah room join here)".into(),
        Room::JoinByInvitation => "join it with an invitation (cheetah room invite)".into(),
        Room::InviteOrInit { name } => format!("use an invitation (cheetah room invite, on the examiner's machine), or make a room: cheetah room init {name}").into(),
        Room::InviteWithRole { role } => format!("on the examiner's machine, run: cheetah room invite --role {role}").into(),
        Room::UseRoom => "use it (cheetah room invite), or choose another name".into(),
        Room::InitOrGoThere { name } => format!("make it (cheetah room init {name}), or run this on the machine where it was made").into(),
        Room::RestoreOrInit => "put the file back from a backup, or make a new room (cheetah room init)".into(),
    }
}
