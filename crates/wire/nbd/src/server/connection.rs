//! Serving one client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::Error;
use cheetah_tls::{Channel, ConnectionSlot, Secured, ServerTls, Standing};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::access::Peer;
use super::allowance::{Allowance, Memory};
use super::arrivals::Arrivals;
use super::listener::Stream;
use super::packed::ReplyPacking;
use super::terms::Terms;
use super::transmission::Transmission;
use super::wire::{Limit, Wire};
use super::{Export, Exports};
use crate::handshake::BlockSizes;
use crate::handshake::server::{ExportLookup, Offer, Refusal, ServerHandshake, Session, Step};
use crate::packing::Method;
use crate::packing::meter::Gauge;
use crate::proto::{BASE_ALLOCATION, OPTION_LEN_MAX, PAYLOAD_LEN_MAX, TransmissionFlags};

/// The limits for connections.
pub(super) struct Limits {
    pub(super) memory: Arc<Memory>,
    pub(super) rate: Option<Arc<Limit>>,
    pub(super) handshake_timeout: Duration,
    pub(super) tls: Option<ServerTls>,
}

/// How long a client may take to authenticate.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a client to accept the end of the connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Which side connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The client, which therefore negotiates at once.
    Accepted,
    /// The server: the client may leave the connection idle until it needs it.
    Called,
}

/// Serves one client. `entered` is called once it has chosen an export.
pub(super) async fn run(
    stream: Stream,
    opening: Opening,
    slot: ConnectionSlot,
    exports: Arc<dyn Exports>,
    limits: &Limits,
    entered: impl FnOnce() + Send,
) -> io::Result<()> {
    let mut greeting = BytesMut::new();
    let here = stream.is_here();
    match (stream, &limits.tls) {
        (Stream::Tcp(stream), Some(tls)) => {
            let (stream, handshake, peer, _slot) = secure(stream, slot, tls).await?;
            let client = Greeted { stream, handshake, greeting, peer, here };
            run_on(client, opening, exports, limits, entered).await
        }
        (Stream::Tcp(stream), None) => {
            let client = Greeted::in_clear(stream, here, &mut greeting);
            run_on(client, opening, exports, limits, entered).await
        }
        (Stream::Unix(stream), _) => {
            let client = Greeted::in_clear(stream, here, &mut greeting);
            run_on(client, opening, exports, limits, entered).await
        }
    }
}

/// A client, and the message to send it first.
struct Greeted<S> {
    stream: S,
    handshake: ServerHandshake,
    greeting: BytesMut,
    peer: Peer,
    /// Whether the client, or the end of a tunnel to it, is on this machine.
    here: bool,
}

impl<S> Greeted<S> {
    fn in_clear(stream: S, here: bool, greeting: &mut BytesMut) -> Self {
        let handshake = ServerHandshake::new(greeting);
        Self { stream, handshake, greeting: greeting.split(), peer: Peer::UNKNOWN, here }
    }
}

/// Starts TLS with a client, and gives it a slot among the connections.
async fn secure(
    mut stream: TcpStream,
    slot: ConnectionSlot,
    tls: &ServerTls,
) -> io::Result<(Secured<TcpStream>, ServerHandshake, Peer, OwnedSemaphorePermit)> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the client took too long to start TLS");
    let starting = async { tokio::time::timeout(TLS_TIMEOUT, start_tls(&mut stream, tls)).await.map_err(late)? };
    let ((channel, standing, handshake), slot) = slot.authenticate(starting).await?;
    Ok((Secured::new(stream, channel), handshake, Peer::member(standing), slot))
}

/// Greets a client, and waits until it has started TLS.
async fn start_tls(stream: &mut TcpStream, tls: &ServerTls) -> io::Result<(Channel, Standing, ServerHandshake)> {
    let (mut received, mut out) = (BytesMut::new(), BytesMut::new());
    let mut handshake = ServerHandshake::with_tls(&mut out);
    loop {
        stream.write_all_buf(&mut out).await?;
        match handshake.advance(&mut received, &NoExports, &mut out) {
            Step::Again => {}
            Step::Read => receive(stream, &mut received).await?,
            Step::StartTls => break,
            Step::Enter(_) => return Err(io::Error::other("an export was chosen without TLS")),
            Step::Close(why) => {
                stream.write_all_buf(&mut out).await?;
                return Err(io::Error::other(why));
            }
        }
    }
    stream.write_all_buf(&mut out).await?;
    let (channel, standing) = tls.handshake(stream).await?;
    let standing = standing.ok_or_else(|| io::Error::other("the client has no certificate"))?;
    Ok((channel, standing, handshake.secured()))
}

/// The exports offered to clients without TLS: none.
struct NoExports;

impl ExportLookup for NoExports {
    type Export = ();

    fn list(&self) -> Vec<String> {
        Vec::new()
    }

    fn open(&self, _name: &str, _contexts: &[String]) -> Result<Offer<()>, Refusal> {
        Err(Refusal::policy("start TLS first"))
    }
}

