//! Serving one client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::allowance::{Allowance, Memory};
use super::answer::Terms;
use super::listener::Stream;
use super::packed::Packs;
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
}

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
    exports: Arc<dyn Exports>,
    limits: &Limits,
    entered: impl FnOnce() + Send,
) -> io::Result<()> {
    match stream {
        Stream::Tcp(stream) => run_on(stream, opening, exports, limits, entered).await,
        Stream::Unix(stream) => run_on(stream, opening, exports, limits, entered).await,
    }
}

async fn run_on<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    opening: Opening,
    exports: Arc<dyn Exports>,
    limits: &Limits,
    entered: impl FnOnce() + Send,
) -> io::Result<()> {
    let (mut received, mut greeting) = (BytesMut::new(), BytesMut::new());
    let exports = Lookup(exports);
    let handshake = ServerHandshake::new(&mut greeting);
    if opening == Opening::Called {
        stream.write_all_buf(&mut greeting).await?;
        receive(&mut stream, &mut received).await?;
    }
    let negotiating = negotiate(&mut stream, handshake, greeting, &mut received, &exports);
    let session = tokio::time::timeout(limits.handshake_timeout, negotiating)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client took too long to negotiate"))??;
    entered();
    let terms = Terms {
        flags: session.flags,
        structured: session.structured,
        allocation: session.contexts.iter().find(|context| context.name == BASE_ALLOCATION).map(|context| context.id),
        packs: packs(&session),
        others: session.contexts.iter().filter(|context| context.name != BASE_ALLOCATION).map(|c| c.id).collect(),
    };
    let gauge = terms.packs.as_ref().map(|packs| Gauge::new(packs.packer.meter()));
    let wire = Wire::new(stream, gauge, limits.rate.clone());
    let allowance = Allowance::new(Arc::clone(&limits.memory));
    Transmission::new(wire, &*session.export.device, terms, received, allowance).run().await
}

/// How the client's reads are packed, if that was granted.
fn packs(session: &Session<Export>) -> Option<Packs> {
    let packer = session.export.packer.as_ref()?;
    let method = session.contexts.iter().find_map(|context| Method::of_context(&context.name))?;
    Some(Packs { method, packer: Arc::clone(packer) })
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
        let step = handshake.advance(received, exports, &mut out);
        match step {
            Step::Again => {}
            Step::Read => receive(stream, received).await?,
            Step::Enter(session) => {
                stream.write_all_buf(&mut out).await?;
                return Ok(session);
            }
            Step::Close(why) => {
                stream.write_all_buf(&mut out).await?;
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
struct Lookup(Arc<dyn Exports>);

impl ExportLookup for Lookup {
    type Export = Export;

    fn list(&self) -> Vec<String> {
        self.0.list()
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<Export>, Refusal> {
        let export = self.0.open(name, contexts).map_err(|error| match error {
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
            flags: flags(geometry.writable),
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
