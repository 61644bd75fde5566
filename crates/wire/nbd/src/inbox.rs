//! Servers that call: connections made by the server, which a client uses instead of connecting itself.
//!
//! An agent behind a firewall or NAT cannot be dialled. It connects to an [`Inbox`] and then is the NBD server on the
//! connection it made. In NBD the server speaks first, so a caller that does not greet as an NBD server in time is
//! disconnected.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::supervise::contain;
use cheetah_tls::{ClientTls, HandshakeSlots};
use futures::FutureExt as _;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::greeting;
use crate::starttls::{self, Secured};
use crate::tune::{self, tune};

/// How long a caller may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a call could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most servers that wait for use; beyond that, the oldest is disconnected.
const WAITING_MAX: usize = 64;

/// A listener for servers that call. Dropping it disconnects those that wait.
pub struct Inbox {
    address: SocketAddr,
    /// It has its own, whose place in memory distinguishes it from all others.
    waiting: Arc<Waiting>,
    accepting: JoinHandle<()>,
}

/// A server that called and greeted. Its greeting is in `received`; with TLS, it is over.
pub(crate) struct Caller {
    pub stream: TcpStream,
    pub received: BytesMut,
    pub secured: Option<Secured>,
    pub from: SocketAddr,
}

#[derive(Default)]
struct Waiting {
    callers: Mutex<VecDeque<Caller>>,
    arrived: Notify,
}

impl Inbox {
    /// Listens on `address`; port 0 takes any free port. Its task runs on the calling runtime. With `tls`, only servers
    /// that it accepts are used; this side is the client of TLS, too.
    ///
    /// # Errors
    ///
    /// The operating system's, such as an address in use.
    pub async fn listen(address: SocketAddr, tls: Option<ClientTls>) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let waiting = Arc::new(Waiting::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&waiting), tls));
        Ok(Arc::new(Self { address, waiting, accepting }))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the most recent server that waits, or the next that calls. Cancel-safe.
    pub(crate) async fn take(&self) -> Caller {
        loop {
            // Register before checking, so that a caller in between is not missed.
            let arrived = self.waiting.arrived.notified();
            if let Some(caller) = self.waiting.pop() {
                return caller;
            }
            arrived.await;
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.accepting.abort();
        // Servers call again once these connections are closed.
        self.waiting.callers.lock().clear();
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbox({})", self.address)
    }
}

impl PartialEq for Inbox {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.waiting, &other.waiting)
    }
}

impl Eq for Inbox {}

impl Hash for Inbox {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.waiting).hash(state);
    }
}

impl Waiting {
    fn push(&self, caller: Caller) {
        let mut callers = self.callers.lock();
        if callers.len() == WAITING_MAX {
            callers.pop_front();
        }
        callers.push_back(caller);
        drop(callers);
        self.arrived.notify_one();
    }

    /// The most recent one: earlier connections of a server that restarted may be dead.
    fn pop(&self) -> Option<Caller> {
        let mut callers = self.callers.lock();
        let found = loop {
            match callers.pop_back() {
                Some(caller) if caller.is_gone() => {}
                found => break found,
            }
        };
        if !callers.is_empty() {
            self.arrived.notify_one();
        }
        found
    }
}

impl Caller {
    /// Whether it closed the connection. A server that has greeted stays silent until it gets a request.
    fn is_gone(&self) -> bool {
        if self.secured.is_some() {
            // With TLS, it has sent session tickets.
            let mut byte = [MaybeUninit::uninit()];
            return match SockRef::from(&self.stream).peek(&mut byte) {
                Ok(len) => len == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
        }
        let read = self.stream.try_read(&mut [0]);
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

async fn accept(listener: TcpListener, waiting: Arc<Waiting>, tls: Option<ClientTls>) {
    // The number of callers that have not greeted is limited, so that the next caller always has a place.
    let slots = Arc::new(HandshakeSlots::default());
    let mut meetings = JoinSet::new();
    loop {
        // A panic costs the caller that caused it; the others need the listener.
        let accepting = accept_one(&listener, &waiting, tls.as_ref(), &slots, &mut meetings);
        if contain("accepting a call", accepting).await.is_err() {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

async fn accept_one(
    listener: &TcpListener,
    waiting: &Arc<Waiting>,
    tls: Option<&ClientTls>,
    slots: &Arc<HandshakeSlots>,
    meetings: &mut JoinSet<()>,
) {
    while meetings.try_join_next().is_some() {}
    let (stream, from) = match listener.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            // For example, no file handle is left; later calls may succeed.
            tracing::warn!("could not take a call: {error}");
            return tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    };
    let mut slot = slots.take();
    let (waiting, tls) = (Arc::clone(waiting), tls.cloned());
    let meeting = async move {
        match slot.run(tokio::time::timeout(GREETING_TIMEOUT, meet(stream, from, tls))).await {
            Some(Ok(Ok(caller))) => waiting.push(caller),
            Some(Ok(Err(error))) => tracing::debug!("hung up on {from}: {error}"),
            Some(Err(_)) => tracing::debug!("hung up on {from}: no greeting"),
            None => tracing::debug!("hung up on {from}: too many callers have not greeted yet"),
        }
    };
    meetings.spawn(contain("greeting a caller", meeting).map(drop));
}

/// Reads the greeting, and nothing after it; then starts TLS.
async fn meet(mut stream: TcpStream, from: SocketAddr, tls: Option<ClientTls>) -> io::Result<Caller> {
    tune(&stream)?;
    tune::watch(&stream)?;
    if let Some(tls) = tls {
        let secured = Some(starttls::start(&mut stream, &tls, &from.ip().to_string(), from.port()).await?);
        return Ok(Caller { stream, received: BytesMut::new(), secured, from });
    }
    let greeting = greeting::read(&mut stream).await?;
    Ok(Caller { stream, received: BytesMut::from(&greeting[..]), secured: None, from })
}
