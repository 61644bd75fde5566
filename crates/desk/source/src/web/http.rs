//! Requests to a web server, and its answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cheetah_error::{Error, Result};
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

/// Sends a request with this content, and returns the head of the answer. Fails with a reason, also if nothing happens for
/// as long as `patience`.
pub(super) async fn send(
    client: &HttpClient,
    location: &Location,
    request: hyper::http::request::Builder,
    content: Bytes,
    patience: Duration,
) -> std::result::Result<Response<Incoming>, String> {
    let agent = concat!("cheetah/", env!("CARGO_PKG_VERSION"));
    let mut request = request.body(()).map_err(|error| error.to_string())?;
    location.sign(&mut request, &content).map_err(|error| error.to_string())?;
    // Not signed: proxies change these two.
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(agent));
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let (content, taken) = Content::new(content);
    let mut answering = client.request(request.map(|()| content));
    loop {
        let before = taken.load(Ordering::Relaxed);
        match timeout(patience, &mut answering).await {
            Ok(answer) => return answer.map_err(|error| causes(&error)),
            Err(_) if taken.load(Ordering::Relaxed) > before => {}
            Err(_) => return Err(format!("no answer within {} s", patience.as_secs_f64())),
        }
    }
}

/// Returns an error with its causes: hyper's outermost error alone says little.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
