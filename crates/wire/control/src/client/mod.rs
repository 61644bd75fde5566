//! A client of the control API.

mod jobs;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cheetah_error::{Fact, Next};
use cheetah_tls::{Credential, Expected, Identity, Role, Roles, Transport};
use http_body_util::Full;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::{
    Draining, ExportStatus, LeaseGrant, LeaseRenewal, LeaseRequest, MAP_BODY_BYTES_MAX, NO_MAP, NewExport, NewMap,
    NewNote, Notes, Status, StoredMap,
};
use super::http::caller::{self, CallError, Caller, Deadline};
use super::receipt::{Asked, Receipt};
use super::routes::{self, escape, fill};

/// The largest response accepted from a node: the longest map, which is ten times a status with the most exports.
const ANSWER_BYTES_MAX: usize = MAP_BODY_BYTES_MAX;

/// How long a node may take to accept a list of revoked certificates, in addition to a call.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a deletion may take: wiping and reading back take seconds for a dozen GiB.
const DELETE_TIMEOUT: Duration = Duration::from_secs(300);

/// A client of one node's control API.
#[derive(Debug, Clone)]
pub struct ControlClient {
    addr: String,
    timeout: Duration,
    credential: Option<Credential>,
    expected: Expected,
    /// The connection kept for the next call, if connections are kept.
    kept: Option<Arc<Mutex<Option<Kept>>>>,
}

/// A connection that is kept for the next call.
#[derive(Debug)]
struct Kept {
    caller: Caller,
    /// The number of certificates known to be revoked when the node presented its own.
    revoked: usize,
}

/// Why a call to a node failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There was no response.
    #[error("node {addr}: {why}")]
    NoAnswer {
        /// The node's control address.
        addr: String,
        /// What that says about the node.
        fact: Fact,
        /// How the attempt failed.
        why: String,
        /// The next steps.
        next: Vec<Next>,
    },
    /// The node refused.
    #[error("node {addr}: {error}")]
    Refused {
        /// The node's control address.
        addr: String,
        /// HTTP status.
        status: u16,
        /// The node's message.
        error: String,
        /// The next steps that the node names.
        next: Vec<Next>,
    },
    /// Another kind of server responded.
    #[error("{addr} does not answer like a Cheetah node: {why}")]
    NotANode {
        /// The address.
        addr: String,
        /// How the response differs.
        why: String,
    },
}

impl ControlError {
    /// What the error says about the node, if it says something.
    pub fn fact(&self) -> Option<Fact> {
        match self {
            Self::NoAnswer { fact, .. } => Some(*fact),
            Self::Refused { status: 401 | 403, .. } => Some(Fact::Refused),
            Self::Refused { status: 404, .. } => Some(Fact::Lost),
            Self::Refused { .. } => None,
            // Its machine answers, and the node is not there.
            Self::NotANode { .. } => Some(Fact::Unreachable),
        }
    }

    /// The next steps.
    pub fn steps(&self) -> &[Next] {
        match self {
            Self::NoAnswer { next, .. } | Self::Refused { next, .. } => next,
            Self::NotANode { .. } => &[],
        }
    }

    /// Whether the node does not let this member do this.
    pub fn is_refusal(&self) -> bool {
        self.fact() == Some(Fact::Refused)
    }

