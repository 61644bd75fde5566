//! The handshake: rustls's, over any stream.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use parking_lot::Mutex;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{
    CertificateError, CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, OtherError, SupportedCipherSuite,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::channel::{Channel, Receiver, Sender};
use crate::error::Refusal;
use crate::record::{Keys, Opener, Sealer, Shared};

/// The most bytes of a handshake that are received before they are processed.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;
/// The most bytes received at once.
const RECEIVE_LEN: usize = 4 << 10;
/// The most steps to take after an error.
const LAST_STEPS_MAX: usize = 16;
/// How long to wait for the peer to read why it is refused, and to close the connection.
const LINGER: Duration = Duration::from_secs(1);

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
    fn cipher(&self) -> &'static str;
    fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Keys>), rustls::Error>;
}

/// rustls has two types for the two sides, with methods of the same names.
macro_rules! side {
    ($connection:ident, $data:ident, |$keys:ident, $ticket:ident| $taken:expr) => {
        impl Side for $connection {
            type Data = $data;

            fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, $data> {
                self.process_tls_records(input)
            }

            fn is_handshaking(&self) -> bool {
                (**self).is_handshaking()
            }

            fn certificate(&self) -> Option<CertificateDer<'static>> {
                self.peer_certificates().and_then(<[_]>::first).cloned()
            }

            fn cipher(&self) -> &'static str {
                self.negotiated_cipher_suite().map_or("unknown", cipher)
            }

            fn finish(self) -> Result<(ExtractedSecrets, Box<dyn Keys>), rustls::Error> {
                let (secrets, keys) = self.dangerous_into_kernel_connection()?;
                Ok((secrets, Box::new(keys)))
            }
        }

        impl Keys for KernelConnection<$data> {
            fn next(&mut self, sending: bool) -> Result<ConnectionTrafficSecrets, rustls::Error> {
                let (_, secrets) = if sending { self.update_tx_secret() } else { self.update_rx_secret() }?;
                Ok(secrets)
            }

            fn ticket(&mut self, $ticket: &[u8]) -> Result<(), rustls::Error> {
                let $keys = self;
                $taken
            }
        }
    };
}

side!(UnbufferedClientConnection, ClientConnectionData, |keys, ticket| keys.handle_new_session_ticket(ticket));
side!(UnbufferedServerConnection, ServerConnectionData, |_keys, _ticket| {
    Err(rustls::Error::General("a client sent a session ticket".into()))
});

/// The cipher's usual name.
fn cipher(suite: SupportedCipherSuite) -> &'static str {
    match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "AES-128-GCM",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "AES-256-GCM",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "ChaCha20-Poly1305",
        _ => "unknown",
    }
}

/// The next step of a handshake.
enum Need {
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
    // Only whole records are processed, one more each time: bytes after the handshake are not for rustls's connection.
    let mut given = 0;
    loop {
        let need = advance(&mut connection, &mut input, &mut given, &mut output, &mut content);
        let need = match need {
            Ok(need) => need,
            Err(error) => {
                // The alert tells the peer why. It comes behind the part of a flight that was made before the error. A step
                // after it would process what was received again.
                for _ in 0..LAST_STEPS_MAX {
                    let start = output.len();
                    let last = advance(&mut connection, &mut input, &mut given, &mut output, &mut content);
                    if !matches!(last, Ok(Need::Process)) || is_alert(&output[start..]) {
                        break;
                    }
                }
                let _ = stream.write_all_buf(&mut output).await;
                linger(stream).await;
                return Err(error);
            }
        };
        match need {
            Need::Process => {}
            Need::Complete if !connection.is_handshaking() => break,
            Need::Receive | Need::Complete => {
                while match Opener::record_len(&input[given..])? {
                    Some(len) => input.len() < given + len,
                    None => true,
                } {
                    if input.len() >= HANDSHAKE_BYTES_MAX {
                        return Err(io::Error::other("the peer's TLS handshake is too long"));
                    }
                    // Sent only now, so that a flight is sent whole: Nagle's algorithm delays a part until the one
                    // before it is acknowledged.
                    send(&mut output, stream).await?;
                    input.reserve(RECEIVE_LEN);
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
    send(&mut output, stream).await?;
    let (certificate, cipher) = (connection.certificate(), connection.cipher());
    let (ExtractedSecrets { tx, rx }, keys) = connection.finish().map_err(io::Error::other)?;
    let shared = Arc::new(Shared { keys: Mutex::new(keys), key_wanted: AtomicBool::new(false) });
    let sender = Sender::new(Sealer::new(tx, &shared)?);
    let receiver = Receiver::new(Opener::new(rx, &shared)?, &content, &input[given..]);
    Ok(Completed { channel: Channel { receiver, sender, cipher }, certificate })
}

/// Whether a record is an alert: by its type, or, encrypted, by its length, which no message of a handshake has.
fn is_alert(record: &[u8]) -> bool {
    /// The header, level and description, the type, and the tag.
    const SEALED_LEN: usize = 5 + 2 + 1 + 16;
    matches!(record, [21, ..]) || matches!(record, [23, ..] if record.len() == SEALED_LEN)
}

/// Ends a connection so that the peer reads the last word: a socket that is closed with unread bytes is reset, and the
/// peer's kernel may report that first.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let drain = async {
        stream.shutdown().await?;
        let mut rest = BytesMut::with_capacity(RECEIVE_LEN);
        let mut left = HANDSHAKE_BYTES_MAX;
        loop {
            rest.clear();
            match stream.read_buf(&mut rest).await? {
                0 => return io::Result::Ok(()),
                len if len >= left => return Ok(()),
                len => left -= len,
            }
        }
    };
    let _ = timeout(LINGER, drain).await;
}

async fn send(output: &mut BytesMut, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    if !output.is_empty() {
        stream.write_all_buf(output).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// The error of a handshake, for a person.
fn describe(error: &rustls::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string().into(),
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => "the peer's certificate is revoked".into(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the peer's certificate is of another room or authority".into()
        }
        rustls::Error::AlertReceived(alert) => match Refusal::of_alert(u8::from(*alert)) {
            Some(refusal) => refusal.into(),
            None => format!("the peer refuses the handshake, perhaps since it speaks no TLS 1.3 ({error})").into(),
        },
        error => format!("TLS: {error}").into(),
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
            Ok(Need::Process)
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
