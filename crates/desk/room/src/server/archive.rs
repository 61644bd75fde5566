//! Heads of custody logs and drive files, for members of the room.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use cheetah_control::http::{Member, Refusal};
use cheetah_error::next;
use cheetah_tls::{Role, Standing};

use super::{Answer, Enrolment, Shared, blocking, internal, parse};
use crate::drives::{PART_LEN_MAX, Part};
use crate::heads::Heads;
use crate::routes;
use crate::wire::{DriveNames, REQUEST_LEN_MAX};

/// The roles that use drives.
const CLIENTS: &[Role] = &[Role::Examiner, Role::Analyst];
/// The role that hands drives out.
const EXAMINER: &[Role] = &[Role::Examiner];

/// The routes.
pub(super) fn routes() -> Router<Arc<Enrolment>> {
    Router::new()
        .route(routes::HEADS, post(keep_heads))
        .route(routes::HEADS_OF_LOG, get(heads))
        .route(routes::DRIVES, get(names))
        .route(routes::DRIVE_PART, get(part))
        .route(routes::DRIVE_PART_OF_ID, put(keep_part).delete(forget))
}

/// Stands for the id of whatever drive has the name.
pub const ANY: &str = "any";

async fn keep_heads(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    request: Request,
) -> Answer<StatusCode> {
    let standing = one_of(&member, CLIENTS)?;
    let body = body(request, REQUEST_LEN_MAX).await?;
    let sent: Heads = parse(&body)?;
    blocking(shared, peer, move |shared| {
        let name = admitted(shared, &standing)?;
        let kept = shared.room.keep_heads((&name, &standing.identity().key), &sent.heads);
        kept.map_err(|error| Refusal::new(StatusCode::CONFLICT, error.to_string()))?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

async fn heads(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    Path(log): Path<String>,
) -> Answer<Json<Heads>> {
    let standing = one_of(&member, CLIENTS)?;
    blocking(shared, peer, move |shared| {
        admitted(shared, &standing)?;
        Ok(Json(Heads { heads: shared.room.heads(&log).map_err(internal)? }))
    })
    .await
}

async fn names(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
) -> Answer<Json<DriveNames>> {
    let standing = one_of(&member, CLIENTS)?;
    blocking(shared, peer, move |shared| {
        admitted(shared, &standing)?;
        Ok(Json(DriveNames { drives: shared.room.drive_names().map_err(internal)? }))
    })
    .await
}

async fn part(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    Path((name, part)): Path<(String, String)>,
) -> Answer<Response> {
    let standing = one_of(&member, CLIENTS)?;
    let part = part_named(&part)?;
    blocking(shared, peer, move |shared| {
        admitted(shared, &standing)?;
        match shared.room.part(&name, part).map_err(internal)? {
            Some(content) => Ok(content.into_response()),
            None => Err(Refusal::new(StatusCode::NOT_FOUND, "the room has no such file")),
        }
    })
    .await
}

async fn keep_part(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    Path((name, part, id)): Path<(String, String, String)>,
    request: Request,
) -> Answer<StatusCode> {
    // Before the body is read, which may be long.
    let standing = one_of(&member, EXAMINER)?;
    let part = part_named(&part)?;
    let body = body(request, PART_LEN_MAX).await?;
    blocking(shared, peer, move |shared| {
        admitted(shared, &standing)?;
        let kept = shared.room.keep_part(&name, &id, part, Some(&body));
        kept.map_err(|error| Refusal::new(StatusCode::CONFLICT, error.to_string()))?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

async fn forget(
    State(shared): Shared,
    Extension(peer): Extension<SocketAddr>,
    Extension(member): Extension<Member>,
    Path((name, part, id)): Path<(String, String, String)>,
) -> Answer<StatusCode> {
    let standing = one_of(&member, EXAMINER)?;
    let part = part_named(&part)?;
    blocking(shared, peer, move |shared| {
        admitted(shared, &standing)?;
        let was_there = match part {
            Part::Drive => shared.room.forget_drive(&name, Some(id.as_str()).filter(|id| *id != ANY)),
            part => shared.room.keep_part(&name, &id, part, None).map(|()| true),
        };
        match was_there {
            Ok(true) => Ok(StatusCode::NO_CONTENT),
            Ok(false) => Err(Refusal::new(StatusCode::NOT_FOUND, "the room has no such drive")),
            Err(error) => Err(Refusal::new(StatusCode::CONFLICT, error.to_string())),
        }
    })
    .await
}

/// The caller's certificate, if it has one of these roles.
fn one_of(member: &Member, roles: &[Role]) -> Answer<Arc<Standing>> {
    match &member.0 {
        Some(standing) if roles.contains(&standing.identity().role) => Ok(standing.clone()),
        Some(standing) => {
            let (own, wanted) = (standing.identity(), roles[0]);
            Err(Refusal::new(StatusCode::FORBIDDEN, format!("{own} may not do this: it is for the role {wanted}")))
        }
        None => Err(Refusal::new(StatusCode::FORBIDDEN, "this is for members: a certificate of the room is needed")),
    }
}

/// The caller's name, if the room has not revoked it.
fn admitted(shared: &Enrolment, standing: &Standing) -> Answer<String> {
    let register = shared.room.register().map_err(internal)?;
    let member = register.members().iter().find(|member| member.key == standing.identity().key);
    match member {
        Some(member) if member.revoked.is_none() => Ok(member.name.clone()),
        Some(_) => {
            Err(Refusal::new(StatusCode::FORBIDDEN, "this member was revoked").advise([next::Room::InviteAgain.into()]))
        }
        None => Err(Refusal::new(StatusCode::FORBIDDEN, "the room does not know this member")),
    }
}

fn part_named(text: &str) -> Answer<Part> {
    text.parse().map_err(|()| Refusal::new(StatusCode::NOT_FOUND, "there is no such part of a drive"))
}

async fn body(request: Request, len_max: usize) -> Answer<Bytes> {
    to_bytes(request.into_body(), len_max).await.map_err(|_| {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("it has more than {len_max} bytes, or broke off"))
    })
}
