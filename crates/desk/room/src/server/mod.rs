//! The enrolment server: certificates for machines that have an invitation, or wait for approval.
//!
//! Any machine that reaches the port can connect, so everything is limited: a connection lasts seconds, a request has
//! some KiB (a member's drive file some MiB), and at the limit the oldest connection is closed, so that callers that send
//! nothing do not lock others out. Members find heads of logs and drive files here, too (`archive`).

pub mod archive;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{post, put};
use axum::{Extension, Json, Router};
use cheetah_control::http::{Member, Refusal};
use cheetah_device::supervise::contain;
use cheetah_error::{Error, Next, Result};
use cheetah_kit::clock::now_s;
use cheetah_kit::random;
use cheetah_tls::{Fingerprint, Role, ServerTls};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::invitation::{Host, Token};
use crate::key::PublicKey;
use crate::pending::{Refused, Revealed};
use crate::register::{self, Admission, Applicant, Denied, MEMBER_HOSTS_MAX};
use crate::room::{Room, serial};
use crate::routes;
use crate::wire::{Begin, Begun, CheckIn, CheckedIn, Claims, Enrol, Enrolled, REQUEST_LEN_MAX, Reveal};

/// The most connections.
const CONNECTIONS_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// The most bytes of a request line and headers.
const HEAD_LEN_MAX: usize = 16 << 10;
/// The pause after a caller could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A difference of clocks that is worth a line, in seconds.
pub const CLOCK_TOLERANCE_S: u64 = 60;

/// An event that an enrolment server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A machine joined.
    Joined {
        /// The member.
        member: Box<register::Member>,
        /// Its clock minus this machine's, in seconds.
        clock_offset_s: i64,
    },
    /// A machine shows a code and waits for approval.
    Waiting {
        /// The name that it requests.
        name: String,
        /// The role that it asks for.
        role: Role,
        /// The address that it called from.
        address: String,
        /// The code.
        code: String,
    },
    /// A machine was refused.
    Refused {
        /// The address that it called from.
        address: String,
        /// The reason.
        why: String,
        /// The next steps.
        next: Vec<Next>,
    },
}

/// The state shared by requests.
struct Enrolment {
    room: Room,
    report: Box<dyn Fn(Event) + Send + Sync>,
}

type Shared = State<Arc<Enrolment>>;
type Answer<T> = std::result::Result<T, Refusal>;

/// Serves enrolment at `listener` and reports to `report`. Runs until it is dropped.
///
/// # Errors
///
/// If the server's own certificate cannot be made.
pub async fn serve(
    listener: TcpListener,
    room: Room,
    report: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Infallible> {
    let tls = room.enrolment_credential()?.enrolment_server();
    let tls = tls.map_err(|error| Error::failed(format!("TLS for enrolment: {error}")))?;
    let router = router(Arc::new(Enrolment { room, report: Box::new(report) }));
    let mut seats: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a machine that joins");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        seats.retain(|seat| !seat.is_finished());
        if seats.len() >= CONNECTIONS_MAX
            && let Some(oldest) = seats.pop_front()
        {
            oldest.abort();
        }
        let (tls, router) = (tls.clone(), router.clone().layer(Extension(peer)));
        let serving = async move {
            if let Ok(Err(error)) = timeout(LIFE_MAX, converse(stream, tls, router)).await {
                tracing::debug!(%peer, "an enrolment connection ended: {error}");
            }
        };
        seats.push_back(tokio::spawn(contain("an enrolment connection", serving)).abort_handle());
    }
}

async fn converse(
    stream: TcpStream,
    tls: ServerTls,
    router: Router,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let (stream, standing) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
    let router = router.layer(Extension(Member(standing.map(Arc::new))));
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await?;
    Ok(())
}

