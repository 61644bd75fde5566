//! Servers that call us: connections made by the far end, for a client to use instead of dialling itself.
//!
//! An agent behind a firewall or NAT cannot be dialled. It connects to an [`Inbox`] and then is the NBD server on the
//! connection it made. NBD has the server speak first, so whoever connects and does not greet as an NBD server, in
//! time, is hung up on; it never gets further than this.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use crate::proto::{MAGIC, OPTION_MAGIC};
use crate::tune::{self, tune};

/// Bytes of a server's greeting: two magic numbers and flags.
const GREETING_LEN: usize = 18;
/// How long a caller may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Callers that have not greeted yet; more are hung up on.
const STRANGERS_MAX: usize = 64;
/// Servers waiting to be used; for more, the one that waits longest goes.
const WAITING_MAX: usize = 64;

/// Where servers call. Hung up when dropped.
#[derive(Debug)]
pub struct Inbox {
    /// Tells it from every other one.
    id: u64,
    address: SocketAddr,
    waiting: Arc<Waiting>,
    accepting: JoinHandle<()>,
}

/// A server that called and greeted. Its greeting is in `received`.
#[derive(Debug)]
pub(crate) struct Caller {
    pub stream: TcpStream,
    pub received: BytesMut,
    pub from: SocketAddr,
}

#[derive(Debug, Default)]
struct Waiting {
    callers: Mutex<VecDeque<Caller>>,
    arrived: Notify,
}

impl Inbox {
    /// Waits for servers at `address`; port 0 takes any free port. Callers are met on the calling runtime.
    ///
    /// # Errors
    ///
    /// The operating system's, such as an address in use.
    pub async fn listen(address: SocketAddr) -> io::Result<Arc<Self>> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let waiting = Arc::new(Waiting::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&waiting)));
        Ok(Arc::new(Self { id: IDS.fetch_add(1, Ordering::Relaxed), address, waiting, accepting }))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next server that calls, or the last that did and waits. Safe to drop.
    pub(crate) async fn take(&self) -> Caller {
        loop {
            // Listen before looking, or a caller in between would be missed.
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
        // Servers call again only once they know that nobody is there.
        self.waiting.callers.lock().clear();
    }
}

impl PartialEq for Inbox {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Inbox {}

impl Hash for Inbox {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
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

    /// The one that came last: of a server that was restarted, earlier connections may be dead.
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
    /// Whether it hung up. A server that has greeted is silent until it is asked something.
    fn is_gone(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

async fn accept(listener: TcpListener, waiting: Arc<Waiting>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let mut meetings = JoinSet::new();
    loop {
        while meetings.try_join_next().is_some() {}
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, or a caller gone again: the next one may fare better.
                tracing::warn!("could not take a call: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&strangers).try_acquire_owned() else {
            tracing::warn!("hung up on {from}: too many callers that say nothing");
            continue;
        };
        let waiting = Arc::clone(&waiting);
        meetings.spawn(async move {
            let _seat = seat;
            match tokio::time::timeout(GREETING_TIMEOUT, meet(stream, from)).await {
                Ok(Ok(caller)) => waiting.push(caller),
                Ok(Err(error)) => tracing::debug!("hung up on {from}: {error}"),
                Err(_) => tracing::debug!("hung up on {from}: it said nothing"),
            }
        });
    }
}

/// Reads the greeting, and nothing after it.
async fn meet(mut stream: TcpStream, from: SocketAddr) -> io::Result<Caller> {
    tune(&stream)?;
    tune::watch(&stream)?;
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting).await?;
    let greets = greeting.starts_with(&MAGIC.to_be_bytes()) && greeting[8..16] == OPTION_MAGIC.to_be_bytes();
    if !greets {
        return Err(io::Error::other("it is no NBD server"));
    }
    Ok(Caller { stream, received: BytesMut::from(&greeting[..]), from })
}
