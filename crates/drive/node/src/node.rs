//! Starting, running and ending a node.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cheetah_device::machine_memory::machine_memory;
use cheetah_device::supervise::persist;
use cheetah_device::{Size, os_error};
use cheetah_error::{Next, next};
use cheetah_kit::machine::host_name;
use cheetah_nbd::server::{self, Listener, MEMORY_BYTES_LEAST, ServerConfig, Workers};
use cheetah_probe::far::FarConfig;
use cheetah_tls::{Credential, CredentialSet, Role, ServerTls, TlsError};
use tokio::runtime::{Builder, Runtime};

use crate::announce::Announcement;
use crate::exports::Exports;
use crate::instance::Instance;
use crate::jobs::{Jobs, Scan};
use crate::lending::Rules;
use crate::search_memory::SearchMemory;
use crate::shared::Shared;
use crate::spare::{SearchRoom, Use};
use crate::store::Store;
use crate::{control, join, spare, watch};
use cheetah_control::api::{NodeReceipt, Status};

/// How long to wait for connections to end when the node ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Bytes to lend, at least 1 MiB. About 0.2 % of them hold digests. A dedicated machine lends less if it can spare less.
    pub memory_bytes: u64,
    /// Whether this machine runs nothing else, and so may lend more: see [`crate::spare::spare_of`].
    pub dedicated: bool,
    /// Bytes that the machine keeps available for others. If set, the node lends what is idle, follows the machine, and
    /// gives memory back when others need it; `memory_bytes` is then the most that it lends.
    pub keep_free_bytes: Option<u64>,
    /// The address for NBD. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// The address for HTTP; the port after the NBD port if `None`.
    pub http_listen: Option<SocketAddr>,
    /// The node's name; the host name if empty.
    pub name: String,
    /// Examiners (`host:port`) to offer the node to, until each accepts.
    pub join: Vec<String>,
    /// Whether to announce it by mDNS.
    pub announce: bool,
    /// Whether to serve in clear, even beyond loopback and in a room.
    pub insecure: bool,
    /// The node's credential: it then serves members of its room only, over TLS. Beyond loopback it is needed, unless
    /// `insecure`.
    pub credential: Option<Credential>,
    /// Whether to take part in measurements of the path to it.
    pub probe: bool,
    /// The number of threads that serve NBD; by the number of processors if `None`.
    pub data_threads: Option<NonZeroUsize>,
    /// The processor that it lends for jobs; `None`: the node does no jobs. Searches take memory beside the lent memory, within what the machine
    /// has left: [`crate::spare::spare_of`] says what a dedicated machine keeps for them.
    pub scan: Option<Scan>,
}

impl NodeConfig {
    /// A node that lends `memory_bytes`, listens on `listen` and the port after it, and is in no room and
    /// not announced.
    pub fn new(memory_bytes: u64, listen: SocketAddr) -> Self {
        Self {
            memory_bytes,
            dedicated: false,
            keep_free_bytes: None,
            listen,
            http_listen: None,
            name: String::new(),
            join: Vec::new(),
            announce: false,
            insecure: false,
            credential: None,
            probe: true,
            data_threads: None,
            scan: None,
        }
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It would be exposed to the network.
    #[error("{0}")]
    Exposed(TlsError),
    /// The memory to lend is too much.
    #[error(transparent)]
    Memory(spare::TooMuch),
    /// Another program listens there.
    #[error("{address} is taken by another program: stop it, or choose another port for {what}")]
    PortTaken {
        /// The address.
        address: SocketAddr,
        /// Its purpose.
        what: &'static str,
    },
    /// The NBD port is the last one.
    #[error("there is no port after {0} for the control API")]
    NoHttpPort(u16),
    /// An operating system error.
    #[error("{context}: {}", os_error::describe(error))]
    System {
        /// The operation that failed.
        context: String,
        /// The error.
        error: io::Error,
    },
}

impl From<NodeError> for cheetah_error::Error {
    fn from(error: NodeError) -> Self {
        let text = error.to_string();
        let next: Option<Next> = match &error {
            NodeError::Exposed(TlsError::Exposed(_)) => Some(next::Room::SayRoomOrInsecure.into()),
            NodeError::NoHttpPort(_) => Some(next::Node::GiveHttp.into()),
            _ => None,
        };
        let is_misuse = matches!(error, NodeError::Exposed(_));
        let made = if is_misuse { Self::misuse(text) } else { Self::failed(text) };
        made.advise(next).because(error)
    }
}

/// A running node. Shutting it down or dropping it ends it and wipes the lent memory.
pub struct Node {
    shared: Arc<Shared>,
    running: Option<Running>,
    nbd_address: SocketAddr,
    http_address: SocketAddr,
}

/// A node's threads.
struct Running {
    /// The runtime that accepts connections and serves HTTP.
    runtime: Runtime,
    /// The threads that serve NBD connections.
    workers: Arc<Workers>,
}

impl Node {
    /// Starts a node. It serves from threads of its own.
    pub fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let http_listen = http_listen(&config)?;
        let (mut tls, credentials) = (None, CredentialSet::from(config.credential.clone()));
        for address in [config.listen, http_listen] {
            tls = credentials.server(address, config.insecure).map_err(NodeError::Exposed)?;
        }
        let machine = Use::of(config.dedicated, config.scan.is_some());
        let memory_bytes = match config.dedicated {
            _ if config.keep_free_bytes.is_some() => config.memory_bytes,
            // The spare memory was measured before the machine joined its room; slightly less may be available now.
            true => {
                spare::spare_bytes(machine).map_or(config.memory_bytes, |now| config.memory_bytes.min(now >> 20 << 20))
            }
            false => spare::check(config.memory_bytes).map_err(NodeError::Memory).map(|()| config.memory_bytes)?,
        };
        let searches = Arc::new(SearchMemory::new(search_room(&config, memory_bytes, machine)));
        let credential = config.credential.filter(|_| !config.insecure);
        let ((nbd, nbd_address), (http, http_address)) = match (config.http_listen, config.listen.port()) {
            (None, 0) => bind_neighbours(config.listen)?,
            _ => (bind(config.listen, "NBD")?, bind(http_listen, "the control API")?),
        };