fn router(enrolment: Arc<Enrolment>) -> Router {
    Router::new()
        .route(routes::ENROL, post(enrol))
        .route(routes::PENDING, post(begin))
        .route(routes::PENDING_ONE, put(reveal).get(outcome))
        .route(routes::SERVERS, post(check_in))
        .merge(archive::routes())
        .with_state(enrolment)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "this is the enrolment server of a Cheetah room") })
        .layer(DefaultBodyLimit::max(REQUEST_LEN_MAX))
}

async fn enrol(State(shared): Shared, Extension(peer): Extension<SocketAddr>, body: Bytes) -> Answer<Json<Enrolled>> {
    let request: Enrol = parse(&body)?;
    blocking(shared, peer, move |shared| {
        let room = &shared.room;
        let token = Token::from_hex(&request.token).ok_or_else(|| bad("the token is malformed"))?.hash();
        let (key, applicant) = applicant(&request.claims, room, peer)?;
        let random = serial().map_err(internal)?;
        let member = room.change(|register| {
            let admitted = register.admit_invited(token, &applicant, random, now_s());
            Ok(admitted.cloned())
        });
        let member = member.map_err(internal)?.map_err(denied)?;
        shared.welcome(&member, &key, request.claims.time_s)
    })
    .await
}

async fn begin(State(shared): Shared, Extension(peer): Extension<SocketAddr>, body: Bytes) -> Answer<Json<Begun>> {
    let request: Begin = parse(&body)?;
    blocking(shared, peer, move |shared| {
        let commitment = request.commitment.parse::<Fingerprint>().map_err(|_| bad("the commitment is malformed"))?;
        let role = request.role.parse().map_err(|_| bad("the role is unknown"))?;
        let nonce = random::bytes().map_err(|error| internal(error.into()))?;
        let random = (serial().map_err(internal)?, nonce);
        let address = peer.ip().to_canonical().to_string();
        let id = shared.room.change_pending(|pending| {
            Ok::<_, Error>(pending.begin(random, commitment.0, (&request.name, role), &address, now_s()))
        });
        let id = id.map_err(internal)?.map_err(refused)?;
        Ok(Json(Begun { id, nonce: Fingerprint(nonce).to_string() }))
    })
    .await
}

