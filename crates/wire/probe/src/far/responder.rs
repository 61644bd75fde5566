//! The HTTP side of a far end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use cheetah_control::http::Refusal;
use cheetah_device::supervise::contained;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::api::{Arrivals, BulkReceived, FarInfo, ReceiveRequest, Receiving, SendReply, SendRequest, Token};
use super::bulk::{self, Bulk};
use super::limits::{CallerLimits, LIMITS};
use super::rate::Rate;
use super::receive::{Receivers, Refused};
use super::{routes, tag, train};
use crate::clock::Nanos;
use crate::schedule::{Pattern, due};

/// Largest body of a request that is JSON.
const JSON_BYTES_MAX: usize = 64 << 10;
/// The time limit for receiving it.
const JSON_TIMEOUT: Duration = Duration::from_secs(10);
/// Ports below it belong to services, which must not receive packets.
const PORT_MIN: u16 = 1024;
/// How long before a train's first packet everything is ready.
const LEAD: Duration = Duration::from_millis(2);

/// The addresses of both ends of the caller's connection. The server that accepted the connection puts them into each
/// request's extensions. Packets are sent to no address other than the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The far end of the TCP connection.
    pub peer: SocketAddr,
    /// Our end of it.
    pub here: SocketAddr,
}

/// The configuration of a far end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarConfig {
    /// Its display name.
    pub name: String,
    /// Whether it sends trains and bulk data; otherwise it only receives.
    pub sends: bool,
}

struct Shared {
    config: FarConfig,
    caller_limits: CallerLimits,
    receivers: Receivers,
}

type Far = State<Arc<Shared>>;
type Answer<T> = Result<T, Refusal>;

/// The far end's part of an HTTP API: everything under `/v1/probe`. Each request must have its [`Caller`] among its
/// extensions.
pub fn router(config: FarConfig) -> Router {
    let shared = Shared { config, caller_limits: CallerLimits::default(), receivers: Receivers::default() };
    Router::new()
        .route(routes::ABOUT, get(about))
        .route(routes::RECEIVE, post(receive))
        .route(routes::RECEIVED, get(arrivals).delete(forget))
        .route(routes::SEND, post(send))
        .route(routes::BULK, get(bulk_from).put(bulk_to))
        .layer(DefaultBodyLimit::max(JSON_BYTES_MAX))
        .with_state(Arc::new(shared))
}

async fn about(State(far): Far) -> Json<FarInfo> {
    let FarConfig { name, sends } = far.config.clone();
    Json(FarInfo { name, version: env!("CARGO_PKG_VERSION").to_owned(), sends, limits: LIMITS })
}

async fn receive(
    State(far): Far,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<ReceiveRequest>,
) -> Answer<(StatusCode, Json<Receiving>)> {
    within("packets_max", request.packets_max, LIMITS.packets_max)?;
    within("seconds_max", request.seconds_max, LIMITS.seconds_max)?;
    let receiving = far.receivers.start(caller.peer, caller.here, request).map_err(|refused| match refused {
        Refused::Full => busy(refused.to_string()),
        Refused::Io(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, refused.to_string()),
    })?;
    Ok((StatusCode::CREATED, Json(receiving)))
}

async fn arrivals(
    State(far): Far,
    Extension(caller): Extension<Caller>,
    Path(token): Path<Token>,
) -> Answer<Json<Arrivals>> {
    far.receivers.arrivals(caller.peer, token).map(Json).ok_or_else(unknown)
}

