//! Incompressible bulk data over TCP, limited in bytes and time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, timeout_at};

use super::rate::Rate;
use crate::clock::Nanos;

/// The size of a chunk handed to the connection.
const PIECE_BYTES: usize = 128 << 10;

/// Random bytes, sent repeatedly: longer than the window of a compressor.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut noise = vec![0; PIECE_BYTES];
    // Without random numbers these are zeros, and a link that compresses looks faster than it is.
    let _ = cheetah_kit::random::fill(&mut noise);
    noise.into()
});

/// A response body of a number of bytes, cut off after a time limit. It holds `held` until it is dropped.
pub struct Bulk<T> {
    left: u64,
    for_at_most: Duration,
    until: Option<Instant>,
    _held: T,
}

impl<T> Bulk<T> {
    /// Creates a body of at most `bytes`, for at most this time after the first of them.
    pub fn new(bytes: u64, for_at_most: Duration, held: T) -> Self {
        Self { left: bytes, for_at_most, until: None, _held: held }
    }
}

impl<T: Unpin> Body for Bulk<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let now = Instant::now();
        let for_at_most = self.for_at_most;
        let until = *self.until.get_or_insert(now + for_at_most);
        if self.left == 0 || now >= until {
            return Poll::Ready(None);
        }
        let len = usize::try_from(self.left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        self.left -= len as u64;
        Poll::Ready(Some(Ok(Frame::data(NOISE.slice(..len)))))
    }
}

/// Reads and discards a body until it ends, `bytes_max` were read, or time is up; `rate` counts the bytes.
pub async fn swallow<B>(mut body: B, mut rate: Rate, bytes_max: u64, for_at_most: Duration) -> Rate
where
    B: Body<Data = Bytes> + Unpin,
{
    let until = Instant::now() + for_at_most;
    while rate.bytes() < bytes_max {
        let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await else { break };
        if let Some(data) = frame.data_ref() {
            rate.note(Nanos::now(), data.len());
        }
    }
    rate
}
