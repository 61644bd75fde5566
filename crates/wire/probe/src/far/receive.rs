//! Receivers of trains: each on a UDP port of its own, from one address only, for a limited time.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cheetah_device::supervise::contain;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::api::{Arrivals, ReceiveRequest, Receiving, Token};
use super::limits::{KEPT, RECEIVERS_MAX, RECEIVERS_PER_CALLER_MAX, STRANGERS_MAX};
use super::stamped::TimestampingSocket;

/// The receivers of trains, waiting or finished and not yet forgotten.
#[derive(Debug, Clone, Default)]
pub struct Receivers(Arc<Mutex<HashMap<Token, Arc<Receiver>>>>);

/// A receiver.
#[derive(Debug)]
struct Receiver {
    from: IpAddr,
    arrivals: Mutex<Arrivals>,
    forgotten: Notify,
}

/// The reason a receiver was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There are too many.
    #[error("too many trains are expected already; try again in a few seconds")]
    Full,
    /// There is no free port.
    #[error("no free UDP port to receive at: {0}")]
    Io(#[from] io::Error),
}

impl Receivers {
    /// Starts to wait for the train that `caller` is going to send to the address `here`.
    ///
    /// # Errors
    ///
    /// If there are too many receivers, or no free port.
    pub fn start(&self, caller: SocketAddr, here: SocketAddr, request: ReceiveRequest) -> Result<Receiving, Refused> {
        let (from, token) = (caller.ip(), Token::random().map_err(io::Error::from)?);
        let mut at = here;
        at.set_port(0);
        let mut table = self.table();
        let same = table.values().filter(|receiver| receiver.from == from).count();
        if table.len() >= RECEIVERS_MAX || same >= RECEIVERS_PER_CALLER_MAX {
            return Err(Refused::Full);
        }
        let mut socket = TimestampingSocket::bind(at)?;
        let port = socket.port()?;
        let arrivals = Mutex::new(Arrivals { kernel_stamps: socket.is_by_kernel(), ..Arrivals::default() });
        let receiver = Arc::new(Receiver { from, arrivals, forgotten: Notify::new() });
        table.insert(token, Arc::clone(&receiver));
        drop(table);
        let table = self.clone();
        let receiving = async move {
            let kept = async {
                receiver.listen(&mut socket, token, request).await;
                // The port is closed before the arrivals are fetched.
                drop(socket);
                sleep(KEPT).await;
            };
            tokio::select! {
                () = kept => {}
                () = receiver.forgotten.notified() => {}
            }
            table.table().remove(&token);
        };
        tokio::spawn(contain("receiving a train", receiving));
        Ok(Receiving { port, token })
    }

    /// Returns the packets of the train `token` received so far; `None` if this caller has no such train.
    #[must_use]
    pub fn arrivals(&self, caller: SocketAddr, token: Token) -> Option<Arrivals> {
        let receiver = self.of(caller, token)?;
        Some(receiver.arrivals().clone())
    }

    /// Stops waiting for a train and forgets it; returns false if this caller has no such train.
    pub fn forget(&self, caller: SocketAddr, token: Token) -> bool {
        let Some(receiver) = self.of(caller, token) else { return false };
        receiver.forgotten.notify_one();
        self.table().remove(&token);
        true
    }

    fn of(&self, caller: SocketAddr, token: Token) -> Option<Arc<Receiver>> {
        self.table().get(&token).filter(|receiver| receiver.from == caller.ip()).cloned()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Token, Arc<Receiver>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receiver {
    /// Notes packets until there are enough, or time is up.
    async fn listen(&self, socket: &mut TimestampingSocket, token: Token, request: ReceiveRequest) {
        let until = Instant::now() + Duration::from_secs(request.seconds_max.into());
        let (mut left, mut strangers) = (request.packets_max, 0);
        while left > 0 && strangers < STRANGERS_MAX {
            match timeout_at(until, socket.next_of(token, self.from)).await {
                Ok(Ok(Some(came))) => {
                    self.arrivals().packets.push((came.seq, came.at.0, came.ip_bytes));
                    left -= 1;
                }
                Ok(Ok(None)) => strangers += 1,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        self.arrivals().ended = true;
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
