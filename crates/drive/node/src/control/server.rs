//! The server of the control API.
//!
//! It limits the length of bodies; [`request`](super::request) and [`http`] have the other limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Json, Router};
use cheetah_device::Error;
use cheetah_probe::far::{self, Caller};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

use super::request::{Answer, Body, Node, query};
use super::{jobs, metrics};
use crate::exports::{Exports, ExportsError};
use crate::lease::LeaseRefusal;
use crate::maps;
use crate::shared::Shared;
use cheetah_control::api::{
    BODY_BYTES_MAX, Draining, ExportStatus, LeaseGrant, LeaseRenewal, LeaseRequest, MAP_BODY_BYTES_MAX, NO_MAP,
    NewExport, NewMap, NewNote, Notes, Status, StoredMap,
};
use cheetah_control::http::{self, Ends, Member, Refusal};
use cheetah_control::jobs::JOB_BODY_BYTES_MAX;
use cheetah_control::receipt::{Asked, Receipt};
use cheetah_control::{revoked, routes};
use cheetah_tls::{Role, Roles, ServerTls};

/// Limits for callers. A deletion of all of a node's memory fits, and so does a connection of each process that uses a drive.
const LIMITS: http::Limits = http::Limits { connections_max: 256, life_max: Duration::from_secs(600) };
/// The requests with jobs that are read at once, so that their bodies and words take limited memory, up to about 20 MiB each: the others
/// wait. None takes longer than a body may.
const JOB_BODIES_MAX: usize = 2;
/// The longest time for which an export may wait to be confirmed, in seconds.
const CONFIRM_S_MAX: u64 = 300;
/// The pause between looks at an export that is not confirmed.
const EXPIRE_PAUSE: Duration = Duration::from_secs(1);

/// Serves the API. Runs until it is dropped, which cuts every connection.
pub(crate) async fn serve(listener: TcpListener, tls: Option<ServerTls>, node: Arc<Shared>) {
    let router = router(node);
    let with_caller = |Ends { peer, here }| router.clone().layer(Extension(Caller { peer, here }));
    match http::serve(listener, LIMITS, tls, with_caller).await {}
}

fn router(node: Arc<Shared>) -> Router {
    let far = node.far.clone().map(far::router).unwrap_or_default();
    let revoked = revoked::router(node.credential.clone());
    let store_map = put(store_map).layer(DefaultBodyLimit::max(MAP_BODY_BYTES_MAX));
    let start_job: MethodRouter<Arc<Shared>> = post(jobs::start).layer(DefaultBodyLimit::max(JOB_BODY_BYTES_MAX));
    let bodies = Arc::new(Semaphore::new(JOB_BODIES_MAX));
    let start_job = start_job.layer(middleware::from_fn(move |request: Request, next: Next| {
        let bodies = Arc::clone(&bodies);
        async move {
            // It is never closed.
            let _turn = bodies.acquire().await;
            next.run(request).await
        }
    }));
    Router::new()
        .route(routes::JOBS, start_job)
        .route(routes::JOB, delete(jobs::cancel))
        .route(routes::JOB_LINES, get(jobs::lines))
        .route(routes::STATUS, get(status))
        .route(routes::EXPORTS, post(create))
        .route(routes::EXPORT, delete(remove))
        .route(routes::CONFIRMED, put(confirm))
        .route(routes::LEASE, post(acquire).put(renew).delete(release))
        .route(routes::MAP, store_map.get(map))
        .route(routes::NOTES, get(notes).put(store_note))
        .route(routes::DRAINING, put(drain).delete(undrain))
        .route(routes::METRICS, get(show_metrics))
        .with_state(node)
        .merge(far)
        .merge(revoked)
        .fallback(|| async {
            Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing here; see {}", routes::STATUS))
        })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this cannot be done here")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(by_role))
}

/// Refuses what a member's role does not allow: examiners may do everything, analysts may only read, and other members
/// may do neither. Jobs are for examiners. The list of revoked certificates is signed by the room, so any member may forward it.
async fn by_role(Extension(member): Extension<Member>, request: Request, next: Next) -> Response {
    let roles = match (request.method(), request.uri().path()) {
        // A job takes the machine's processor, and asking for its lines ends it.
        (_, path) if path.starts_with(routes::JOBS) => Roles::of(&[Role::Examiner]),
        (&Method::GET | &Method::HEAD, _) => Roles::READERS,
        (&Method::PUT, routes::REVOKED) => return next.run(request).await,
        _ => Roles::of(&[Role::Examiner]),
    };
    if member.is_one_of(roles) {
        if !request.method().is_safe() {
            tracing::info!("{} {} for {member}", request.method(), request.uri().path());
        }
        return next.run(request).await;
    }
    tracing::warn!("refused {} {} to {member}", request.method(), request.uri().path());
    let why = format!("{member} may not do this: it is for the role {roles}");
    Refusal::new(StatusCode::FORBIDDEN, why).into_response()
}

async fn status(State(node): Node) -> Json<Status> {
    Json(node.status())
}

async fn show_metrics(State(node): Node) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render(&node)).into_response()
}

