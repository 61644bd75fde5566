//! HTTP for whoever connects, within limits.
//!
//! Whoever can reach it may use it, so everything it takes is limited: connections, headers, and the time each may take. And
//! to keep web pages, open in a browser that can reach it, from using it behind their reader's back, it must be called by its
//! address or its own name (see [`host`](super::host)), since a page can have its site's name point here and so pass for
//! the same site.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use cheetah_probe::far::Caller;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::api::ErrorBody;
use super::host;

/// What one connection's request line and headers may take.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a caller may take to send a request's head. An idle connection is closed after it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may live; a deletion of all a node's memory fits.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// Serves `router` to whoever connects, `connections_max` at once; further ones are closed. Each request has its [`Caller`]
/// among its extensions. Runs until it is dropped, which cuts every connection.
pub async fn serve(listener: TcpListener, router: Router, connections_max: usize) -> Infallible {
    let router = router.layer(middleware::from_fn(only_by_own_name));
    let seats = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, or a caller gone again: neither is a reason to stop serving the others.
                tracing::warn!(%error, "could not accept an HTTP caller");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
        let router = router.clone();
        connections.spawn(async move {
            let _seat = seat;
            if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, converse(stream, peer, router)).await {
                tracing::debug!("an HTTP connection ended: {error}");
            }
        });
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let caller = Caller { peer, here: stream.local_addr()? };
    let service = TowerToHyperService::new(router);
    let told = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(caller);
        service.call(request)
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), told)
        .await?;
    Ok(())
}

/// Refuses requests meant for another host.
async fn only_by_own_name(request: Request, next: Next) -> Response {
    if host::is_ours(request.version(), request.headers()) {
        return next.run(request).await;
    }
    let why = "call this machine by its IP address, its host name or localhost: the Host header names none of them";
    Refusal::new(StatusCode::FORBIDDEN, why).into_response()
}

/// An answer that is an error.
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}