        let lending = || format!("cannot lend {}", Size(memory_bytes));
        let store = match config.keep_free_bytes {
            Some(_) => Store::on_demand(memory_bytes),
            None => Store::new(memory_bytes),
        };
        let store = store.map_err(|error| system(lending(), error))?;
        let instance = Instance::random().map_err(|error| system("cannot make an id of this run", error.into()))?;
        let is_trusted =
            credential.as_ref().and_then(Credential::identity).is_some_and(|own| own.role == Role::TrustedNode);
        let jobs = Jobs::start(config.scan, is_trusted);
        let jobs = jobs.map_err(|error| system("cannot start threads", error))?.within(Arc::clone(&searches));
        let name = if config.name.is_empty() { host_name() } else { config.name };
        let shared = Arc::new(Shared {
            far: config.probe.then(|| FarConfig { name: name.clone(), sends: true }),
            name,
            instance,
            nbd_port: nbd_address.port(),
            http_port: http_address.port(),
            exports: Exports::new(store, instance),
            jobs,
            credential,
            started: Instant::now(),
        });
        if let Some(keep_free_bytes) = config.keep_free_bytes {
            let rules = Rules { keep_free_bytes, lent_bytes_max: memory_bytes };
            let watching = watch::start(&shared.exports, rules, searches);
            watching.map_err(|error| system("cannot follow the memory of this machine", error))?;
        }
        let threads = config.data_threads.unwrap_or_else(Workers::count_default);
        let workers = Workers::start("nbd", threads).map_err(|error| system("cannot start threads", error))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("control").enable_all().build();
        let runtime = runtime.map_err(|error| system("cannot start threads", error))?;
        let running = Running { runtime, workers: Arc::new(workers) };
        running.serve(nbd, http, tls, &shared).map_err(|error| system("cannot serve", error))?;
        for examiner in config.join {
            let shared = Arc::clone(&shared);
            let joining = async move { persist("joining", || join::join(&examiner, &shared)).await };
            running.runtime.spawn(joining);
        }
        if config.announce {
            running.announce(&shared, nbd_address);
        }
        Ok(Self { shared, running: Some(running), nbd_address, http_address })
    }

    /// The address of its NBD server.
    pub fn nbd_address(&self) -> SocketAddr {
        self.nbd_address
    }

    /// The address of its control API.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Whether it serves members of its room only, over TLS.
    pub fn has_tls(&self) -> bool {
        self.shared.credential.is_some()
    }

    /// Its status.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Its exports.
    pub fn exports(&self) -> &Arc<Exports> {
        &self.shared.exports
    }

    /// Ends the node: cuts every connection, wipes all memory in use, reads it back, and unmaps it.
    pub async fn shutdown(mut self) -> NodeReceipt {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // The node is ended on a separate thread: wiping takes seconds, and a runtime cannot be shut down within
        // another. If no thread can be started, dropping the node ends it, without a receipt.
        let _ = thread::Builder::new().name("end".into()).spawn(move || {
            let receipt = self.end(|runtime| runtime.shutdown_timeout(STOP_TIMEOUT));
            drop(self);
            // The node has ended even if the caller is gone.
            let _ = sender.send(receipt);
        });
        receiver.await.ok().flatten().unwrap_or_default()
    }

