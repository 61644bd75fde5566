//! Windows: the programs here have no Unix sockets. What would need one is refused when it is opened.

use std::convert::Infallible;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use cheetah_kit::socket::AsSocket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that does not exist.
#[derive(Debug)]
pub struct UnixStream(Infallible);

/// The same, outside of tokio.
pub type StdUnixStream = UnixStream;
/// The half that is read.
pub(crate) type OwnedReadHalf = UnixStream;
/// The half that is written.
#[derive(Debug)]
pub(crate) struct OwnedWriteHalf(UnixStream);

/// A listener that does not exist.
#[derive(Debug)]
pub struct UnixListener(Infallible);

fn refused() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "there are no Unix sockets on Windows; use an address and a port")
}

impl UnixListener {
    pub(crate) fn bind(_path: &Path) -> io::Result<Self> {
        Err(refused())
    }

    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        match self.0 {}
    }
}

impl UnixStream {
    pub(crate) async fn connect(_path: &Path) -> io::Result<Self> {
        Err(refused())
    }

    pub(crate) fn from_std(stream: StdUnixStream) -> io::Result<Self> {
        match stream.0 {}
    }

    pub(crate) fn into_std(self) -> io::Result<StdUnixStream> {
        match self.0 {}
    }

    pub(crate) fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        match self.0 {}
    }

    pub(crate) fn try_read_vectored(&self, _runs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn poll_write_ready(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl OwnedWriteHalf {
    pub(crate) fn try_write_vectored(&self, _runs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.0 {}
    }

    pub(crate) fn try_write(&self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0.0 {}
    }
}

impl AsRef<UnixStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &UnixStream {
        &self.0
    }
}

impl AsSocket for UnixStream {
    fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
        match self.0 {}
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, _bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

/// There is no socket.
pub(crate) fn keep_others_out(_socket: &Path) -> io::Result<()> {
    Err(refused())
}
