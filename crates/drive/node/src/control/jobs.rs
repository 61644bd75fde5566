//! Requests about jobs.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use cheetah_control::http::{Member, Refusal};
use cheetah_control::jobs::{JobStarted, LINES_WAIT_S_MAX, NewJob};
use cheetah_error::next;
use cheetah_tls::{Credential, Role};

use super::request::{Answer, Body, Node, query};
use crate::jobs::JobError;
use crate::shared::Shared;

pub(super) async fn start(
    State(node): Node,
    Extension(member): Extension<Member>,
    Body(new): Body<NewJob>,
) -> Answer<(StatusCode, Json<JobStarted>)> {
    let export = new.export.clone();
    let task = new.key.as_ref().map(|key| key.task.clone());
    if task.is_some() {
        may_be_lent_keys(&node, &member)?;
    }
    let id = node.jobs.add(new, &member.to_string(), &node.exports, node.instance)?;
    match task {
        // Its form was checked.
        Some(task) => tracing::info!(export, task, "a job begins, for which {member} lends a key"),
        None => tracing::info!(export, "a job begins"),
    }
    Ok((StatusCode::CREATED, Json(JobStarted { id })))
}

/// Refuses keys that arrive in clear, or that the room does not trust this node with.
fn may_be_lent_keys(node: &Shared, member: &Member) -> Answer<()> {
    let own = node.credential.as_ref().and_then(Credential::identity);
    let why = match own {
        Some(own) if member.0.is_some() && own.role == Role::TrustedNode => return Ok(()),
        Some(own) if member.0.is_some() => {
            format!("{own} is lent no keys: these are for the role {}", Role::TrustedNode)
        }
        _ => "this connection is in clear, and keys are lent over TLS only".to_owned(),
    };
    let next = next::Room::InviteWithRole { role: Role::TrustedNode.to_string() };
    Err(Refusal::new(StatusCode::FORBIDDEN, why).advise([next.into()]))
}

pub(super) async fn lines(State(node): Node, Path(id): Path<String>, uri: Uri) -> Answer<Response> {
    let number = |key| match query(&uri, key) {
        None => Ok(0),
        Some(text) => text.parse::<u64>().map_err(|_| {
            let why = format!("'from' is the number of a line, and 'wait_s' at most {LINES_WAIT_S_MAX}");
            Refusal::new(StatusCode::BAD_REQUEST, why)
        }),
    };
    let (from, wait) = (number("from")?, Duration::from_secs(number("wait_s")?));
    let body = node.jobs.lines(&id, from, wait).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

pub(super) async fn cancel(State(node): Node, Path(id): Path<String>) -> Answer<StatusCode> {
    node.jobs.cancel(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<JobError> for Refusal {
    fn from(error: JobError) -> Self {
        let status = match error {
            JobError::Off => StatusCode::NOT_IMPLEMENTED,
            JobError::Ending => StatusCode::SERVICE_UNAVAILABLE,
            JobError::TooMany => StatusCode::TOO_MANY_REQUESTS,
            JobError::OtherInstance => StatusCode::CONFLICT,
            JobError::Export(error) => return error.into(),
            JobError::Bad(_) => StatusCode::BAD_REQUEST,
            JobError::NoKeys => StatusCode::FORBIDDEN,
            JobError::TooManyTasks | JobError::NoMemory(_) => StatusCode::INSUFFICIENT_STORAGE,
            JobError::Unknown => StatusCode::NOT_FOUND,
            JobError::NoLine(_) => StatusCode::GONE,
            JobError::NoId(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
