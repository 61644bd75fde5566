//! The page: one HTML file in this program, and a stream of pictures as server-sent events.
//!
//! The page itself says nothing. The pictures are sent only to a caller that knows the secret of this run, which the page
//! takes from behind the `#` of its address: browsers do not send that part to any server. A policy lets the page run its own
//! script alone, and call nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Router, middleware};
use cheetah_control::http::{self, Limits, Refusal, only_readers};
use cheetah_device::visible;
use cheetah_kit::random;
use futures::{Stream, stream};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;
use crate::answers::watch::Watch;
use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// The page. `NONCE` stands for the number that lets its script and its style in, and `QUIET_SECONDS` for the time without a picture after
/// which the page says so.
const PAGE: &str = include_str!("page.html");
/// Browsers open a few connections each. The page opens its stream again when it ends.
const LIMITS: Limits = Limits { connections_max: 64, life_max: Duration::from_secs(3600) };
/// The shortest time without a picture that the page says, in seconds.
const QUIET_S_MIN: u64 = 5;
/// How often a stream without news says that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What the handlers share.
#[derive(Debug, Clone)]
struct Shared {
    token: Arc<str>,
    quiet_s: u64,
    pictures: watch::Receiver<Arc<str>>,
}

/// Serves the page until it is dropped.
pub async fn serve(address: SocketAddr, board: &Board, (every, desk): (Duration, &Desk), ui: Ui) -> Result<()> {
    // On this machine the secret is enough; members of a room have certificates, and browsers usually have none.
    let tls = match address.ip().is_loopback() {
        true => None,
        false => desk.credentials.server(address, false).map_err(cheetah_control::exposed)?,
    };
    let listening = |error: std::io::Error| {
        let why = cheetah_device::os_error::describe(&error);
        Failure::failed(format!("cannot listen on {address}: {why}; choose another address with --listen"))
    };
    let listener = TcpListener::bind(address).await.map_err(listening)?;
    let at = listener.local_addr().map_err(listening)?;
    let token = random::id().context("cannot make a secret")?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{at}/#{token}");
    let (send, pictures) = watch::channel(Arc::from(""));
    let shared = Shared { token: token.into(), quiet_s: every.as_secs().saturating_mul(2).max(QUIET_S_MIN), pictures };
    let is_clear = tls.is_none();
    let router = router(shared, is_clear);
    ui.event(format_args!("the room is at {url}"), &Watch::Ready { url: url.clone() });
    let drawing = async {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = board.changed() => {}
            }
            if let Ok(text) = serde_json::to_string(&board.picture()) {
                send.send_replace(Arc::from(visible::json(&text)));
            }
        }
    };
    tokio::select! {
        never = http::serve(listener, LIMITS, tls, |_| router.clone()) => match never {},
        () = drawing => Ok(()),
    }
}

fn router(shared: Shared, is_clear: bool) -> Router {
    let router = Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/picture", get(picture))
        .with_state(shared)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is nothing here") });
    match is_clear {
        true => router,
        false => router.layer(middleware::from_fn(only_readers)),
    }
}

/// Headers of every answer.
fn guarded(kind: &'static str, policy: &str, body: impl axum::response::IntoResponse) -> Response {
    let headers: [(HeaderName, &str); 7] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    (headers.map(|(name, value)| (name, value.to_owned())), body).into_response()
}

async fn page(State(shared): State<Shared>) -> Response {
    let Ok(nonce) = random::id() else {
        return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the kernel gives no random number").into_response();
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE.replace("NONCE", &nonce).replace("QUIET_SECONDS", &shared.quiet_s.to_string());
    guarded("text/html; charset=utf-8", &policy, page)
}

/// Whether the caller knows the secret. Hashes take the same time to compare, whatever differs.
fn is_known(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(token.as_bytes()))
}

fn unknown() -> Response {
    let why = "send the secret: Authorization: Bearer SECRET; it is in the address that the command printed";
    Refusal::new(StatusCode::UNAUTHORIZED, why).into_response()
}

/// The picture as of now, for a program.
async fn picture(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !is_known(&headers, &shared.token) {
        return unknown();
    }
    let text = shared.pictures.borrow().to_string();
    guarded("application/json", "default-src 'none'", text)
}

async fn events(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !is_known(&headers, &shared.token) {
        return unknown();
    }
    let mut pictures = shared.pictures;
    // The caller wants the one that is there, too.
    pictures.mark_changed();
    let stream = Sse::new(follow(pictures)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    guarded("text/event-stream", "default-src 'none'", stream)
}

fn follow(
    pictures: watch::Receiver<Arc<str>>,
) -> impl Stream<Item = std::result::Result<Event, std::convert::Infallible>> {
    stream::unfold(pictures, async |mut pictures| {
        loop {
            pictures.changed().await.ok()?;
            let picture = pictures.borrow_and_update().clone();
            if !picture.is_empty() {
                return Some((Ok(Event::default().data(&*picture)), pictures));
            }
        }
    })
}
