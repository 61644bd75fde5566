//! Serving HTTP within limits; [`caller`] calls such servers.
//!
//! Every machine that reaches the port can call it, so connections, headers and times are limited. A request must name
//! this machine by its address or its own name (see [`host`]): otherwise a web page in a browser that reaches the port
//! could make its site's name resolve to this machine and call it as its own site.
//!
//! With TLS, callers must be members of the room. Connections that have not authenticated yet have a limit of their own
//! ([`ConnectionSlots`]).

pub mod caller;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use cheetah_device::supervise::{contain, panic_point};
use cheetah_kit::socket::set_unacknowledged_max;
use cheetah_kit::wiping::while_polled;
use cheetah_tls::{ConnectionSlot, ConnectionSlots, Roles, ServerTls, Standing};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::api::ErrorBody;
use crate::host;

/// The most bytes of a request line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a caller may take to send a request's head. An idle connection is closed after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller may leave sent data unacknowledged.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// The pause after a caller could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections; further ones are closed.
    pub connections_max: usize,
    /// How long a connection may last.
    pub life_max: Duration,
}

/// The two addresses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The caller's.
    pub peer: SocketAddr,
    /// This machine's.
    pub here: SocketAddr,
}

/// A caller, where connections have TLS; `None` without TLS. Handlers get it as an extension.
#[derive(Debug, Clone)]
pub struct Member(pub Option<Arc<Standing>>);

impl Member {
    /// Whether it has one of these roles. A caller without TLS has all.
    pub fn is_one_of(&self, roles: Roles) -> bool {
        self.0.as_ref().is_none_or(|standing| roles.contains(standing.identity().role))
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(standing) => write!(f, "{}", standing.identity()),
            None => f.write_str("a caller in clear"),
        }
    }
}

/// Serves every caller, within limits; with `tls`, members of the room only. `router` returns the router for a
/// connection; its handlers get the [`Member`] as an extension. Runs until it is dropped, which cuts every connection.
pub async fn serve(
    listener: TcpListener,
    limits: Limits,
    tls: Option<ServerTls>,
    router: impl Fn(Ends) -> Router,
) -> Infallible {
    let Limits { connections_max, life_max } = limits;
    let slots = ConnectionSlots::new(connections_max);
    let mut connections = JoinSet::new();
    let mut accept_one = async || {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, no file descriptor is left. The other callers are still served, and one of them may free
                // some.
                tracing::warn!(%error, "could not accept an HTTP caller");
                return sleep(ACCEPT_PAUSE).await;
            }
        };
        panic_point("http-accept");
        let slot = if tls.is_some() { Some(slots.take_for_handshake()) } else { slots.try_take() };
        let Some(slot) = slot else { return };
        // If the connection has no local address, it has already ended.
        let Ok(here) = stream.local_addr() else { return };
        let router = router(Ends { peer, here }).layer(middleware::from_fn(only_by_own_name));
        let tls = tls.clone();
        let serving = async move {
            panic_point("http-connection");
            if let Ok(Err(error)) = timeout(life_max, admit(stream, slot, tls, router)).await {
                tracing::debug!("an HTTP connection ended: {error}");
            }
        };
        // Requests and answers pass through buffers of the libraries.
        connections.spawn(contain("an HTTP connection", while_polled(serving)));
    };
    loop {
        // A panic fails only the caller that caused it; the others need the listener.
        if contain("accepting an HTTP caller", accept_one()).await.is_err() {
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Refuses members that may not read drives: for routers without rules of their own.
pub async fn only_readers(Extension(member): Extension<Member>, request: Request, next: Next) -> Response {
    if member.is_one_of(Roles::READERS) {
        return next.run(request).await;
    }
    let why = format!("{member} may not do this: it is for the role {}", Roles::READERS);
    Refusal::new(StatusCode::FORBIDDEN, why).into_response()
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn admit(stream: TcpStream, slot: ConnectionSlot, tls: Option<ServerTls>, router: Router) -> Ended {
    // hyper does not poll a response while the socket is full, so the kernel must enforce this limit.
    set_unacknowledged_max(&stream, UNREAD_MAX)?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        let _slot = slot;
        return converse(stream, router.layer(Extension(Member(None)))).await;
    };
    let accepting = async { timeout(HEAD_TIMEOUT, tls.accept(stream)).await? };
    let ((stream, standing), _slot) = slot.authenticate(accepting).await?;
    let standing = standing.ok_or("the caller has no certificate")?;
    let member = Member(Some(Arc::new(standing)));
    let router = router.layer(middleware::from_fn(unless_revoked)).layer(Extension(member));
    converse(stream, router).await
}

/// Refuses requests of a member that was revoked since it connected.
async fn unless_revoked(Extension(Member(member)): Extension<Member>, request: Request, next: Next) -> Response {
    if member.is_some_and(|standing| standing.is_revoked()) {
        return Refusal::new(StatusCode::FORBIDDEN, cheetah_tls::Refusal::Revoked.to_string()).into_response();
    }
    next.run(request).await
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, router: Router) -> Ended {
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await?;
    Ok(())
}

/// Refuses requests whose Host header names another host.
async fn only_by_own_name(request: Request, next: Next) -> Response {
    if host::is_ours(request.version(), request.headers()) {
        return next.run(request).await;
    }
    let why = "call this machine by its IP address, its host name or localhost: the Host header names none of them";
    Refusal::new(StatusCode::FORBIDDEN, why).into_response()
}

/// An error response.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    error: String,
    next: Vec<cheetah_error::Next>,
}

impl Refusal {
    /// A response with this status, and an [`ErrorBody`] with this error.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), next: Vec::new() }
    }

    /// The next steps.
    pub fn steps(&self) -> &[cheetah_error::Next] {
        &self.next
    }

    /// The same with next steps.
    #[must_use]
    pub fn advise(self, steps: impl IntoIterator<Item = cheetah_error::Next>) -> Self {
        Self { next: steps.into_iter().collect(), ..self }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error, next: self.next })).into_response()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Whether a request gets an answer.
    async fn is_answered(at: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(at).await else { return false };
        let mut answer = Vec::new();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.is_ok()
            && stream.read_to_end(&mut answer).await.is_ok()
            && answer.starts_with(b"HTTP/1.1 404")
    }

    #[tokio::test]
    async fn a_silent_caller_does_not_block_others_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let limits = Limits { connections_max: 1, life_max: Duration::from_millis(200) };
        tokio::spawn(async move { serve(listener, limits, None, |_| Router::new()).await });
        let _silent = TcpStream::connect(at).await.unwrap();
        // The server has one place.
        let answered = async {
            while !is_answered(at).await {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(HEAD_TIMEOUT * 4 / 5, answered).await.unwrap();
    }
}
