//! Linux and its kin.

use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(crate) use std::os::unix::net::UnixStream as StdUnixStream;
pub(crate) use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
pub(crate) use tokio::net::{UnixListener, UnixStream};

/// Lets nobody but the socket's owner connect to it.
pub(crate) fn keep_others_out(socket: &Path) -> io::Result<()> {
    set_permissions(socket, Permissions::from_mode(0o600))
}
