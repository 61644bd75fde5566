//! Connections after their handshake: the two directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::inbound::Inbound;
use crate::record::{Alert, Opener, Sealer};

/// Content encrypted at once: about what the second cache level keeps beside the content itself.
const SEAL_LEN_MAX: usize = 128 << 10;
/// The bytes received at once: at first, and at most.
const RECEIVE_LEN_MIN: usize = 4 << 10;
const RECEIVE_LEN_MAX: usize = 256 << 10;
/// The most bytes received to find the alert that explains a failed write.
const EXPLAINED_LEN_MAX: usize = 64 << 10;

/// Both directions of a connection after its handshake.
pub struct Channel {
    /// Decrypts received records.
    pub receiver: Receiver,
    /// Encrypts content to send.
    pub sender: Sender,
    /// The cipher of both, such as `AES-128-GCM`.
    pub cipher: &'static str,
}

/// Decrypts the received records of a connection.
pub struct Receiver {
    inbound: Inbound,
    /// Grows while reads fill it.
    receive_len: usize,
}

/// Encrypts the sent content of a connection.
pub struct Sender {
    sealer: Sealer,
    /// Encrypted, and not sent yet.
    bytes: BytesMut,
}

impl Receiver {
    /// Begins with what arrived behind the handshake: `content`, decrypted, and `bytes`, encrypted.
    pub(crate) fn new(opener: Opener, content: &[u8], bytes: &[u8]) -> Self {
        Self { inbound: Inbound::new(opener, content, bytes), receive_len: RECEIVE_LEN_MIN }
    }

    /// Receives up to `len_max` bytes from `stream` and puts their content behind `to`; 0 at the end of the connection.
    pub fn poll_receive<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        to: &mut impl BufMut,
        len_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let taken = self.inbound.take(to, len_max)?;
            if taken > 0 || self.inbound.is_closed() || len_max == 0 {
                return Poll::Ready(Ok(taken));
            }
            // For content of some length, at once what it takes.
            let room = self.inbound.room(self.receive_len.max(len_max.min(RECEIVE_LEN_MAX)));
            let space = room.capacity() - room.len();
            let reading = std::pin::pin!(stream.read_buf(room));
            let received = ready!(reading.poll(cx))?;
            if received == 0 {
                // Anyone on the way can close a connection; only the peer can say that it has sent everything.
                let why = "the connection was cut: the peer did not announce its end";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
            }
            self.receive_len = match received == space {
                true => (self.receive_len * 2).min(RECEIVE_LEN_MAX),
                false => received.next_power_of_two().clamp(RECEIVE_LEN_MIN, RECEIVE_LEN_MAX).max(self.receive_len / 2),
            };
        }
    }
}

impl Sender {
    pub(crate) fn new(sealer: Sealer) -> Self {
        Self { sealer, bytes: BytesMut::new() }
    }

    /// Changes the key after this number of records, instead of 2^23.
    #[cfg(feature = "testing")]
    pub fn change_key_after(&mut self, records: u64) {
        self.sealer.change_key_after(records);
    }

    /// Tells the peer that its certificate is not accepted any more, as far as `stream` takes it.
    pub(crate) async fn refuse<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) {
        if self.sealer.end(Alert::Revoked, &mut self.bytes).is_ok() {
            // The peer learns of the end either way.
            let _ = stream.write_all_buf(&mut self.bytes).await;
        }
    }

    /// Whether something encrypted waits for [`flush`](Self::flush).
    pub fn is_pending(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Encrypts the beginning of `slices` and hands it to `write`, which sends as much as the socket accepts. Returns
    /// the number of bytes of `slices` that were taken; what `write` did not accept is kept.
    ///
    /// # Errors
    ///
    /// Those of `write`; [`io::ErrorKind::WouldBlock`] only while nothing was taken.
    pub fn send(
        &mut self,
        slices: &[IoSlice<'_>],
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.flush(&mut write)?;
        let taken = self.sealer.seal(slices, SEAL_LEN_MAX, &mut self.bytes)?;
        match self.flush(write) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Hands the encrypted bytes that wait to `write`.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while !self.bytes.is_empty() {
            match write(&self.bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.bytes.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Its memory is used again from the start.
        self.bytes.clear();
        Ok(())
    }
}

/// A stream with TLS.
pub struct Secured<S> {
    stream: S,
    channel: Channel,
    /// The end was announced to the peer.
    closing: bool,
    /// Something invalid was received, so the end is not in order: the peer must not take it for that of the content.
    is_broken: bool,
}

impl<S> Secured<S> {
    /// As [`Sender::change_key_after`].
    #[cfg(feature = "testing")]
    pub fn change_key_after(&mut self, records: u64) {
        self.channel.sender.change_key_after(records);
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The channel, to look at.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Puts a stream and its channel together.
    pub fn new(stream: S, channel: Channel) -> Self {
        Self { stream, channel, closing: false, is_broken: false }
    }
}

/// Writes to a stream that is polled, as [`Sender`] wants it.
fn writing<'a, S: AsyncWrite + Unpin>(
    stream: &'a mut S,
    cx: &'a mut Context<'_>,
) -> impl FnMut(&[u8]) -> io::Result<usize> {
    |bytes| match Pin::new(&mut *stream).poll_write(cx, bytes) {
        Poll::Ready(written) => written,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// [`io::ErrorKind::WouldBlock`] as pending: the stream was polled.
fn pending<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Secured<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, channel, is_broken, .. } = self.get_mut();
        let len_max = buffer.remaining();
        let received = channel.receiver.poll_receive(stream, buffer, len_max, cx).map_ok(drop);
        *is_broken |= matches!(&received, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidData);
        received
    }
}

impl<S: AsyncRead + Unpin> Secured<S> {
    /// The error of a write: the alert by which the peer ended the connection, if one has arrived.
    fn explained(&mut self, error: io::Error, cx: &mut Context<'_>) -> io::Error {
        let mut scratch = BytesMut::new();
        match self.channel.receiver.poll_receive(&mut self.stream, &mut scratch, EXPLAINED_LEN_MAX, cx) {
            Poll::Ready(Err(alert)) if alert.kind() == io::ErrorKind::ConnectionAborted => alert,
            _ => error,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Self { stream, channel, .. } = &mut *this;
        pending(channel.sender.send(slices, writing(stream, cx))).map_err(|error| this.explained(error, cx))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, channel, .. } = self.get_mut();
        ready!(pending(channel.sender.flush(writing(stream, cx))))?;
        Pin::new(stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            self.closing = true;
            let alert = if self.is_broken { Alert::Violation } else { Alert::Close };
            let Sender { sealer, bytes } = &mut self.channel.sender;
            sealer.end(alert, bytes)?;
        }
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
