//! The answers of `room`, and of joining a room.
//!
//! Roles are `node`, `agent`, `analyst` and `examiner`. `key_sha256` is the fingerprint of a key.

use std::borrow::Cow;
use std::net::SocketAddr;

use serde::Serialize;

/// The answer of `room init`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Init<'a> {
    /// The directory with the room's key.
    pub directory: Cow<'a, str>,
    /// The room's id.
    pub id: String,
    /// The fingerprint of its key.
    pub key_sha256: String,
    /// Its name.
    pub room: &'a str,
}

/// The answer of `room invite`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Invite<'a> {
    /// Seconds until the invitation ends.
    pub expires_s: u64,
    /// The file to which it was also written, with `--out`.
    pub file: Option<Cow<'a, str>>,
    /// Where machines join: HOST:PORT each.
    pub hosts: &'a [String],
    /// The invitation's id.
    pub id: &'a str,
    /// The invitation itself: a secret.
    pub invitation: &'a str,
    /// The role that it gives.
    pub role: &'a str,
    /// The room's name.
    pub room: &'a str,
    /// The process that lets machines in, if there is one.
    pub server_pid: Option<u32>,
    /// How often it may be used.
    pub uses: u32,
}

/// The answer of `room boot-image`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BootImage<'a> {
    /// Seconds until machines can no longer join with it.
    pub expires_s: u64,
    /// The image.
    pub file: Cow<'a, str>,
    /// Where machines join: HOST:PORT each.
    pub hosts: &'a [String],
    /// The room's name.
    pub room: &'a str,
    /// Whether machines that serve their disks may join with it, too.
    pub serves: bool,
    /// How often machines may join with it.
    pub uses: u32,
}

/// The answer of `room pending`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pending<'a> {
    /// The machines that wait.
    pub pending: Vec<PendingMachine<'a>>,
    /// The room's name.
    pub room: &'a str,
}

/// A machine that asks to join.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PendingMachine<'a> {
    /// The address that it called from.
    pub address: &'a str,
    /// Its code; empty until it has shown one.
    pub code: String,
    /// The name that it requests.
    pub name: &'a str,
    /// The role that it asks for.
    pub role: &'a str,
    /// How long it has waited, in seconds.
    pub waits_s: u64,
}

/// The answer of `room approve`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Approve<'a> {
    /// The address that the machine called from.
    pub address: &'a str,
    /// The name that it requested.
    pub name: &'a str,
    /// Its role.
    pub role: &'a str,
    /// The room's name.
    pub room: &'a str,
}

/// The answer of `room list`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct List<'a> {
    /// The room's id.
    pub id: String,
    /// The open invitations.
    pub invitations: Vec<OpenInvitation<'a>>,
    /// The fingerprint of the room's key.
    pub key_sha256: String,
    /// The members, also those that were revoked.
    pub members: Vec<Member<'a>>,
    /// Its name.
    pub room: &'a str,
    /// The process that lets machines in, if there is one.
    pub serving: Option<Serving>,
}

/// An open invitation.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenInvitation<'a> {
    /// Seconds until it ends.
    pub ends_in_s: u64,
    /// Its id.
    pub id: &'a str,
    /// The role that it gives.
    pub role: &'a str,
    /// How often it was used.
    pub uses: u32,
    /// How often it may be used.
    pub uses_max: u32,
}

/// A member of a room.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Member<'a> {
    /// When it was admitted, in seconds since 1970.
    pub admitted_s: u64,
    /// How it was admitted.
    pub by: String,
    /// Its addresses.
    pub hosts: Vec<String>,
    /// The fingerprint of its key.
    pub key_sha256: String,
    /// Its name.
    pub name: &'a str,
    /// When it was revoked, in seconds since 1970.
    pub revoked_s: Option<u64>,
    /// Its role.
    pub role: &'a str,
    /// The serial number of its certificate: 32 hexadecimal digits.
    pub serial: &'a str,
    /// Its servers.
    pub servers: Vec<MemberServer<'a>>,
}

/// A server of a member.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemberServer<'a> {
    /// Whether it answers now.
    pub answers: bool,
    /// The port of its control API, if it has one.
    pub control_port: Option<u16>,
    /// Its name.
    pub name: &'a str,
    /// The addresses of its NBD server: HOST:PORT each.
    pub nbd: Vec<String>,
}

/// The process that lets machines in.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Serving {
    /// The process.
    pub pid: u32,
    /// The port at which it listens.
    pub port: u16,
}

/// The answer of `room revoke`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Revoke<'a> {
    /// The ids of the invitations that were closed.
    pub closed_invitations: &'a [&'a str],
    /// The servers that were not notified.
    pub not_notified: Vec<NotNotified<'a>>,
    /// The servers that were notified.
    pub notified: &'a [String],
    /// The members that were revoked.
    pub revoked: &'a [&'a str],
    /// The room's name.
    pub room: &'a str,
}

/// A server that was not notified of a revocation.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotNotified<'a> {
    /// Its name.
    pub node: &'a str,
    /// The reason, as a clause.
    pub why: &'a str,
}

/// The answer of `room drives`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drives<'a> {
    /// The names of the drives that the room hands out.
    pub drives: &'a [String],
    /// The room's name.
    pub room: &'a str,
}

/// The answer of `room drives --remove`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemoveDrive<'a> {
    /// The name of the drive that is no longer handed out.
    pub removed: &'a str,
}

/// The answer of `room export`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Export<'a> {
    /// The directory with the files.
    pub directory: Cow<'a, str>,
    /// The names of the files.
    pub files: &'a [&'a str],
    /// The fingerprint of the new member's key.
    pub key_sha256: String,
    /// Its name.
    pub name: &'a str,
    /// Its role.
    pub role: &'a str,
}

/// The answer of `room credential`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Credential<'a> {
    /// The file.
    pub file: Cow<'a, str>,
    /// The fingerprint of the new member's key.
    pub key_sha256: String,
    /// Its name.
    pub name: &'a str,
    /// Its role.
    pub role: &'a str,
}

/// The answer of `room join`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Join<'a> {
    /// This machine is a member.
    Joined {
        /// The file of the credential, if the machine joined by a code.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<Cow<'a, str>>,
        /// Whether it became a member just now.
        new: bool,
        /// Its role.
        role: &'a str,
        /// The room's name.
        room: &'a str,
    },
}

/// The event of a command on a machine that asks to join a room by a code.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Ask<'a> {
    /// The machine waits for approval.
    Waiting {
        /// The machine of the room: HOST:PORT.
        at: &'a str,
        /// The code to approve.
        code: String,
        /// The fingerprint of the room's key.
        room_key_sha256: String,
    },
}

/// The events of `room serve`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Serve<'a> {
    /// Machines can join.
    Ready {
        /// The fingerprint of the room's key.
        key_sha256: String,
        /// The address at which it listens.
        listen: SocketAddr,
        /// The room's name.
        room: &'a str,
    },
    /// A machine joined.
    Joined {
        /// Its clock minus this machine's, in seconds.
        clock_offset_s: i64,
        /// The fingerprint of its key.
        key_sha256: String,
        /// Its name.
        name: &'a str,
        /// Its role.
        role: &'a str,
    },
    /// A machine shows a code and waits for approval.
    Waiting {
        /// The address that it called from.
        address: &'a str,
        /// The code.
        code: &'a str,
        /// The name that it requests.
        name: &'a str,
        /// The role that it asks for.
        role: &'a str,
    },
    /// A machine was refused.
    Refused {
        /// The address that it called from.
        address: &'a str,
        /// The reason, as a clause.
        why: &'a str,
    },
}