    /// Whether the node refused because of a conflict (409): the name is taken, the lease is held, or a map is not
    /// newer.
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(409)
    }

    /// Whether the node has no such export (404).
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the node has too little memory free (507).
    pub fn is_full(&self) -> bool {
        self.status() == Some(507)
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

type Result<T> = std::result::Result<T, ControlError>;

impl ControlClient {
    /// A client of the node whose control API listens on `addr` (`host:port`). Sends nothing yet. Calls have TLS if there is a
    /// credential, and then the node must be a node of its room.
    pub fn new(addr: impl ToString, credential: Option<&Credential>) -> Self {
        Self {
            addr: addr.to_string(),
            timeout: Duration::from_secs(10),
            credential: credential.cloned(),
            expected: Expected::roles(Roles::NODES),
            kept: None,
        }
    }

    /// Sets the identity that the server must have, if calls have TLS (default: a node).
    #[must_use]
    pub fn expecting(self, expected: Expected) -> Self {
        let kept = self.kept.map(|_| Arc::default());
        Self { expected, kept, ..self }
    }

    /// Keeps the connection of a call that reads or replaces something (GET, PUT) for the next such call; clones share
    /// it. For a node that is called repeatedly: with TLS, each connection costs a handshake.
    #[must_use]
    pub fn keeping_connection(self) -> Self {
        Self { kept: Some(Arc::default()), ..self }
    }

    /// Sets the time-out of a call (default: 10 s; a deletion has five minutes).
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The node's address.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Connects, and returns the identity of the node; `None` if calls are not encrypted.
    ///
    /// # Errors
    ///
    /// If it cannot be reached, or is not as expected.
    pub async fn identity(&self) -> Result<Option<Identity>> {
        if self.credential.is_none() {
            return Ok(None);
        }
        Ok(self.connect(Deadline::after(self.timeout)).await?.peer().cloned())
    }

    /// Gets the node's status.
    pub async fn status(&self) -> Result<Status> {
        self.get(routes::STATUS).await
    }

    /// Gets the node's status, and the protection of the connection over which it arrived.
    pub async fn status_and_transport(&self) -> Result<(Status, Transport)> {
        let (body, transport) = self.call_over(Method::GET, routes::STATUS, Bytes::new(), self.timeout).await?;
        Ok((self.parse(&body)?, transport))
    }

    /// Creates an export.
    pub async fn create_export(&self, export: &NewExport) -> Result<ExportStatus> {
        self.send(Method::POST, routes::EXPORTS, export).await
    }

    /// Creates an export that the node deletes again unless it is confirmed within `confirm_s` seconds, at most 300
    /// ([`Self::confirm_export`]): its creator may be killed before it records the export. An older node keeps it.
    pub async fn create_unconfirmed(&self, export: &NewExport, confirm_s: u64) -> Result<ExportStatus> {
        self.send(Method::POST, &format!("{}?confirm_s={confirm_s}", routes::EXPORTS), export).await
    }

    /// Confirms an export that its creator has recorded or, with `again_s`, has the node wait for as many more seconds.
    pub async fn confirm_export(&self, name: &str, again_s: Option<u64>) -> Result<()> {
        let again = again_s.map(|seconds| format!("?confirm_s={seconds}")).unwrap_or_default();
        let path = format!("{}{again}", fill(routes::CONFIRMED, [name]));
        self.call(Method::PUT, &path, Bytes::new(), self.timeout).await.map(drop)
    }

    /// Deletes an export and wipes its memory. A leased export needs its `lease` token. The caller checks the receipt.
    pub async fn delete_export(&self, name: &str, lease: Option<&str>, asked: &Asked) -> Result<Receipt> {
        let Asked { drive, nonce } = asked;
        let lease = lease.map(|token| format!("&lease={}", escape(token))).unwrap_or_default();
        let path = fill(routes::EXPORT, [name]);
        let path = format!("{path}?drive={}&nonce={}{lease}", escape(drive), escape(nonce));
        self.parse(&self.call(Method::DELETE, &path, Bytes::new(), DELETE_TIMEOUT).await?)
    }

    /// Acquires the write lease of an export.
    pub async fn acquire_lease(&self, name: &str, request: &LeaseRequest) -> Result<LeaseGrant> {
        self.send(Method::POST, &fill(routes::LEASE, [name]), request).await
    }

    /// Renews a lease.
    pub async fn renew_lease(&self, name: &str, token: &str) -> Result<LeaseGrant> {
        self.send(Method::PUT, &fill(routes::LEASE, [name]), &LeaseRenewal { token: token.to_owned() }).await
    }

    /// Releases a lease.
    pub async fn release_lease(&self, name: &str, token: &str) -> Result<()> {
        let path = format!("{}?token={}", fill(routes::LEASE, [name]), escape(token));
        self.call(Method::DELETE, &path, Bytes::new(), self.timeout).await.map(drop)
    }

    /// Gets the map stored with an export; `None` if the export exists and holds none.
    pub async fn map(&self, name: &str) -> Result<Option<StoredMap>> {
        match self.get(&fill(routes::MAP, [name])).await {
            Err(ControlError::Refused { status: 404, error, .. }) if error == NO_MAP => Ok(None),
            found => found.map(Some),
        }
    }

    /// Stores a map with an export whose lease is held.
    pub async fn store_map(&self, name: &str, new: &NewMap) -> Result<()> {
        self.post(Method::PUT, &fill(routes::MAP, [name]), new).await.map(drop)
    }

    /// Gets the notes of an export.
    pub async fn notes(&self, name: &str) -> Result<Notes> {
        self.get(&fill(routes::NOTES, [name])).await
    }

    /// Stores a note with an export, in place of one of the same name.
    pub async fn store_note(&self, name: &str, new: &NewNote) -> Result<()> {
        self.post(Method::PUT, &fill(routes::NOTES, [name]), new).await.map(drop)
    }

    /// Marks the node as about to leave; `None` takes the mark back.
    pub async fn set_draining(&self, draining: Option<&Draining>) -> Result<()> {
        match draining {
            Some(draining) => self.post(Method::PUT, routes::DRAINING, draining).await.map(drop),
            None => self.call(Method::DELETE, routes::DRAINING, Bytes::new(), self.timeout).await.map(drop),
        }
    }

    /// Sends the list of revoked certificates, in DER. Fails with a [conflict](ControlError::is_conflict) if the node
    /// has a newer list, or one with other certificates.
    pub async fn replace_revocations(&self, list: Vec<u8>) -> Result<()> {
        self.call(Method::PUT, routes::REVOKED, list.into(), self.timeout).await.map(drop)
    }

    /// Gets the node's metrics, as Prometheus text.
    pub async fn metrics(&self) -> Result<String> {
        let body = self.call(Method::GET, routes::METRICS, Bytes::new(), self.timeout).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Gets any path of the API.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.parse(&self.call(Method::GET, path, Bytes::new(), self.timeout).await?)
    }

    /// Sends JSON to any path of the API, and parses the response.
    pub async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Result<T> {
        self.parse(&self.post(method, path, body).await?)
    }

    /// Sends JSON to any path, and returns the response's body unchanged.
    pub async fn post(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Bytes> {
        let body = serde_json::to_vec(body).map_err(|error| self.failed(CallError::Malformed(error.to_string())))?;
        self.call(method, path, body.into(), self.timeout).await
    }

    async fn call(&self, method: Method, path: &str, body: Bytes, limit: Duration) -> Result<Bytes> {
        self.call_over(method, path, body, limit).await.map(|(answer, _)| answer)
    }

    async fn call_over(&self, method: Method, path: &str, body: Bytes, limit: Duration) -> Result<(Bytes, Transport)> {
        let answer = self.exchange(method, path, body, Deadline::after(limit)).await?;
        if path != routes::REVOKED {
            self.hand_on_revocations().await;
        }
        Ok(answer)
    }

    /// Sends a node that answers the list of revoked certificates, once: it may not have been reachable when a
    /// certificate was revoked.
    pub async fn hand_on_revocations(&self) {
        let is_node = [Role::Node, Role::TrustedNode].iter().any(|role| self.expected.roles.contains(*role));
        let credential = self.credential.as_ref().filter(|_| is_node);
        let Some(list) = credential.and_then(|credential| credential.new_revocations(&self.addr)) else { return };
        // If this fails, the next process sends the list.
        let _ = self.exchange(Method::PUT, routes::REVOKED, list.into(), Deadline::after(TELL_TIMEOUT)).await;
    }

    /// Sends one request, over the kept connection or a new one.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        deadline: Deadline,
    ) -> Result<(Bytes, Transport)> {
        // The node may have closed the kept connection. Only requests that may arrive twice are sent over it.
        let slot = self.kept.as_ref().filter(|_| method == Method::GET || method == Method::PUT);
        let swap =
            |kept: Option<Kept>| std::mem::replace(&mut *slot?.lock().unwrap_or_else(PoisonError::into_inner), kept);
        let finish = |answer: std::result::Result<Response<Bytes>, CallError>, kept: Kept| {
            let transport = kept.caller.transport().clone();
            if matches!(answer, Ok(_) | Err(CallError::Refused { .. })) {
                swap(Some(kept));
            }
            answer.map(|answer| (answer.into_body(), transport)).map_err(|error| self.failed(error))
        };
        let revoked = self.credential.as_ref().map_or(0, Credential::revoked);
        // Not over a connection that is older than the newest revocation: the node itself may have been revoked.
        if let Some(mut kept) = swap(None).filter(|kept| kept.revoked == revoked) {
            let again = Full::new(body.clone());
            match kept.caller.call(method.clone(), path, again, ANSWER_BYTES_MAX, deadline).await {
                Err(CallError::Ended(_) | CallError::Malformed(_)) => {}
                answer => return finish(answer, kept),
            }
        }
        let mut kept = Kept { caller: self.connect(deadline.or_after(self.timeout)).await?, revoked };
        let answer = kept.caller.call(method, path, Full::new(body), ANSWER_BYTES_MAX, deadline).await;
        finish(answer, kept)
    }

    async fn connect(&self, deadline: Deadline) -> Result<Caller> {
        let tls = self.credential.as_ref().map(|credential| credential.client(self.expected)).transpose();
        let tls = tls.map_err(|error| self.failed(CallError::NoTls(io::Error::other(error))))?;
        Caller::connect(&self.addr, tls.as_ref(), deadline).await.map_err(|error| self.failed(error))
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        caller::parse(body).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: CallError) -> ControlError {
        let addr = self.addr.clone();
        let why = match &error {
            CallError::Refused { status, error: Some(error), next } => {
                let (status, error, next) = (status.as_u16(), error.clone(), next.clone());
                return ControlError::Refused { addr, status, error, next };
            }
            CallError::Refused { .. } | CallError::Malformed(_) => {
                return ControlError::NotANode { addr, why: error.to_string() };
            }
            CallError::NoTls(_) if error.refusal().is_none() => format!("{error}; is it in this room?"),
            _ => error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.to_string()),
        };
        ControlError::NoAnswer { addr, fact: error.fact(), why, next: error.steps() }
    }
}

#[cfg(test)]
mod tests;