async fn reveal(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer<StatusCode> {
    let request: Reveal = parse(&body)?;
    blocking(shared, peer, move |shared| {
        let room = &shared.room;
        let nonce = request.nonce.parse::<Fingerprint>().map_err(|_| bad("the nonce is malformed"))?;
        let (key, applicant) = applicant(&request.claims, room, peer)?;
        let revealed = Revealed {
            key: key.fingerprint(),
            public_key: key.to_string(),
            nonce: nonce.0,
            hosts: applicant.hosts.iter().map(ToString::to_string).collect(),
        };
        let shown = room.change_pending(|pending| {
            let code = pending.reveal(&id, revealed, &room.key(), now_s());
            Ok::<_, Error>(code.and_then(|code| Ok((code, pending.place(&id, now_s())?.clone()))))
        });
        let (code, place) = shown.map_err(internal)?.map_err(refused)?;
        let (name, role, address) = (place.name, place.role, place.address);
        (shared.report)(Event::Waiting { name, role, address, code: code.to_string() });
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

async fn outcome(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Path(id): Path<String>,
) -> Answer<Response> {
    blocking(shared, peer, move |shared| {
        let room = &shared.room;
        let pending = room.pending().map_err(internal)?;
        let place = pending.place(&id, now_s()).map_err(refused)?;
        if !place.approved {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let Some((key, hosts)) = place.revealed() else {
            return Ok(StatusCode::ACCEPTED.into_response());
        };
        let key = PublicKey::parse(key).ok_or_else(|| bad("the key is malformed"))?;
        let applicant = Applicant {
            name: place.name.clone(),
            key: key.fingerprint(),
            called_from: place.address.parse().ok(),
            hosts: hosts.iter().filter_map(|host| host.parse().ok()).collect(),
        };
        let random = serial().map_err(internal)?;
        let member = room.change(|register| {
            // Asking again, since an answer was lost, gives the same certificate.
            let known = register.members().iter().find(|member| member.key == applicant.key);
            if let Some(member) = known.filter(|member| member.by == Admission::Approved && member.revoked.is_none()) {
                return Ok(Ok(member.clone()));
            }
            Ok(register.admit(&applicant, place.role, Admission::Approved, random, now_s()).cloned())
        });
        let member = member.map_err(internal)?.map_err(denied)?;
        Ok(shared.welcome(&member, &key, now_s())?.into_response())
    })
    .await
}

/// A member reports a server, and gets the list of revoked certificates.
async fn check_in(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    body: Bytes,
) -> Answer<Json<CheckedIn>> {
    let request: CheckIn = parse(&body)?;
    let Some(standing) = member.0 else {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "this is for members: a certificate of the room is needed"));
    };
    blocking(shared, peer, move |shared| {
        let server = request.server.map(|server| server.known_to(peer.ip()));
        let known = shared.room.check_in(&standing.identity().key, server, request.ended);
        known.map_err(|error| Refusal::new(StatusCode::FORBIDDEN, error.to_string()))?;
        let revocations = shared.room.revocations_kept().map_err(internal)?;
        Ok(Json(CheckedIn { revocations, time_s: now_s() }))
    })
    .await
}

impl Enrolment {
    /// Issues a member's certificate.
    fn welcome(&self, member: &register::Member, key: &PublicKey, its_time: u64) -> Answer<Json<Enrolled>> {
        let authority = self.room.authority();
        let certificate = authority.issue(&member.into(), key).map_err(internal)?;
        let revocations = self.room.revocations_pem().map_err(internal)?;
        let time_s = now_s();
        let clock_offset_s = i64::try_from(i128::from(its_time) - i128::from(time_s)).unwrap_or(i64::MAX);
        (self.report)(Event::Joined { member: Box::new(member.clone()), clock_offset_s });
        let room = self.room.name().to_owned();
        Ok(Json(Enrolled { certificate, authority: authority.certificate_pem().to_owned(), revocations, room, time_s }))
    }
}

/// A machine's claims, and its key, whose possession it has proved.
fn applicant(claims: &Claims, room: &Room, peer: SocketAddr) -> Answer<(PublicKey, Applicant)> {
    let key = claims.proven_key(&room.key()).ok_or_else(|| bad("the key is malformed, or its proof is wrong"))?;
    let hosts = claims.hosts.iter().take(MEMBER_HOSTS_MAX).filter_map(|host| host.parse().ok()).collect();
    let address = peer.ip().to_canonical();
    let called_from = (!address.is_loopback()).then_some(Host::Ip(address));
    let applicant =
        Applicant { name: claims.name.chars().take(256).collect(), key: key.fingerprint(), called_from, hosts };
    Ok((key, applicant))
}

/// Runs `work`, which waits for the disk, on a blocking thread. It completes even if the caller disconnects.
async fn blocking<T: Send + 'static>(
    shared: Arc<Enrolment>,
    peer: SocketAddr,
    work: impl FnOnce(&Enrolment) -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let done = spawn_blocking(move || {
        let answer = work(&shared);
        if let Err(refusal) = &answer {
            let (address, why) = (peer.ip().to_canonical().to_string(), refusal.to_string());
            (shared.report)(Event::Refused { address, why, next: refusal.steps().to_vec() });
        }
        answer
    });
    done.await.unwrap_or_else(|_| Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the room is ending")))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    // The message would quote the request, and with it the token.
    serde_json::from_slice(body).map_err(|_| bad("the request is malformed"))
}

fn bad(why: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, why)
}

fn denied(why: Denied) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, why.to_string()).advise(why.next())
}

fn refused(why: Refused) -> Refusal {
    let status = if why == Refused::NoPlace { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::FORBIDDEN };
    Refusal::new(status, why.to_string()).advise(why.next())
}

/// A failure at this machine. The caller gets no path.
fn internal(error: Error) -> Refusal {
    tracing::error!(%error, "enrolment failed");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the room's machine failed; see its messages there")
}
