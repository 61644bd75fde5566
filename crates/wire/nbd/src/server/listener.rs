//! Listening sockets: TCP or Unix.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::os::{StdUnixStream, UnixListener, UnixStream, keep_others_out};
use crate::tune;

/// A bound socket that accepts clients.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket; its file is removed when the listener is dropped.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, removed when dropped.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may be gone already, and nothing can handle other errors here.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens on a TCP address; port 0 takes any free port.
    ///
    /// # Errors
    ///
    /// The operating system's, such as an address in use.
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Listens on a new Unix socket at `path`.
    ///
    /// # Errors
    ///
    /// The operating system's, such as a file that is there already.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let bound = Self::Unix(UnixListener::bind(path)?, SocketFile(path.to_owned()));
        // A library may bind under any umask; the command line's lets no other user in from the start.
        keep_others_out(path)?;
        Ok(bound)
    }

    /// The TCP address it is bound to; `None` for a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The next client.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => Ok(Accepted::Tcp(listener.accept().await?.0.into_std()?)),
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
        }
    }
}

/// A client's socket, not yet tied to the runtime that will serve it.
pub(super) enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(StdUnixStream),
}

/// A client's socket in a runtime.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Whether the client, or the end of a tunnel to it, is on this machine.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback()),
            Self::Unix(_) => true,
        }
    }
}

impl Accepted {
    /// Whether it is a TCP client.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Sets the socket options. Fails if the client has disconnected already.
    pub(super) fn tune(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => tune::tune(stream),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Makes the kernel detect soon that the client has vanished. Unix sockets need no such option.
    pub(super) fn watch(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => tune::watch(stream),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Ties the socket to `runtime`.
    pub(super) fn enter(self, runtime: &Handle) -> io::Result<Stream> {
        let _guard = runtime.enter();
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}
