//! Requests to a web server, and its answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cheetah_error::{Error, Result};
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::location::Location;

/// The number of bytes of content that are handed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;

pub(super) type HttpClient = Client<HttpsConnector<HttpConnector>, Content>;

/// The content of a request. Counts the pieces that the connection has taken, so that a slow server differs from a silent
/// one.
pub(super) struct Content {
    rest: Bytes,
    taken: Arc<AtomicU64>,
}

impl Content {
    fn new(bytes: Bytes) -> (Self, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        (Self { rest: bytes, taken: taken.clone() }, taken)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len().min(PIECE_BYTES);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Why a request has no answer, or not all of one.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The request cannot be made.
    #[error(transparent)]
    Request(#[from] hyper::http::Error),
    /// The request cannot be signed.
    #[error(transparent)]
    Unsigned(#[from] Error),
    /// The server cannot be reached, or broke the connection.
    #[error("{}", causes(.0))]
    Connection(#[from] hyper_util::client::legacy::Error),
    /// The server did not begin to answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    NoAnswer(Duration),
    /// The server did not continue its answer in time.
    #[error("the server fell silent")]
    Silent,
    /// The answer ended before its end.
    #[error("the answer broke off: {}", causes(.0))]
    BrokeOff(hyper::Error),
    /// The answer has more bytes than any that is expected.
    #[error("the answer is too large")]
    TooLarge,
}

/// Returns a client that verifies servers against the system's certificates (`SSL_CERT_FILE` names others).
pub(super) fn client(idle_max: usize) -> Result<HttpClient> {
    let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(rustls::crypto::ring::default_provider());
    let tls = tls.map_err(|error| {
        Error::failed(format!(
            "the certificates of this system's authorities cannot be read: {error}; install ca-certificates, or name a \
             file with SSL_CERT_FILE"
        ))
    })?;
    let connector = tls.https_or_http().enable_http1().build();
    let mut builder = Client::builder(TokioExecutor::new());
    Ok(builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(idle_max).build(connector))
}

/// Sends a request with this content, and returns the head of the answer. Fails also if nothing happens for as long as
/// `patience`.
pub(super) async fn send(
    client: &HttpClient,
    location: &Location,
    request: hyper::http::request::Builder,
    content: Bytes,
    patience: Duration,
) -> std::result::Result<Response<Incoming>, CallError> {
    let agent = concat!("cheetah/", env!("CARGO_PKG_VERSION"));
    let mut request = request.body(())?;
    location.sign(&mut request, &content)?;
    // Not signed: proxies change these two.
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(agent));
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let (content, taken) = Content::new(content);
    let mut answering = client.request(request.map(|()| content));
    loop {
        let before = taken.load(Ordering::Relaxed);
        match timeout(patience, &mut answering).await {
            Ok(answer) => return Ok(answer?),
            Err(_) if taken.load(Ordering::Relaxed) > before => {}
            Err(_) => return Err(CallError::NoAnswer(patience)),
        }
    }
}

/// Returns the next piece of an answer's content; `None` at its end, and a piece without bytes between others. Fails also if
/// nothing comes for as long as `patience`.
pub(super) async fn next_piece(
    body: &mut Incoming,
    patience: Duration,
) -> std::result::Result<Option<Bytes>, CallError> {
    let frame = timeout(patience, body.frame()).await.map_err(|_| CallError::Silent)?;
    let frame = frame.transpose().map_err(CallError::BrokeOff)?;
    // Frames without data are trailers.
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Returns an error with its causes: hyper's outermost error alone says little.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
