//! Serving a client with which everything is agreed already: the kernel, which learns size and flags by another way than a
//! handshake. It gets simple replies.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use cheetah_device::supervise::{contain, panic_point};
use cheetah_device::{Device, DynDevice};
use futures::future::join_all;

use super::access::Peer;
use super::allowance::{Allowance, Memory};
use super::terms::Terms;
pub use super::transmission::Ending;
use super::transmission::Transmission;
use super::wire::Wire;
use crate::os::{StdUnixStream, UnixStream};
use crate::proto::TransmissionFlags;

/// Returns the flags that the kernel gets for a device.
pub fn flags(device: &dyn Device) -> TransmissionFlags {
    use TransmissionFlags as T;
    let reading = T::HAS_FLAGS | T::SEND_FLUSH | T::SEND_FUA | T::CAN_MULTI_CONN;
    if device.geometry().writable { reading | T::SEND_TRIM | T::SEND_WRITE_ZEROES } else { reading | T::READ_ONLY }
}

/// Serves a client over its connections, which are non-blocking, until all of them have ended. Returns [`Ending::Asked`] if
/// the client said that it was done. Requests hold at most `memory_bytes` of content, or
/// [`MEMORY_BYTES_LEAST`](super::MEMORY_BYTES_LEAST) if that is more.
///
/// # Errors
///
/// If a connection breaks, or the client violates the protocol. The others are then served to their end.
pub async fn serve(
    connections: Vec<StdUnixStream>,
    device: DynDevice,
    flags: TransmissionFlags,
    memory_bytes: usize,
) -> io::Result<Ending> {
    let memory = Arc::new(Memory::new(memory_bytes));
    let serving = connections.into_iter().map(|stream| {
        let (device, memory) = (Arc::clone(&device), Arc::clone(&memory));
        let serving = async move { contain("an NBD connection", one(stream, device, flags, memory)).await };
        async {
            tokio::spawn(serving)
                .await
                .map_err(io::Error::other)?
                .map_err(|panic| io::Error::other(panic.to_string()))?
        }
    });
    let endings: io::Result<Vec<_>> = join_all(serving).await.into_iter().collect();
    let asked = endings?.contains(&Ending::Asked);
    Ok(if asked { Ending::Asked } else { Ending::Closed })
}

async fn one(
    stream: StdUnixStream,
    device: DynDevice,
    flags: TransmissionFlags,
    memory: Arc<Memory>,
) -> io::Result<Ending> {
    panic_point("nbd-connection");
    let stream = UnixStream::from_std(stream)?;
    let mut wire = Wire::new(stream, None, None);
    let terms = Terms { flags, structured: false, allocation: None, packs: None, others: Vec::new() };
    let (allowance, received) = (Allowance::new(memory), BytesMut::new());
    Transmission::new(&mut wire, &*device, terms, received, allowance, Peer::UNKNOWN).run().await
}
