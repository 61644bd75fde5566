//! Requests, as the server's handlers take them.
//!
//! Bodies must be declared as JSON: a browser lets another site's page send that, or a DELETE, only after a preflight request,
//! which gets no answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, Uri, header};
use cheetah_control::http::Refusal;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::shared::Shared;

/// How long a caller may take to send a request's body.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) type Answer<T> = Result<T, Refusal>;
pub(super) type Node = State<Arc<Shared>>;

/// The value of `key` in a query. Values are hex digits, so they need no unescaping.
pub(super) fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

/// A request's JSON body, received in time.
pub(super) struct Body<T>(pub(super) T);

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