    /// Ends the threads, once. Operations in progress complete or are refused, whether `stop` waits or not.
    fn end(&mut self, stop: impl FnOnce(Runtime)) -> Option<NodeReceipt> {
        let Running { runtime, workers } = self.running.take()?;
        let start = Instant::now();
        stop(runtime);
        drop(workers);
        self.shared.jobs.end();
        let exports = self.shared.exports.end();
        let (wiped_total_bytes, verified_zero) = self.shared.exports.store().wiped();
        Some(NodeReceipt {
            node: self.shared.name.clone(),
            instance: self.shared.instance.to_string(),
            lent_bytes: self.shared.exports.store().status().lent_bytes,
            wiped_bytes: exports.iter().map(|receipt| receipt.wiped_bytes).sum(),
            exports,
            wiped_total_bytes,
            verified_zero,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.running.is_none() {
            return;
        }
        // As in `shutdown`; but here the caller waits.
        let ended = thread::scope(|scope| {
            let end = || self.end(|runtime| runtime.shutdown_timeout(STOP_TIMEOUT));
            thread::Builder::new().spawn_scoped(scope, end).map(|thread| thread.join()).is_ok()
        });
        if !ended {
            self.end(Runtime::shutdown_background);
        }
    }
}

impl Running {
    fn serve(
        &self,
        nbd: TcpListener,
        http: TcpListener,
        tls: Option<ServerTls>,
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        let _in_runtime = self.runtime.enter();
        let config = ServerConfig {
            // In addition to the lent memory. Only clients without structured replies need it: for others, large requests are
            // answered in pieces.
            memory_bytes_max: MEMORY_BYTES_LEAST,
            workers: Some(Arc::clone(&self.workers)),
            tls: tls.clone(),
            ..ServerConfig::default()
        };
        let listener = Listener::Tcp(tokio::net::TcpListener::from_std(nbd)?);
        let exports: Arc<dyn server::Exports> = Arc::clone(&shared.exports) as _;
        self.runtime.spawn(server::serve(listener, exports, config));
        let http = tokio::net::TcpListener::from_std(http)?;
        self.runtime.spawn(control::server::serve(http, tls, Arc::clone(shared)));
        Ok(())
    }

    fn announce(&self, shared: &Arc<Shared>, listen: SocketAddr) {
        match Announcement::start(shared, listen) {
            Ok(announcement) => drop(self.runtime.spawn(announcement.refresh(Arc::clone(shared), listen))),
            Err(error) => tracing::warn!(%error, "the node is not announced by mDNS: name it to be found"),
        }
    }
}

/// What searches may take, beside the memory to lend; `None` if the machine does not say how much it has, or the node does not search.
fn search_room(config: &NodeConfig, lent_bytes: u64, machine: Use) -> Option<SearchRoom> {
    let memory = machine_memory().filter(|_| config.scan.is_some())?;
    Some(match config.keep_free_bytes {
        Some(keep_free_bytes) => SearchRoom::followed(memory.total_bytes, keep_free_bytes),
        None => SearchRoom::beside(memory, lent_bytes, machine),
    })
}

/// A listening socket and its address.
type Bound = (TcpListener, SocketAddr);

fn http_listen(config: &NodeConfig) -> Result<SocketAddr, NodeError> {
    match (config.http_listen, config.listen.port()) {
        (Some(address), _) => Ok(address),
        (None, 0) => Ok(config.listen),
        (None, port) => {
            let next = port.checked_add(1).ok_or(NodeError::NoHttpPort(port))?;
            Ok(SocketAddr::new(config.listen.ip(), next))
        }
    }
}

/// Binds two consecutive free ports: clients that know a node's NBD port expect the control API on the next one.
fn bind_neighbours(any: SocketAddr) -> Result<(Bound, Bound), NodeError> {
    const ATTEMPTS: usize = 64;
    for _ in 0..ATTEMPTS {
        let nbd = bind(any, "NBD")?;
        let Some(next) = nbd.1.port().checked_add(1) else { continue };
        match bind(SocketAddr::new(any.ip(), next), "the control API") {
            Ok(http) => return Ok((nbd, http)),
            Err(NodeError::PortTaken { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((bind(any, "NBD")?, bind(any, "the control API")?))
}

fn bind(address: SocketAddr, what: &'static str) -> Result<Bound, NodeError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NodeError::PortTaken { address, what },
        _ => system(format!("cannot listen on {address}"), error),
    })
}

fn system(context: impl Into<String>, error: io::Error) -> NodeError {
    NodeError::System { context: context.into(), error }
}
