//! The numbers of errors by their kinds, for systems that have others than those on the wire and in facts.

use std::io::{self, ErrorKind};

use crate::errno::{
    EACCES, ECONNREFUSED, EHOSTUNREACH, EINVAL, EIO, ENOENT, ENOSPC, EOPNOTSUPP, EROFS, ESTALE, ETIMEDOUT,
};

use super::errno::is_of_medium;

/// Protocol error: stands for what Linux has no number for. Not EIO, which would say that a sector is bad.
const EPROTO: i32 = 71;
/// Broken pipe.
const EPIPE: i32 = 32;
/// Cannot send after the other end has gone.
const ECONNRESET: i32 = 104;
/// The network is down or cannot be reached.
const ENETUNREACH: i32 = 101;
/// The address is in use.
const EADDRINUSE: i32 = 98;

pub(crate) fn of(error: &io::Error) -> Option<i32> {
    error.raw_os_error()?;
    Some(match error.kind() {
        _ if is_of_medium(error) => EIO,
        ErrorKind::NotFound => ENOENT,
        ErrorKind::PermissionDenied => EACCES,
        ErrorKind::ConnectionRefused => ECONNREFUSED,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => ECONNRESET,
        ErrorKind::BrokenPipe | ErrorKind::NotConnected => EPIPE,
        ErrorKind::TimedOut => ETIMEDOUT,
        ErrorKind::HostUnreachable => EHOSTUNREACH,
        ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => ENETUNREACH,
        ErrorKind::AddrInUse => EADDRINUSE,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ENOSPC,
        ErrorKind::ReadOnlyFilesystem => EROFS,
        ErrorKind::StaleNetworkFileHandle => ESTALE,
        ErrorKind::InvalidInput => EINVAL,
        ErrorKind::Unsupported => EOPNOTSUPP,
        _ => EPROTO,
    })
}
