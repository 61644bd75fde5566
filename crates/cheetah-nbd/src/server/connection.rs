//! One client, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::allowance::Allowance;
use super::answer::Terms;
use super::listener::Stream;
use super::transmission::Transmission;
use super::{Export, Exports, Memory};
use crate::handshake::BlockSizes;
use crate::handshake::server::{ExportLookup, Offer, Refusal, ServerHandshake, Session, Step};
use crate::proto::{BASE_ALLOCATION, OPTION_LEN_MAX, PAYLOAD_LEN_MAX, TransmissionFlags};

/// Serves one client.
pub(super) async fn run(
    stream: Stream,
    exports: Arc<dyn Exports>,
    memory: Memory,
    handshake_timeout: Duration,
) -> io::Result<()> {
    match stream {
        Stream::Tcp(stream) => run_on(stream, exports, memory, handshake_timeout).await,
        Stream::Unix(stream) => run_on(stream, exports, memory, handshake_timeout).await,
    }
}

async fn run_on<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    exports: Arc<dyn Exports>,
    memory: Memory,
    handshake_timeout: Duration,
) -> io::Result<()> {
    let mut received = BytesMut::new();
    let exports = Lookup(exports);
    let negotiating = negotiate(&mut stream, &mut received, &exports);
    let session = tokio::time::timeout(handshake_timeout, negotiating)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client took too long to negotiate"))??;
    let terms = Terms {
        flags: session.flags,
        structured: session.structured,
        allocation: session.contexts.iter().find(|context| context.name == BASE_ALLOCATION).map(|context| context.id),
        others: session.contexts.iter().filter(|context| context.name != BASE_ALLOCATION).map(|c| c.id).collect(),
    };
    Transmission::new(stream, &*session.export.device, terms, received, Allowance::new(memory.shared, memory.bytes_max))
        .run()
        .await
}

async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    received: &mut BytesMut,
    exports: &Lookup,
) -> io::Result<Session<Export>> {
    let mut out = BytesMut::new();
    let mut handshake = ServerHandshake::new(&mut out);
    loop {
        stream.write_all_buf(&mut out).await?;
        let step = handshake.advance(received, exports, &mut out);
        match step {
            Step::Again => {}
            Step::Read => {
                received.reserve(4096.min(OPTION_LEN_MAX));
                if stream.read_buf(received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
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

/// Every connection reaches the same stack of layers, and a flush covers all of it: so MULTI_CONN is true.
fn flags(writable: bool) -> TransmissionFlags {
    use TransmissionFlags as T;
    let reading = T::SEND_FLUSH | T::SEND_FUA | T::SEND_DF | T::CAN_MULTI_CONN | T::SEND_CACHE;
    if writable { reading | T::SEND_TRIM | T::SEND_WRITE_ZEROES | T::SEND_FAST_ZERO } else { reading | T::READ_ONLY }
}
