//! Requests about jobs.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use cheetah_control::http::Refusal;
use cheetah_control::jobs::{JobStarted, LINES_WAIT_S_MAX, NewJob};

use super::request::{Answer, Body, Node, query};
use crate::jobs::JobError;

pub(super) async fn start(State(node): Node, Body(new): Body<NewJob>) -> Answer<(StatusCode, Json<JobStarted>)> {
    let export = new.export.clone();
    let id = node.jobs.add(new, &node.exports, node.instance)?;
    tracing::info!(export, "a job begins");
    Ok((StatusCode::CREATED, Json(JobStarted { id })))
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
            JobError::Unknown => StatusCode::NOT_FOUND,
            JobError::NoLine(_) => StatusCode::GONE,
            JobError::NoId(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
