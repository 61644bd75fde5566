//! A client's socket: TCP or Unix, in clear or with TLS.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use cheetah_kit::socket::unacknowledged_bytes;
use cheetah_tls::{ClientTls, Receiver, Sender, Standing, Transport};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::{TcpStream, tcp};

use crate::os::{OwnedReadHalf, OwnedWriteHalf, UnixStream};
use crate::starttls::{self, Secured};
use crate::tune::tune;
use crate::uri::Address;

/// A server, and the protection of the connection to it.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub address: Address,
    /// `None` for an unencrypted connection.
    pub tls: Option<ClientTls>,
}

/// The half that the connection's task reads.
pub(super) struct ReadHalf {
    socket: ReadSocket,
    receiver: Option<Box<Receiver>>,
}

/// The half that callers and the task write.
pub(super) struct WriteHalf {
    socket: WriteSocket,
    /// Never contended: there is one writer at a time.
    sender: Option<Box<Mutex<Sender>>>,
}

enum ReadSocket {
    Tcp(tcp::OwnedReadHalf),
    Unix(OwnedReadHalf),
}

enum WriteSocket {
    Tcp(tcp::OwnedWriteHalf),
    Unix(OwnedWriteHalf),
}

/// A connected socket.
pub(super) struct Dialled {
    pub reader: ReadHalf,
    pub writer: WriteHalf,
    /// The bytes received over it already.
    pub received: BytesMut,
    pub transport: Transport,
    /// Whether the server's certificate is still accepted, if the server is a member of a room.
    pub standing: Option<Standing>,
    /// With TLS, the greeting is over; whether both sides omit the padding after `NBD_OPT_EXPORT_NAME`.
    pub secured: Option<bool>,
}

/// Connects to a server, or waits for it to call. Notes in `reached` when the server's machine has accepted a connection.
pub(super) async fn dial(to: &Destination, reached: &AtomicBool) -> io::Result<Dialled> {
    let mut received = BytesMut::new();
    let (read, write, secured) = match &to.address {
        Address::Tcp { host, port } => {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            reached.store(true, Ordering::Relaxed);
            tune(&stream)?;
            let secured = match &to.tls {
                Some(tls) => Some(starttls::start(&mut stream, tls, host, *port).await?),
                None => None,
            };
            let (read, write) = stream.into_split();
            (ReadSocket::Tcp(read), WriteSocket::Tcp(write), secured)
        }
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path).await?;
            reached.store(true, Ordering::Relaxed);
            let secured = match &to.tls {
                Some(tls) => Some(starttls::start(&mut stream, tls, "localhost", 0).await?),
                None => None,
            };
            let (read, write) = stream.into_split();
            (ReadSocket::Unix(read), WriteSocket::Unix(write), secured)
        }
        Address::Inbound(inbox) => {
            let caller = inbox.take().await;
            tracing::debug!("taking the call of {}", caller.from);
            received = caller.received;
            let (read, write) = caller.stream.into_split();
            (ReadSocket::Tcp(read), WriteSocket::Tcp(write), caller.secured)
        }
    };
    let in_clear = if matches!(read, ReadSocket::Unix(_)) { Transport::Unix } else { Transport::Clear };
    let (receiver, sender, secured, transport, standing) = match secured {
        Some(Secured { channel, peer, standing, no_zeroes }) => {
            let transport = Transport::Tls { cipher: channel.cipher, peer: peer.map(Box::new) };
            let (receiver, sender) = (Box::new(channel.receiver), Box::new(Mutex::new(channel.sender)));
            (Some(receiver), Some(sender), Some(no_zeroes), transport, standing)
        }
        None => (None, None, None, in_clear, None),
    };
    let (reader, writer) = (ReadHalf { socket: read, receiver }, WriteHalf { socket: write, sender });
    Ok(Dialled { reader, writer, received, transport, standing, secured })
}

impl ReadHalf {
    /// Receives up to `len_max` bytes at the end of `buffer`; 0 at the end of the connection.
    pub fn poll_receive(
        &mut self,
        buffer: &mut (impl BufMut + Send),
        len_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.receiver {
            Some(receiver) => receiver.poll_receive(&mut self.socket, buffer, len_max, cx),
            // Not try_read: after a partial read, poll_read knows that the socket is empty, which saves a system call.
            None => pin!(self.socket.read_buf(&mut buffer.limit(len_max))).poll(cx),
        }
    }

    /// Receives at the end of `buffer`; 0 at the end of the connection.
    pub async fn receive(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let len_max = buffer.capacity() - buffer.len();
        std::future::poll_fn(|cx| self.poll_receive(buffer, len_max, cx)).await
    }
}

impl AsyncRead for ReadSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl WriteSocket {
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

impl WriteHalf {
    /// Writes as much as the socket accepts without blocking. With TLS, some accepted bytes may still wait for
    /// [`try_flush`](Self::try_flush).
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.sender {
            Some(sender) => sender.lock().send(slices, |bytes| self.socket.try_write(bytes)),
            None => self.socket.try_write_vectored(slices),
        }
    }

    /// Writes what was accepted earlier, as far as the socket accepts it without blocking.
    pub fn try_flush(&self) -> io::Result<()> {
        match &self.sender {
            Some(sender) => sender.lock().flush(|bytes| self.socket.try_write(bytes)),
            None => Ok(()),
        }
    }

    /// Whether there is something for [`try_flush`](Self::try_flush).
    pub fn is_pending(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.lock().is_pending())
    }

    /// Bytes that were written, with TLS after encryption, and have not arrived at the server's machine.
    pub fn unacknowledged(&self) -> u64 {
        match &self.socket {
            WriteSocket::Tcp(stream) => unacknowledged_bytes(stream.as_ref()),
            WriteSocket::Unix(stream) => unacknowledged_bytes(stream.as_ref()),
        }
    }

    /// Ready when the socket is writable. Only one task may poll it.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.socket {
            WriteSocket::Tcp(stream) => stream.as_ref().poll_write_ready(cx),
            WriteSocket::Unix(stream) => stream.as_ref().poll_write_ready(cx),
        }
    }

    /// Writes everything.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = match bytes {
                [] => self.try_flush().map(|()| None),
                bytes => self.try_write_vectored(&[IoSlice::new(bytes)]).map(Some),
            };
            match written {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(Some(len)) => bytes = &bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::future::poll_fn(|cx| self.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
