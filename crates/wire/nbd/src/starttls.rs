//! The client's way into TLS: `NBD_OPT_STARTTLS`, before any other option.
//!
//! Of the bytes that arrive before TLS, only the server's greeting is used: a man in the middle can send unencrypted
//! bytes (CVE-2021-3716).

use std::io;

use bytes::{BufMut, BytesMut};
use cheetah_device::error::{ENONET, EPROTONOSUPPORT};
use cheetah_tls::{Channel, ClientTls, Identity, RoomId, Standing};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::greeting;
use crate::proto::{ClientFlags, HandshakeFlags, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader, option};

/// The most bytes of a refusal that are read.
const MESSAGE_LEN_MAX: usize = 4096;

/// TLS on a connection.
pub(crate) struct Secured {
    pub channel: Channel,
    /// The server, if it is a member of a room.
    pub peer: Option<Identity>,
    /// Whether that member's certificate is still accepted.
    pub standing: Option<Standing>,
    /// Whether both sides omit the padding after `NBD_OPT_EXPORT_NAME`.
    pub no_zeroes: bool,
}

/// Starts TLS with a server, reached at `host` and `port`.
///
/// A member of a room is asked before its greeting has arrived, which saves a round trip; its answer is checked as usual.
pub(crate) async fn start<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    tls: &ClientTls,
    host: &str,
    port: u16,
) -> io::Result<Secured> {
    let mut wanted = ClientFlags::FIXED_NEWSTYLE.with(ClientFlags::NO_ZEROES);
    let eager = !tls.is_foreign();
    if eager {
        ask(stream, wanted).await?;
    }
    let greeting = greeting::read(stream).await?;
    let offered = HandshakeFlags(u16::from_be_bytes([greeting[16], greeting[17]]));
    let no_zeroes = offered.has(HandshakeFlags::NO_ZEROES);
    if !offered.has(HandshakeFlags::FIXED_NEWSTYLE) || eager && !no_zeroes {
        return Err(no_tls("it speaks an old form of NBD"));
    }
    if !eager {
        wanted = ClientFlags::FIXED_NEWSTYLE.with_if(no_zeroes, ClientFlags::NO_ZEROES);
        ask(stream, wanted).await?;
    }
    answer(stream).await?;
    let (channel, peer) = tls.handshake(host, port, stream).await?;
    if let Some(peer) = &peer {
        tracing::debug!("connected to {peer} at {host}:{port}");
    }
    let standing = peer.as_ref().and_then(|peer| tls.standing(peer));
    Ok(Secured { channel, peer, standing, no_zeroes })
}

/// Sends the client's flags and the option.
async fn ask(stream: &mut (impl AsyncWrite + Unpin), flags: ClientFlags) -> io::Result<()> {
    let mut out = BytesMut::with_capacity(20);
    out.put_u32(flags.0);
    out.put_u64(OPTION_MAGIC);
    out.put_u32(option::STARTTLS);
    out.put_u32(0);
    stream.write_all_buf(&mut out).await
}

/// Reads the reply, and nothing after it.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut header = [0; 20];
    stream.read_exact(&mut header).await?;
    let mut reader = Reader::new(&header);
    let (magic, number, kind, len) = (reader.u64(), reader.u32(), reader.u32(), reader.u32());
    if magic != Some(OPTION_REPLY_MAGIC) || number != Some(option::STARTTLS) {
        return Err(io::Error::other("what should be the reply to an option is something else"));
    }
    let len = len.and_then(|len| usize::try_from(len).ok()).unwrap_or(usize::MAX);
    match kind {
        Some(option::REP_ACK) if len == 0 => Ok(()),
        Some(kind) if kind & option::REP_ERROR_BIT != 0 => {
            let mut message = vec![0; len.min(MESSAGE_LEN_MAX)];
            stream.read_exact(&mut message).await?;
            Err(no_tls(&String::from_utf8_lossy(&message)))
        }
        _ => Err(io::Error::other("the server's reply to the request for TLS is malformed")),
    }
}

/// Why a connection cannot have the TLS that it needs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTls {
    /// This machine has no credential.
    #[error("nbds:// needs a credential, or tls-certificates=DIR in the URI")]
    NoCredential,
    /// This machine has no credential of the server's room.
    #[error("it belongs to room {0}")]
    OtherRoom(RoomId),
    /// The server does not speak it, for the reason in parentheses.
    #[error("it does not speak TLS{0}, which this room's connections need")]
    Server(String),
}

impl NoTls {
    /// The errno that stands for it, if this is why a connection failed.
    pub fn errno_of(error: &io::Error) -> Option<i32> {
        error.get_ref()?.downcast_ref().map(|why| match why {
            Self::NoCredential | Self::OtherRoom(_) => ENONET,
            Self::Server(_) => EPROTONOSUPPORT,
        })
    }
}

/// The error for a server without TLS. The client never falls back to an unencrypted connection, which a machine in
/// between could force.
fn no_tls(why: &str) -> io::Error {
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.escape_debug()) };
    io::Error::other(NoTls::Server(why))
}
