//! Connections: the handshake, and then the two directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use parking_lot::Mutex;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{CertificateError, ConnectionTrafficSecrets, ExtractedSecrets, OtherError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::record::{Alert, Inbound, Keys, Opener, Outbound, Sealer, Shared};

/// The most bytes of a handshake that are received before they are processed.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;
/// Content encrypted at once: about what the second cache level keeps beside the content itself.
const SEAL_LEN_MAX: usize = 128 << 10;
/// What is received at once: at first, and at most.
const RECEIVE_LEN_MIN: usize = 4 << 10;
const RECEIVE_LEN_MAX: usize = 256 << 10;

/// Both directions of a connection after its handshake.
pub struct Channel {
    /// What arrives.
    pub receiver: Receiver,
    /// What is sent.
    pub sender: Sender,
}

/// Decrypts what arrives at a connection.
pub struct Receiver {
    inbound: Inbound,
    /// Grows while reads fill it.
    receive_len: usize,
}

/// Encrypts what a connection sends.
pub struct Sender(Outbound);

impl Receiver {
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
    /// Tells the peer that its certificate is not accepted any more, as far as `stream` takes it.
    pub(crate) async fn refuse<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) {
        if self.0.sealer.end(Alert::Revoked, &mut self.0.bytes).is_ok() {
            // The peer learns of the end either way.
            let _ = stream.write_all_buf(&mut self.0.bytes).await;
        }
    }

    /// Whether something encrypted waits for [`flush`](Self::flush).
    pub fn is_pending(&self) -> bool {
        !self.0.bytes.is_empty()
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
        let taken = self.0.sealer.seal(slices, SEAL_LEN_MAX, &mut self.0.bytes)?;
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
        while !self.0.bytes.is_empty() {
            match write(&self.0.bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.0.bytes.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Its memory is used again from the start.
        self.0.bytes.clear();
        Ok(())
    }
}

/// A stream with TLS.
pub struct Secured<S> {
    stream: S,
    channel: Channel,
    /// The end was announced to the peer.
    closing: bool,
}

impl<S> Secured<S> {
    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Puts a stream and its channel together.
    pub fn new(stream: S, channel: Channel) -> Self {
        Self { stream, channel, closing: false }
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
        let Self { stream, channel, .. } = self.get_mut();
        let len_max = buffer.remaining();
        channel.receiver.poll_receive(stream, buffer, len_max, cx).map_ok(drop)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, channel, .. } = self.get_mut();
        pending(channel.sender.send(slices, writing(stream, cx)))
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
            let Outbound { sealer, bytes } = &mut self.channel.sender.0;
            sealer.end(Alert::Close, bytes)?;
        }
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A completed handshake.
pub(crate) struct Completed {
    pub channel: Channel,
    /// The peer's certificate, if it sent one.
    pub certificate: Option<CertificateDer<'static>>,
}

/// One side of a handshake.
pub(crate) trait Side: Sized {
    type Data;
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn is_handshaking(&self) -> bool;
    fn certificate(&self) -> Option<CertificateDer<'static>>;
    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Keys>), rustls::Error>;
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.peer_certificates().and_then(<[_]>::first).cloned()
    }

    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Keys>), rustls::Error> {
        let (secrets, keys) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(keys)))
    }
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.peer_certificates().and_then(<[_]>::first).cloned()
    }

    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Keys>), rustls::Error> {
        let (secrets, keys) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(keys)))
    }
}

impl Keys for KernelConnection<ClientConnectionData> {
    fn next(&mut self, sending: bool) -> Result<ConnectionTrafficSecrets, rustls::Error> {
        let (_, secrets) = if sending { self.update_tx_secret() } else { self.update_rx_secret() }?;
        Ok(secrets)
    }

    fn ticket(&mut self, ticket: &[u8]) -> Result<(), rustls::Error> {
        self.handle_new_session_ticket(ticket)
    }
}

impl Keys for KernelConnection<ServerConnectionData> {
    fn next(&mut self, sending: bool) -> Result<ConnectionTrafficSecrets, rustls::Error> {
        let (_, secrets) = if sending { self.update_tx_secret() } else { self.update_rx_secret() }?;
        Ok(secrets)
    }

