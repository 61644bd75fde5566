//! The numbers of errors on the wire and in facts: those of Linux, on every system.

use std::io;

use crate::os;

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory; of an export: the server does not have it.
pub const ENOENT: i32 = 2;
/// Input/output error.
pub const EIO: i32 = 5;
/// Permission denied: the server does not let this client do this.
pub const EACCES: i32 = 13;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Machine is not on the network: this machine has no credential of the server's room.
pub const ENONET: i32 = 64;
/// Protocol not supported: the server does not encrypt, and has to.
pub const EPROTONOSUPPORT: i32 = 93;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// The server accepted the connection, and does not answer.
pub const ETIMEDOUT: i32 = 110;
/// No process listens at the address.
pub const ECONNREFUSED: i32 = 111;
/// No route to the server's machine, or it does not answer at all.
pub const EHOSTUNREACH: i32 = 113;
/// Stale handle: the server is another instance than the one that held the content.
pub const ESTALE: i32 = 116;
/// Required key not available: the server accepts members of its room only, and no room is named.
pub const ENOKEY: i32 = 126;
/// Key has been revoked: the server refuses the certificate of this machine.
pub const EKEYREVOKED: i32 = 128;
/// Key was rejected by service: the server is in another room than this machine.
pub const EKEYREJECTED: i32 = 129;

/// The number that stands for an error of the operating system; `None` if it is another error.
pub fn of(error: &io::Error) -> Option<i32> {
    os::errno::of(error)
}

/// Whether a medium caused an error, as a bad sector does, and not a device that is gone.
pub fn is_of_medium(error: &io::Error) -> bool {
    os::errno::is_of_medium(error)
}
