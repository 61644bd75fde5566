//! Calling clients: connections that the server makes, and then serves.
//!
//! There is always one idle connection for the client to take. Once it is taken, the server makes the next call; so a lost
//! connection is replaced by the next that the client takes. Failed calls have growing pauses between them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::supervise::contain;
use futures::FutureExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Server;
use super::connection::{self, Opening};
use super::listener::Stream;
use crate::client::TIMEOUT;
use crate::tune::{self, tune};

/// The first pause after a failed call; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The time-out of a call.
const PICK_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that ends sooner counts as a failed call.
const LASTED_MIN: Duration = Duration::from_secs(1);

const _: () = {
    assert!(PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis());
    // A client that can be reached again is called before it gives up, even if a call has just begun that nobody answers.
    assert!(PICK_UP_TIMEOUT.as_millis() + PAUSE_MAX.as_millis() < TIMEOUT.as_millis());
};

/// The pauses between calls. No I/O.
#[derive(Debug)]
struct CallBackoff(Duration);

impl CallBackoff {
    fn failed(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }

    fn succeeded(&mut self) {
        self.0 = PAUSE_MIN;
    }
}

impl Server {
    /// Calls `to` (`HOST:PORT`) repeatedly, and serves the client there. Runs until it is dropped, which cuts every
    /// connection made here.
    pub async fn call(&self, to: &str) -> std::convert::Infallible {
        // Each task returns the time for which its connection was in use, if it was used.
        let mut connections: JoinSet<Option<Duration>> = JoinSet::new();
        let mut patience = CallBackoff(PAUSE_MIN);
        loop {
            // A client that drops connections at once gets further ones slowly.
            let mut dropped = false;
            while let Some(ended) = connections.try_join_next() {
                match ended.ok().flatten() {
                    Some(lasted) if lasted < LASTED_MIN => dropped = true,
                    Some(_) => patience.succeeded(),
                    None => {}
                }
            }
            if dropped {
                sleep(patience.failed()).await;
            }
            let slot = self.slots.take().await;
            let stream = match dial(to).await {
                Ok(stream) => stream,
                Err(error) => {
                    let pause = patience.failed();
                    tracing::info!("{to} does not answer ({error}); calling again in {pause:?}");
                    sleep(pause).await;
                    continue;
                }
            };
            let (exports, limits) = (Arc::clone(&self.exports), Arc::clone(&self.limits));
            let (entered, taken) = oneshot::channel();
            let name = to.to_owned();
            let serving = async move {
                let mut began = None;
                let entered = || {
                    began = Some(Instant::now());
                    let _ = entered.send(());
                };
                let stream = Stream::Tcp(stream);
                let ended = connection::run(stream, Opening::Called, slot, exports, &limits, entered).await;
                tracing::debug!("connection to {name} ended: {ended:?}");
                began.map(|began| began.elapsed())
            };
            connections.spawn(contain("an NBD connection", serving).map(|ended| ended.ok().flatten()));
            match taken.await {
                Ok(()) => tracing::info!("{to} reads over a connection"),
                // Refused, or lost while idle.
                Err(_) => sleep(patience.failed()).await,
            }
        }
    }
}

async fn dial(to: &str) -> io::Result<TcpStream> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "nothing heard");
    let stream = timeout(PICK_UP_TIMEOUT, TcpStream::connect(to)).await.map_err(|_| late())??;
    tune(&stream)?;
    tune::watch(&stream)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut patience = CallBackoff(PAUSE_MIN);
        let pauses: Vec<_> = (0..9).map(|_| patience.failed()).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE_MIN && pauses[8] == PAUSE_MAX);
        patience.succeeded();
        assert_eq!(patience.failed(), PAUSE_MIN);
    }
}