    fn ticket(&mut self, _ticket: &[u8]) -> Result<(), rustls::Error> {
        Err(rustls::Error::General("a client sent a session ticket".into()))
    }
}

/// What a handshake needs next.
enum Need {
    Send,
    Receive,
    Process,
    Complete,
}

/// Performs a handshake over `stream`. Not limited in time.
pub(crate) async fn handshake<C: Side, S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: C,
    stream: &mut S,
) -> io::Result<Completed> {
    let (mut input, mut output, mut content) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
    // Only whole records are processed, one more each time: what follows the handshake is not for this connection.
    let mut given = 0;
    loop {
        let need = advance(&mut connection, &mut input, &mut given, &mut output, &mut content);
        let need = match need {
            Ok(need) => need,
            Err(error) => {
                // Tells the peer why.
                let _ = advance(&mut connection, &mut BytesMut::new(), &mut 0, &mut output, &mut content);
                let _ = stream.write_all_buf(&mut output).await;
                return Err(error);
            }
        };
        match need {
            Need::Process => {}
            Need::Send => {
                stream.write_all_buf(&mut output).await?;
                stream.flush().await?;
            }
            Need::Complete if !connection.is_handshaking() => break,
            Need::Receive | Need::Complete => {
                while match Opener::record_len(&input[given..])? {
                    Some(len) => input.len() < given + len,
                    None => true,
                } {
                    if input.len() >= HANDSHAKE_BYTES_MAX {
                        return Err(io::Error::other("the peer's TLS handshake is too long"));
                    }
                    input.reserve(RECEIVE_LEN_MIN);
                    if stream.read_buf(&mut input).await? == 0 {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            "the peer closed the connection during the TLS handshake",
                        ));
                    }
                }
                given += Opener::record_len(&input[given..])?.unwrap_or(0);
            }
        }
    }
    if !output.is_empty() {
        stream.write_all_buf(&mut output).await?;
        stream.flush().await?;
    }
    let certificate = connection.certificate();
    let (ExtractedSecrets { tx, rx }, keys) = connection.finish().map_err(io::Error::other)?;
    let shared = Arc::new(Shared { keys: Mutex::new(keys), key_wanted: AtomicBool::new(false) });
    let sealer = Sealer::new(tx, &shared)?;
    let inbound = Inbound::new(Opener::new(rx, &shared)?, &content, &input[given..]);
    let channel = Channel {
        receiver: Receiver { inbound, receive_len: RECEIVE_LEN_MIN },
        sender: Sender(Outbound { sealer, bytes: BytesMut::new() }),
    };
    Ok(Completed { channel, certificate })
}

/// The error of a handshake, for a person.
fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => "the peer's certificate is revoked".into(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the peer's certificate is of another room or authority".into()
        }
        rustls::Error::AlertReceived(_) => {
            format!("the peer does not accept this machine's certificate, or speaks no TLS 1.3 ({error})")
        }
        error => format!("TLS: {error}"),
    }
}

/// One step of a handshake.
fn advance<C: Side>(
    connection: &mut C,
    input: &mut BytesMut,
    given: &mut usize,
    output: &mut BytesMut,
    content: &mut BytesMut,
) -> io::Result<Need> {
    let UnbufferedStatus { discard, state } = connection.process(&mut input[..*given]);
    let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, describe(&error)));
    let need = match state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let start = output.len();
            let mut room = 0;
            let written = loop {
                output.resize(start + room, 0);
                match data.encode(&mut output[start..]) {
                    Ok(written) => break written,
                    Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) if room == 0 => {
                        room = required_size;
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
            };
            output.truncate(start + written);
            Ok(Need::Process)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Need::Send)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Need::Receive),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Need::Complete),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            while let Some(record) = traffic.next_record() {
                content.put_slice(record.map_err(io::Error::other)?.payload);
            }
            Ok(Need::Process)
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection during the TLS handshake"))
        }
        Ok(_) => Err(io::Error::other("an unknown state of the TLS handshake")),
        Err(error) => Err(error),
    };
    input.advance(discard);
    *given -= discard;
    need
}