async fn create(State(node): Node, uri: Uri, Body(new): Body<NewExport>) -> Answer<(StatusCode, Json<ExportStatus>)> {
    let (due, name) = (confirm_by(&uri)?, new.name.clone());
    let of = Arc::clone(&node);
    let create = move |exports: &Exports| {
        let made = exports.create_unconfirmed(&new, due)?;
        // Not once the request is answered: a creator that is killed ends it before.
        if due.is_some() {
            tokio::spawn(expire(of, name));
        }
        Ok(made)
    };
    let made = blocking(node, create).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// When a new export is to be deleted unless it is confirmed, by its creator's request.
fn confirm_by(uri: &Uri) -> Answer<Option<Instant>> {
    let Some(text) = query(uri, "confirm_s") else { return Ok(None) };
    let seconds = text.parse().ok().filter(|seconds| (1..=CONFIRM_S_MAX).contains(seconds));
    let why = || Refusal::new(StatusCode::BAD_REQUEST, format!("'confirm_s' is from 1 to {CONFIRM_S_MAX}"));
    Ok(Some(Instant::now() + Duration::from_secs(seconds.ok_or_else(why)?)))
}

/// Deletes an export that nobody confirms: its creator was killed before it recorded the export.
async fn expire(node: Arc<Shared>, name: String) {
    while let Some(due) = node.exports.confirm_by(&name) {
        // An export with a writer is looked at again.
        sleep_until(due.max(Instant::now() + EXPIRE_PAUSE).into()).await;
        let (node, of) = (Arc::clone(&node), name.clone());
        let deleted = spawn_blocking(move || node.exports.delete_unconfirmed(&of)).await;
        if let Ok(Some(wiped)) = deleted {
            let bytes = wiped.wiped_bytes;
            tracing::warn!(export = name, wiped_bytes = bytes, "export deleted: its creator has not confirmed it");
            return;
        }
    }
}

async fn confirm(State(node): Node, Path(name): Path<String>, uri: Uri) -> Answer<StatusCode> {
    node.exports.confirm(&name, confirm_by(&uri)?)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(State(node): Node, Path(name): Path<String>, uri: Uri) -> Answer<Json<Receipt>> {
    let value = |key| query(&uri, key).map(str::to_owned);
    let (lease, drive, nonce) = (value("lease"), value("drive"), value("nonce"));
    let asked = Asked { drive: drive.unwrap_or_default(), nonce: nonce.unwrap_or_default() };
    if !asked.is_valid() {
        let why = "'drive' and 'nonce' are at most 64 letters and digits each; nothing was deleted";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    }
    let delete = move |exports: &Exports| {
        let wiped = exports.delete(&name, lease.as_deref())?;
        tracing::info!(export = wiped.export, wiped_bytes = wiped.wiped_bytes, "export deleted and wiped");
        Ok(wiped)
    };
    let wiped = blocking(Arc::clone(&node), delete).await?;
    Ok(Json(node.receipt(wiped, asked)))
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

async fn map(State(node): Node, Path(name): Path<String>) -> Answer<Json<StoredMap>> {
    let found = node.exports.map(&name)?;
    found.map(Json).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, NO_MAP))
}

async fn store_map(State(node): Node, Path(name): Path<String>, Body(new): Body<NewMap>) -> Answer<StatusCode> {
    node.exports.store_map(&name, new)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn notes(State(node): Node, Path(name): Path<String>) -> Answer<Json<Notes>> {
    Ok(Json(node.exports.notes(&name)?))
}

async fn store_note(State(node): Node, Path(name): Path<String>, Body(new): Body<NewNote>) -> Answer<StatusCode> {
    node.exports.store_note(&name, new)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(node): Node, Body(draining): Body<Draining>) -> Answer<StatusCode> {
    node.exports.set_draining(Some(draining))?;
    tracing::info!("draining: no new exports");
    Ok(StatusCode::NO_CONTENT)
}

async fn undrain(State(node): Node) -> Answer<StatusCode> {
    node.exports.set_draining(None)?;
    tracing::info!("no longer draining");
    Ok(StatusCode::NO_CONTENT)
}

/// Runs `work`, which touches much memory, on a blocking thread. It completes even if the caller disconnects.
async fn blocking<T: Send + 'static>(
    node: Arc<Shared>,
    work: impl FnOnce(&Exports) -> Result<T, ExportsError> + Send + 'static,
) -> Answer<T> {
    match spawn_blocking(move || work(&node.exports)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the node is shutting down")),
    }
}

impl From<ExportsError> for Refusal {
    fn from(error: ExportsError) -> Self {
        let status = match &error {
            ExportsError::Exists(_)
            | ExportsError::Lease(LeaseRefusal::Held { .. } | LeaseRefusal::Ended)
            | ExportsError::Map(maps::MapRefusal::Outdated(_)) => StatusCode::CONFLICT,
            ExportsError::NotFound(_) => StatusCode::NOT_FOUND,
            ExportsError::TooMany
            | ExportsError::Store(Error::NoSpace(_))
            | ExportsError::TooManyNotes
            | ExportsError::Map(maps::MapRefusal::NoRoom) => StatusCode::INSUFFICIENT_STORAGE,
            ExportsError::NoteTooLong(_) | ExportsError::Map(maps::MapRefusal::TooLong(_)) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            ExportsError::Ending | ExportsError::Draining => StatusCode::SERVICE_UNAVAILABLE,
            ExportsError::Store(Error::Io { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            ExportsError::BadName(_)
            | ExportsError::TooManyNodes
            | ExportsError::BadNoteName(_)
            | ExportsError::BadToken(_)
            | ExportsError::Store(_)
            | ExportsError::Lease(LeaseRefusal::BadTtl(_) | LeaseRefusal::BadHolder) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string()).advise(error.next())
    }
}
