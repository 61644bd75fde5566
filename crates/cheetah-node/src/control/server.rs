//! The server of the control API.
//!
//! Whoever can reach it may use it, so everything it takes is limited: connections, headers, bodies, and the time
//! each may take. Two rules keep web pages, open in a browser that can reach the node, from using it behind their
//! reader's back. Bodies must be declared as JSON, and other sites' pages may not send that, nor delete, unless the
//! browser asks first, and it is not answered. And the node must be called by its address or its own name (see
//! [`host`](super::host)), since a page can have its site's name point to the node and so pass for the same site.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use cheetah_device::Error;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::api::{
    BODY_BYTES_MAX, ErrorBody, ExportStatus, LeaseGrant, LeaseRenewal, LeaseRequest, NewExport, Receipt, Status,
};
use super::{host, metrics};
use crate::exports::{Exports, ExportsError};
use crate::lease::Refused;
use crate::node::Shared;

/// Connections served at once; further ones are closed.
const CONNECTIONS_MAX: usize = 64;
/// What one connection's request line and headers may take.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a caller may take to send a request's head, or its body. An idle connection is closed after it.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may live; a deletion of all a node's memory fits.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// Serves the API to whoever connects. Runs until it is dropped, which cuts every connection.
pub(crate) async fn serve(listener: TcpListener, node: Arc<Shared>) {
    let service = TowerToHyperService::new(router(node));
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file handles, or a caller gone again: neither is a reason to stop serving the others.
                tracing::warn!(%error, "could not accept a caller of the control API");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(RECEIVE_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service.clone());
        connections.spawn(async move {
            let _seat = seat;
            if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, connection).await {
                tracing::debug!(%error, "a connection to the control API ended");
            }
        });
    }
}

fn router(node: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/exports", post(create))
        .route("/v1/exports/{name}", delete(remove))
        .route("/v1/exports/{name}/lease", post(acquire).put(renew).delete(release))
        .route("/metrics", get(show_metrics))
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is nothing here; see /v1/status") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this cannot be done here")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(only_by_own_name))
        .with_state(node)
}

/// Refuses requests meant for another host.
async fn only_by_own_name(request: Request, next: Next) -> Response {
    if host::is_ours(request.version(), request.headers()) {
        return next.run(request).await;
    }
    let why = "call the node by its IP address, its host name or localhost: the Host header names none of them";
    Refusal::new(StatusCode::FORBIDDEN, why).into_response()
}

type Answer<T> = Result<T, Refusal>;
type Node = State<Arc<Shared>>;

async fn status(State(node): Node) -> Json<Status> {
    Json(node.status())
}

async fn show_metrics(State(node): Node) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render(&node)).into_response()
}

async fn create(State(node): Node, Body(new): Body<NewExport>) -> Answer<(StatusCode, Json<ExportStatus>)> {
    let made = blocking(node, move |exports| exports.create(&new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn remove(State(node): Node, Path(name): Path<String>, uri: Uri) -> Answer<Json<Receipt>> {
    let lease = query(&uri, "lease").map(str::to_owned);
    let receipt = blocking(node, move |exports| exports.delete(&name, lease.as_deref())).await?;
    tracing::info!(export = receipt.export, wiped_bytes = receipt.wiped_bytes, "export deleted and wiped");
    Ok(Json(receipt))
}

async fn acquire(
    State(node): Node,
    Path(name): Path<String>,
    Body(request): Body<LeaseRequest>,
) -> Answer<Json<LeaseGrant>> {
    Ok(Json(node.exports.acquire_lease(&name, &request)?))
}

async fn renew(
    State(node): Node,
    Path(name): Path<String>,
    Body(renewal): Body<LeaseRenewal>,
) -> Answer<Json<LeaseGrant>> {
    Ok(Json(node.exports.renew_lease(&name, &renewal.token)?))
}

async fn release(State(node): Node, Path(name): Path<String>, uri: Uri) -> Answer<StatusCode> {
    let Some(token) = query(&uri, "token") else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "say whose lease ends: ?token=TOKEN"));
    };
    node.exports.release_lease(&name, token)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs what touches much memory on a thread where it keeps nobody waiting. It runs to its end even if the caller
/// hangs up.
async fn blocking<T: Send + 'static>(
    node: Arc<Shared>,
    work: impl FnOnce(&Exports) -> Result<T, ExportsError> + Send + 'static,
) -> Answer<T> {
    match spawn_blocking(move || work(&node.exports)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the node is shutting down")),
    }
}

/// The value of `key` in a query. Values here are hex digits, so nothing needs unescaping.
fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

/// A request's body: JSON, in time.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        let declared = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
        });
        if !declared {
            let why = "send JSON, with the header 'content-type: application/json'";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let body = match timeout(RECEIVE_TIMEOUT, Bytes::from_request(request, state)).await {
            Ok(Ok(body)) => body,
            Ok(Err(rejection)) => return Err(Refusal::new(rejection.status(), rejection.body_text())),
            Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
        };
        let parsed = serde_json::from_slice(&body);
        parsed.map(Self).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("not understood: {error}")))
    }
}

/// An answer that is an error.
struct Refusal {
    status: StatusCode,
    error: String,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }
}

impl From<ExportsError> for Refusal {
    fn from(error: ExportsError) -> Self {
        let status = match &error {
            ExportsError::Exists(_) | ExportsError::Lease(Refused::Held { .. } | Refused::Ended) => {
                StatusCode::CONFLICT
            }
            ExportsError::NotFound(_) => StatusCode::NOT_FOUND,
            ExportsError::TooMany | ExportsError::Store(Error::NoSpace(_)) => StatusCode::INSUFFICIENT_STORAGE,
            ExportsError::Ending => StatusCode::SERVICE_UNAVAILABLE,
            ExportsError::Store(Error::Io { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            ExportsError::BadName(_)
            | ExportsError::BadToken(_)
            | ExportsError::Store(_)
            | ExportsError::Lease(Refused::BadTtl(_) | Refused::BadHolder) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}