async fn forget(State(far): Far, Extension(caller): Extension<Caller>, Path(token): Path<Token>) -> Answer<StatusCode> {
    far.receivers.forget(caller.peer, token).then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

async fn send(
    State(far): Far,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<SendRequest>,
) -> Answer<Json<SendReply>> {
    far.config.may_send()?;
    let pattern: Pattern = request.pattern.parse().map_err(bad)?;
    let offsets = pattern.offsets();
    let packets = u32::try_from(offsets.len()).unwrap_or(u32::MAX);
    within("the number of packets", packets, LIMITS.packets_max)?;
    if pattern.span() > Duration::from_secs(LIMITS.seconds_max.into()) {
        return Err(bad(format!("a train may last {} s", LIMITS.seconds_max)));
    }
    if !(tag::IP_BYTES_MIN..=LIMITS.ip_bytes_max).contains(&request.ip_bytes) {
        return Err(bad(format!("ip_bytes is {} to {}", tag::IP_BYTES_MIN, LIMITS.ip_bytes_max)));
    }
    if request.port < PORT_MIN {
        return Err(bad(format!("port is {PORT_MIN} or above")));
    }
    let permit =
        far.caller_limits.send_permit(packets).await.ok_or_else(|| busy("trains are being sent to other callers"))?;
    // The address is always that of the connection; a request has no field for another.
    let mut there = caller.peer;
    there.set_port(request.port);
    let (tell, outcome) = oneshot::channel();
    // One dedicated thread at a time, so that the runtime's threads stay free for reads of the disk.
    let leaving = thread::Builder::new().name("probe-train".into()).spawn(contained(move || {
        let train = || {
            let socket = train::socket(caller.here, there)?;
            let due = due(permit.not_before.max(Nanos::now() + LEAD), &offsets);
            // Stops if the caller has closed its connection.
            let left = train::send(&socket, &due, request.token, request.ip_bytes, || !tell.is_closed())?;
            let ns = |times: &[Nanos]| times.iter().map(|at| at.0).collect();
            Ok::<_, std::io::Error>(SendReply { due_ns: ns(&due), left_ns: ns(&left) })
        };
        let sent = train();
        // The permit is held until now, even if the caller has hung up.
        drop(permit);
        let _ = tell.send(sent);
    }));
    leaving.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    match outcome.await {
        Ok(Ok(sent)) => Ok(Json(sent)),
        Ok(Err(error)) => Err(Refusal::new(StatusCode::CONFLICT, format!("the train was not sent: {error}"))),
        Err(_) => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "sending ended")),
    }
}

async fn bulk_from(State(far): Far, uri: Uri, headers: HeaderMap) -> Answer<Response> {
    far.config.may_send()?;
    if !is_json(&headers) {
        let why = "the header 'content-type: application/json' is required, which excludes pages in a browser";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let bytes = match query(&uri, "bytes") {
        Some(text) => text.parse().map_err(|_| bad("bytes is a number"))?,
        None => LIMITS.bulk_bytes_max,
    };
    if bytes > LIMITS.bulk_bytes_max {
        return Err(bad(format!("bytes is at most {}", LIMITS.bulk_bytes_max)));
    }
    let permit = far.caller_limits.bulk().ok_or_else(|| busy("other callers are measuring"))?;
    let for_at_most = Duration::from_secs(LIMITS.bulk_seconds_max.into());
    // The permit is released when the body is dropped, and when time is up even for a caller that does not read on.
    let (gone, is_gone) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let _ = timeout(for_at_most + Duration::from_secs(1), is_gone).await;
        drop(permit);
    });
    let body = Body::new(Bulk::new(bytes, for_at_most, gone));
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

async fn bulk_to(State(far): Far, request: Request) -> Answer<Json<BulkReceived>> {
    let _permit = far.caller_limits.bulk().ok_or_else(|| busy("other callers are measuring"))?;
    let for_at_most = Duration::from_secs(LIMITS.bulk_seconds_max.into());
    let rate = bulk::swallow(request.into_body(), Rate::default(), LIMITS.bulk_bytes_max, for_at_most).await;
    let (bytes, seconds, bits_per_s) = (rate.bytes(), rate.took().as_secs_f64(), rate.bits_per_s());
    Ok(Json(BulkReceived { bytes, seconds, bits_per_s }))
}

impl FarConfig {
    fn may_send(&self) -> Answer<()> {
        let why = "this far end sends nothing but answers: its sending rate is limited";
        if self.sends { Ok(()) } else { Err(Refusal::new(StatusCode::FORBIDDEN, why)) }
    }
}

/// Whether a request without a body is declared as JSON. A page of another site cannot send this header without a
/// preflight request by its browser, which gets no answer.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(b"application/json"))
}

/// Returns the value of `key` in a query. Values here are numbers, so nothing needs unescaping.
fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

fn within(what: &str, value: u32, max: u32) -> Answer<()> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(bad(format!("{what} is 1 to {max}"))) }
}

/// A request's body, received in time. Its content type has to be JSON, which pages of other sites in a browser may not
/// send.
struct JsonBody<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        match timeout(JSON_TIMEOUT, Json::<T>::from_request(request, state)).await {
            Ok(Ok(Json(body))) => Ok(Self(body)),
            Ok(Err(JsonRejection::BytesRejection(why))) => Err(Refusal::new(why.status(), why.body_text())),
            Ok(Err(why)) => Err(Refusal::new(why.status(), format!("not understood: {}", why.body_text()))),
            Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
        }
    }
}

fn bad(error: impl ToString) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, error.to_string())
}

fn busy(error: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, error)
}

fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "no train with this token is expected from you")
}
