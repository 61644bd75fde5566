//! The limit for a server's connections.

use std::io;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::handshake_slots::{HandshakeSlot, HandshakeSlots};

/// The connections that a server accepts at once: a fixed number, and [`HandshakeSlots`] for those that have not
/// authenticated yet.
#[derive(Debug)]
pub struct ConnectionSlots {
    connections: Arc<Semaphore>,
    handshakes: Arc<HandshakeSlots>,
}

/// A client's slot.
#[derive(Debug)]
pub enum ConnectionSlot {
    /// One of the connections.
    Connection(OwnedSemaphorePermit),
    /// One for the handshake; after it, one of these connections, if one is free.
    Handshake(Arc<Semaphore>, HandshakeSlot),
}

impl ConnectionSlots {
    /// At most this many connections.
    pub fn new(connections_max: usize) -> Self {
        Self { connections: Arc::new(Semaphore::new(connections_max)), handshakes: Arc::default() }
    }

    /// A slot for a client that need not authenticate; `None` if none is free.
    pub fn try_take(&self) -> Option<ConnectionSlot> {
        Arc::clone(&self.connections).try_acquire_owned().ok().map(ConnectionSlot::Connection)
    }

    /// The same, once a slot is free.
    pub async fn take(&self) -> ConnectionSlot {
        match Arc::clone(&self.connections).acquire_owned().await {
            Ok(connection) => ConnectionSlot::Connection(connection),
            // Not reached: the semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// A slot for a client that must authenticate first.
    pub fn take_for_handshake(&self) -> ConnectionSlot {
        ConnectionSlot::Handshake(Arc::clone(&self.connections), self.handshakes.take())
    }
}

impl ConnectionSlot {
    /// Runs a handshake. Returns its result, and the client's slot among the connections.
    ///
    /// # Errors
    ///
    /// The handshake's; or if it was the oldest of too many, or all connections are taken.
    pub async fn authenticate<T>(
        self,
        handshake: impl Future<Output = io::Result<T>>,
    ) -> io::Result<(T, OwnedSemaphorePermit)> {
        match self {
            Self::Connection(connection) => Ok((handshake.await?, connection)),
            Self::Handshake(connections, mut slot) => {
                let evicted = || io::Error::other("too many clients have not authenticated yet");
                let done = slot.run(handshake).await.ok_or_else(evicted)??;
                let full = |_| io::Error::other("all connections are taken by other members");
                Ok((done, connections.try_acquire_owned().map_err(full)?))
            }
        }
    }
}
