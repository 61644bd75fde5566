//! A client's socket, with rate limiting and measurement of sends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::arrivals::Arrivals;
use crate::packing::meter::Gauge;

/// The most bytes of one send under a limit, for fairness between connections.
const TURN_BYTES_MAX: f64 = 65536.0;
/// The burst after idle time, in seconds.
const BURST_S: f64 = 0.05;

/// A token bucket. No I/O.
#[derive(Debug)]
struct Bucket {
    /// Bytes a second.
    rate: f64,
    bytes: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: u64, now: Instant) -> Self {
        Self { rate: (rate as f64).max(1.0), bytes: 0.0, at: now }
    }

    /// The most bytes of one send: those of a tenth of a second at low rates.
    fn turn(&self) -> f64 {
        (self.rate / 10.0).clamp(1.0, TURN_BYTES_MAX)
    }

    /// Takes up to `wanted` bytes, or returns how long to wait for some.
    fn take(&mut self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.bytes = (self.bytes + passed * self.rate).min((self.rate * BURST_S).max(self.turn()));
        let wanted = (wanted as f64).min(self.turn());
        if self.bytes < wanted {
            return Err(Duration::from_secs_f64((wanted - self.bytes) / self.rate));
        }
        self.bytes -= wanted;
        // Not truncated: at most 64 KiB.
        Ok(wanted as usize)
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes += bytes as f64;
    }
}

/// A rate limit for all connections together.
#[derive(Debug)]
pub(super) struct Limit(Mutex<Bucket>);

impl Limit {
    /// A limit in bytes a second.
    pub(super) fn new(rate: u64) -> Self {
        Self(Mutex::new(Bucket::new(rate, Instant::now())))
    }
}

/// A client's socket.
pub(super) struct Wire<S> {
    stream: S,
    gauge: Option<Gauge>,
    limit: Option<Arc<Limit>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S, gauge: Option<Gauge>, limit: Option<Arc<Limit>>) -> Self {
        Self { stream, gauge, limit, pause: None }
    }

    /// The number of bytes of `wanted` that may be sent.
    fn poll_leave(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(limit) = &self.limit else { return Poll::Ready(wanted) };
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match limit.0.lock().take(wanted, Instant::now()) {
                Ok(granted) => return Poll::Ready(granted),
                Err(wait) => self.pause = Some(Box::pin(sleep(wait))),
            }
        }
    }

    /// Records the result of sending `granted` bytes.
    fn note(&mut self, granted: usize, sent: &Poll<io::Result<usize>>) {
        let gone = if let Poll::Ready(Ok(gone)) = sent { *gone } else { 0 };
        if let Some(limit) = &self.limit {
            limit.0.lock().give_back(granted - gone.min(granted));
        }
        match (&mut self.gauge, sent) {
            (Some(gauge), Poll::Ready(Ok(gone))) => gauge.sent(*gone),
            (Some(gauge), Poll::Pending) => gauge.blocked(),
            _ => {}
        }
    }
}

impl<S: Arrivals> Arrivals for Wire<S> {
    const KNOWN: bool = S::KNOWN;

    fn arrived(&self) -> usize {
        self.stream.arrived()
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        self.stream.try_receive(runs)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let granted = ready!(this.poll_leave(bytes.len(), cx));
        let sent = Pin::new(&mut this.stream).poll_write(cx, &bytes[..granted]);
        this.note(granted, &sent);
        sent
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        runs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let (granted, sent) = match this.limit.is_none() {
            true => (0, Pin::new(&mut this.stream).poll_write_vectored(cx, runs)),
            false => {
                let granted = ready!(this.poll_leave(runs.iter().map(|run| run.len()).sum(), cx));
                (granted, Pin::new(&mut this.stream).poll_write_vectored(cx, &first(runs, granted)))
            }
        };
        this.note(granted, &sent);
        sent
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The first `len` bytes of the runs.
fn first<'a>(runs: &'a [IoSlice<'_>], len: usize) -> SmallVec<[IoSlice<'a>; 64]> {
    let mut rest = len;
    let mut out = SmallVec::new();
    for run in runs {
        let here = rest.min(run.len());
        if here > 0 {
            out.push(IoSlice::new(&run[..here]));
        }
        rest -= here;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_passes_its_rate() {
        for rate in [3_000u64, 1_000_000, 500_000_000] {
            let start = Instant::now();
            let (mut bucket, mut now, mut sent) = (Bucket::new(rate, start), start, 0u64);
            while now < start + Duration::from_secs(10) {
                match bucket.take(1 << 20, now) {
                    Ok(granted) => {
                        // Every other time the socket takes only half of it.
                        let gone = if sent.is_multiple_of(2) { granted } else { granted.div_ceil(2) };
                        bucket.give_back(granted - gone);
                        sent += gone as u64;
                    }
                    Err(wait) => now += wait.max(Duration::from_micros(1)),
                }
            }
            let expected = (rate * 10) as f64;
            assert!((0.97..1.03).contains(&(sent as f64 / expected)), "{rate}: {sent}");
        }
    }

    #[test]
    fn runs_are_cut_at_the_granted_length() {
        let runs = [IoSlice::new(&[1; 5]), IoSlice::new(&[2; 5]), IoSlice::new(&[3; 5])];
        let lens = |len| first(&runs, len).iter().map(|run| run.len()).collect::<Vec<_>>();
        assert_eq!((lens(15), lens(7), lens(5)), (vec![5, 5, 5], vec![5, 2], vec![5]));
    }
}