async fn run_on<S: AsyncRead + AsyncWrite + Arrivals + Unpin>(
    client: Greeted<S>,
    opening: Opening,
    exports: Arc<dyn Exports>,
    limits: &Limits,
    entered: impl FnOnce() + Send,
) -> io::Result<()> {
    let Greeted { mut stream, handshake, mut greeting, peer, here } = client;
    let mut received = BytesMut::new();
    let exports = Lookup { exports, peer: peer.clone() };
    if opening == Opening::Called {
        stream.write_all_buf(&mut greeting).await?;
        receive(&mut stream, &mut received).await?;
    }
    let negotiating = negotiate(&mut stream, handshake, greeting, &mut received, &exports);
    let session = tokio::time::timeout(limits.handshake_timeout, negotiating)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client took too long to negotiate"))??;
    tracing::debug!("serving an export to {}", peer.name());
    entered();
    let terms = Terms {
        flags: session.flags,
        structured: session.structured,
        allocation: session.contexts.iter().find(|context| context.name == BASE_ALLOCATION).map(|context| context.id),
        packs: packs(&session),
        others: session.contexts.iter().filter(|context| context.name != BASE_ALLOCATION).map(|c| c.id).collect(),
    };
    let gauge = terms.packs.as_ref().map(|packs| Gauge::new(packs.packer.meter(), here));
    let mut wire = Wire::new(stream, gauge, limits.rate.clone());
    let allowance = Allowance::new(Arc::clone(&limits.memory));
    let device = &*session.export.device;
    Transmission::new(&mut wire, device, terms, received, allowance, peer).run().await?;
    // With TLS, this tells the client that nothing was cut off.
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, wire.shutdown()).await;
    Ok(())
}

/// How the client's reads are packed, if that was granted.
fn packs(session: &Session<Export>) -> Option<ReplyPacking> {
    let packer = session.export.packer.as_ref()?;
    let method = session.contexts.iter().find_map(|context| Method::of_context(&context.name))?;
    Some(ReplyPacking { method, packer: Arc::clone(packer) })
}

async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    mut handshake: ServerHandshake,
    mut out: BytesMut,
    received: &mut BytesMut,
    exports: &Lookup,
) -> io::Result<Session<Export>> {
    loop {
        stream.write_all_buf(&mut out).await?;
        stream.flush().await?;
        // Before each option: its answer would tell names and sizes.
        if exports.peer.is_revoked() {
            return Err(io::Error::other(format!("the certificate of {} was revoked", exports.peer.name())));
        }
        let step = handshake.advance(received, exports, &mut out);
        match step {
            Step::StartTls => return Err(io::Error::other("the client starts TLS again")),
            Step::Again => {}
            Step::Read => receive(stream, received).await?,
            Step::Enter(session) => {
                stream.write_all_buf(&mut out).await?;
                stream.flush().await?;
                return Ok(session);
            }
            Step::Close(why) => {
                stream.write_all_buf(&mut out).await?;
                stream.flush().await?;
                return Err(io::Error::other(why));
            }
        }
    }
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S, received: &mut BytesMut) -> io::Result<()> {
    received.reserve(4096.min(OPTION_LEN_MAX));
    match stream.read_buf(received).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Offers devices in NBD's terms.
struct Lookup {
    exports: Arc<dyn Exports>,
    peer: Peer,
}

impl ExportLookup for Lookup {
    type Export = Export;

    fn list(&self) -> Vec<String> {
        if self.peer.refusal().is_some() { Vec::new() } else { self.exports.list() }
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<Export>, Refusal> {
        if let Some(why) = self.peer.refusal() {
            tracing::warn!("refused export '{}' to {}", name.escape_debug(), self.peer.name());
            return Err(Refusal::policy(why));
        }
        let export = self.exports.open(name, &self.peer.allowed(contexts)).map_err(|error| match error {
            Error::Fenced(_) | Error::ReadOnly => Refusal::policy(error.to_string()),
            error => Refusal::unknown(error.to_string()),
        })?;
        let geometry = export.device.geometry();
        let blocks = BlockSizes {
            min: 1,
            preferred: geometry.block_preferred.clamp(512, PAYLOAD_LEN_MAX),
            payload_max: PAYLOAD_LEN_MAX,
        };
        Ok(Offer {
            size: geometry.size,
            flags: flags(geometry.writable && self.peer.may_write()),
            description: export.description.clone(),
            blocks,
            contexts: export.contexts.clone(),
            export,
        })
    }
}

/// All connections share one stack of layers, and a flush covers all of it, so MULTI_CONN holds.
fn flags(writable: bool) -> TransmissionFlags {
    use TransmissionFlags as T;
    let reading = T::SEND_FLUSH | T::SEND_FUA | T::SEND_DF | T::CAN_MULTI_CONN | T::SEND_CACHE;
    if writable { reading | T::SEND_TRIM | T::SEND_WRITE_ZEROES | T::SEND_FAST_ZERO } else { reading | T::READ_ONLY }
}
