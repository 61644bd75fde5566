//! An NBD server over any [`Device`](cheetah_device::Device).
//!
//! [`serve`] accepts clients, a [`Handshake`](crate::handshake) lets each choose an export, and from then on the
//! connection is one [`transmission::Transmission`]: a state machine that takes requests out of what was
//! received, asks the device, and queues replies. All requests in the receive buffer are answered together,
//! so at depth one system call carries many requests.

mod access;
pub mod agreed;
mod allowance;
mod answer;
mod arrivals;
mod batching;
mod call;
mod connection;
mod listener;
mod outbox;
mod packed;
mod single_export;
mod split;
mod split_state;
mod streaming;
mod terms;
mod transmission;
mod wire;
mod work;
mod workers;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::supervise::{contain, panic_point};
use cheetah_device::{DynDevice, Error};
use cheetah_tls::{ConnectionSlot, ConnectionSlots, ServerTls};
use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use self::allowance::Memory;
use self::connection::{Limits, Opening};
use self::listener::Accepted;
use self::wire::Limit;
use crate::packing::Packer;

pub use allowance::{MEMORY_BYTES_LEAST, MEMORY_BYTES_USUAL};
pub use listener::{Listener, SocketFile};
pub use single_export::SingleExport;
pub use workers::Workers;

/// The pause after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The exports that a server offers.
pub trait Exports: Send + Sync {
    /// The names to list (NBD_OPT_LIST).
    fn list(&self) -> Vec<String>;

    /// Opens the export `name` for one connection. `contexts` are the client's queries in the `x-cheetah:`
    /// namespace; the export says which it grants.
    ///
    /// # Errors
    ///
    /// Why the client cannot open it; the text is sent to the client.
    fn open(&self, name: &str, contexts: &[String]) -> Result<Export, Error>;
}

/// One opening of an export. Dropped when the connection ends.
pub struct Export {
    /// The device to read and write.
    pub device: DynDevice,
    /// The description (NBD_INFO_DESCRIPTION).
    pub description: String,
    /// The granted contexts, of those requested.
    pub contexts: Vec<String>,
    /// Packs reads, where a granted context requests it ([`Method::of_context`](crate::packing::Method::of_context)).
    pub packer: Option<Arc<Packer>>,
}

/// Limits of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// The most clients; further ones are turned away. At most 65,536.
    pub connections_max: usize,
    /// Memory for requests and replies of all connections, beside a small fixed share of each. Less than
    /// [`MEMORY_BYTES_LEAST`] is taken as that.
    pub memory_bytes_max: usize,
    /// The limit for sending to all clients together, in bytes a second.
    pub rate_max: Option<u64>,
    /// Whether clients that vanish must be detected soon, because others need their memory or place.
    pub watch: bool,
    /// How long a client may take to negotiate.
    pub handshake_timeout: Duration,
    /// TLS for TCP clients, which must then start it before anything else. Examiners may read and write, analysts read, and
    /// other members neither. `None`: every client is served, in clear.
    pub tls: Option<ServerTls>,
    /// The threads that serve connections; the caller's runtime if `None`.
    pub workers: Option<Arc<Workers>>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 128,
            memory_bytes_max: 256 << 20,
            rate_max: None,
            watch: false,
            handshake_timeout: Duration::from_secs(30),
            tls: None,
            workers: None,
        }
    }
}

/// Serves `exports` to every client that connects. Runs until it is dropped, which cuts every connection.
pub async fn serve(listener: Listener, exports: Arc<dyn Exports>, config: ServerConfig) -> Infallible {
    Server::new(exports, config).listen(listener).await
}

/// A server: its exports, and the limits that all its connections share.
pub struct Server {
    exports: Arc<dyn Exports>,
    config: ServerConfig,
    slots: ConnectionSlots,
    limits: Arc<Limits>,
}

impl Server {
    /// Creates a server without connections.
    pub fn new(exports: Arc<dyn Exports>, config: ServerConfig) -> Self {
        let limits = Arc::new(Limits {
            memory: Arc::new(Memory::new(config.memory_bytes_max)),
            rate: config.rate_max.map(|rate| Arc::new(Limit::new(rate))),
            handshake_timeout: config.handshake_timeout,
            tls: config.tls.clone(),
        });
        let slots = ConnectionSlots::new(config.connections_max);
        Self { exports, slots, limits, config }
    }

    /// Serves every client that connects. Runs until it is dropped, which cuts every connection made here; one that is
    /// at work on another thread just then may still answer.
    pub async fn listen(&self, listener: Listener) -> Infallible {
        self.accept(listener, &mut JoinSet::new()).await
    }

    /// Serves every client that connects until `stop` is ready, then cuts every connection made here. When it returns,
    /// none of them answers any more, and the exports they had opened are dropped.
    pub async fn listen_until(&self, stop: impl Future<Output = ()>, listener: Listener) {
        let mut connections = JoinSet::new();
        tokio::select! {
            never = self.accept(listener, &mut connections) => match never {},
            () = stop => {}
        }
        connections.shutdown().await;
    }

    async fn accept(&self, listener: Listener, connections: &mut JoinSet<()>) -> Infallible {
        loop {
            // A panic costs the client that caused it; the others need the listener.
            if contain("accepting a client", self.accept_one(&listener, connections)).await.is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    async fn accept_one(&self, listener: &Listener, connections: &mut JoinSet<()>) {
        while connections.try_join_next().is_some() {}
        let accepted = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, no file handle is left. The other clients are still served, and one of them may free a
                // handle.
                tracing::warn!("could not accept a client: {error}");
                return tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        };
        panic_point("nbd-accept");
        let slot = if self.config.tls.is_some() && accepted.is_tcp() {
            self.slots.take_for_handshake()
        } else {
            let Some(slot) = self.slots.try_take() else {
                tracing::warn!("turned a client away: {} are connected already", self.config.connections_max);
                return;
            };
            slot
        };
        if let Err(error) = self.start(accepted, slot, connections) {
            tracing::debug!("a client was gone at once, or cannot be served: {error}");
        }
    }

    /// Serves a client on one of the workers, in a task of its own.
    fn start(&self, accepted: Accepted, slot: ConnectionSlot, connections: &mut JoinSet<()>) -> io::Result<()> {
        accepted.tune()?;
        if self.config.watch
            && let Err(error) = accepted.watch()
        {
            tracing::debug!("a client that disappears will be noticed late: {error}");
        }
        let runtime = self.config.workers.as_ref().map_or_else(Handle::current, |workers| workers.next());
        let (exports, limits) = (Arc::clone(&self.exports), Arc::clone(&self.limits));
        let stream = accepted.enter(&runtime)?;
        let serving = async move {
            panic_point("nbd-connection");
            if let Err(error) = connection::run(stream, Opening::Accepted, slot, exports, &limits, || ()).await {
                tracing::debug!("connection ended: {error}");
            }
        };
        connections.spawn_on(contain("an NBD connection", serving).map(drop), &runtime);
        Ok(())
    }
}
