//! Accepting lists of revoked certificates from members of the room.
//!
//! The room signs the list, so any member may forward it.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::routing::put;
use cheetah_tls::{Credential, REVOCATIONS_BYTES_MAX, TlsError};
use tokio::time::timeout;

use crate::http::Refusal;
use crate::routes::REVOKED;

/// How long a caller may take to send a list.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The routes of a server with this credential. Without one, there are none.
pub fn router(credential: Option<Credential>) -> Router {
    let Some(credential) = credential else { return Router::new() };
    Router::new()
        .route(REVOKED, put(replace))
        .layer(DefaultBodyLimit::max(REVOCATIONS_BYTES_MAX))
        .with_state(credential)
}

async fn replace(State(credential): State<Credential>, request: Request) -> Result<StatusCode, Refusal> {
    let list = match timeout(RECEIVE_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(list)) => list,
        Ok(Err(rejection)) => return Err(Refusal::new(rejection.status(), rejection.body_text())),
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    };
    credential.replace_revocations(&list).map_err(|error| match error {
        TlsError::OldRevocations => Refusal::new(StatusCode::CONFLICT, error.to_string()),
        error => Refusal::new(StatusCode::BAD_REQUEST, error.to_string()),
    })?;
    Ok(StatusCode::NO_CONTENT)
}
