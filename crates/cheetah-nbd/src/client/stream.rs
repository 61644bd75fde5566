//! A client's socket: TCP or Unix.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::tune::tune;
use crate::uri::Address;

/// The half that the connection's task reads.
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// The half that callers and the task write.
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

/// A socket, and the bytes received over it already.
pub(super) type Dialled = (ReadHalf, WriteHalf, BytesMut);

/// Connects to a server, or waits for it to call.
pub(super) async fn dial(address: &Address) -> io::Result<Dialled> {
    let (read, write) = match address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            tune(&stream)?;
            let (read, write) = stream.into_split();
            (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
        }
        Address::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            (ReadHalf::Unix(read), WriteHalf::Unix(write))
        }
        Address::Inbound(inbox) => {
            let caller = inbox.take().await;
            tracing::debug!("taking the call of {}", caller.from);
            let (read, write) = caller.stream.into_split();
            return Ok((ReadHalf::Tcp(read), WriteHalf::Tcp(write), caller.received));
        }
    };
    Ok((read, write, BytesMut::new()))
}

impl ReadHalf {
    /// Receives up to `len_max` bytes at the end of `buffer`; 0 at the end of the connection.
    pub fn poll_receive(
        &mut self,
        buffer: &mut (impl BufMut + Send),
        len_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Not try_read: after a partial read, poll_read knows that the socket is empty, which saves a system call.
        pin!(self.read_buf(&mut buffer.limit(len_max))).poll(cx)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl WriteHalf {
    /// Writes as much as the socket accepts without blocking.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Ready when the socket is writable. Only one task may poll it.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.as_ref().poll_write_ready(cx),
            Self::Unix(stream) => stream.as_ref().poll_write_ready(cx),
        }
    }

    /// Writes everything.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write_vectored(&[IoSlice::new(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::future::poll_fn(|cx| self.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
