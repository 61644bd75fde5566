//! The client of a far end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cheetah_control::http::caller::{CallError, Caller, Deadline, parse, words};
use cheetah_tls::{Credential, Expected, Role, Roles};
use http_body_util::{Empty, Full};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::{Arrivals, BulkReceived, FarInfo, ReceiveRequest, Receiving, SendReply, SendRequest, Token};
use super::bulk::{self, Bulk};
use super::rate::Rate;
use super::routes;
use crate::clock::Nanos;

/// The most characters of a far end's name, and of its version, that are shown.
const NAME_CHARS_MAX: usize = 200;
/// The members that take part in measurements.
const FAR_ENDS: Roles = Roles::of(&[Role::Node, Role::TrustedNode, Role::Agent]);
/// The largest answer accepted, in bytes: twenty times the arrivals of the longest train.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The time-out of requests that a far end answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time-out of sending a train: waiting for a permit, and the longest train.
const SEND_PATIENCE: Duration = Duration::from_secs(10);

/// A client of one far end. It opens a connection for each request.
#[derive(Debug, Clone, Copy)]
pub struct FarClient<'a> {
    address: SocketAddr,
    credential: Option<&'a Credential>,
    patience: Duration,
}

/// The error of a request to a far end.
#[derive(Debug, thiserror::Error)]
pub enum FarError {
    /// There was no answer.
    #[error("nobody answers at {address}: {why}")]
    Unreachable {
        /// Its address.
        address: SocketAddr,
        /// How it failed.
        #[source]
        why: CallError,
    },
    /// The far end refused.
    #[error("the far end at {address} refuses: {error}")]
    Refused {
        /// Its address.
        address: SocketAddr,
        /// HTTP status.
        status: u16,
        /// Its message.
        error: String,
    },
    /// The server is not a far end.
    #[error("the server at {address} is not a Cheetah node or agent that takes part in measurements: {why}")]
    NotOne {
        /// Its address.
        address: SocketAddr,
        /// The unexpected part of the answer.
        why: String,
    },
}

type Result<T> = std::result::Result<T, FarError>;

impl<'a> FarClient<'a> {
    /// Creates a client of the far end at `address`. Sends nothing yet. Requests have TLS if there is a credential.
    #[must_use]
    pub const fn new(address: SocketAddr, credential: Option<&'a Credential>) -> Self {
        Self { address, credential, patience: PATIENCE }
    }

    /// Sets the time-out of requests that are answered at once; the default is 5 s.
    #[must_use]
    pub const fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the far end's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for its name and limits.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn about(&self) -> Result<FarInfo> {
        let FarInfo { name, version, sends, limits } = self.get(routes::ABOUT, self.patience).await?;
        let short = |text: &str| words(text).chars().take(NAME_CHARS_MAX).collect();
        Ok(FarInfo { name: short(&name), version: short(&version), sends, limits })
    }

    /// Asks it to expect a train.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn receive(&self, packets_max: u32, seconds_max: u32) -> Result<Receiving> {
        self.post(routes::RECEIVE, &ReceiveRequest { packets_max, seconds_max }, self.patience).await
    }

    /// Asks for the packets of a train received so far.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn arrivals(&self, token: Token) -> Result<Arrivals> {
        self.get(&routes::received(token), self.patience).await
    }

    /// Asks it to forget a train.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn forget(&self, token: Token) -> Result<()> {
        self.call(Method::DELETE, &routes::received(token), Bytes::new(), self.patience).await.map(drop)
    }

    /// Asks it to send a train.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn send(&self, request: &SendRequest) -> Result<SendReply> {
        self.post(routes::SEND, request, SEND_PATIENCE).await
    }

    /// Measures what one TCP connection carries from there in `for_at_most`.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn bulk_from(&self, for_at_most: Duration) -> Result<Rate> {
        let deadline = Deadline::after(self.patience);
        let begun = Nanos::now();
        let mut caller = self.connect(deadline).await?;
        let connected = Nanos::now();
        let response = caller.send(Method::GET, routes::BULK, Empty::new(), deadline).await;
        let response = response.map_err(|error| self.failed(error))?;
        // Each of the two takes a round trip at least; a busy machine delays one of them more often than both.
        let round_trip = connected.since(begun).min(Nanos::now().since(connected));
        Ok(bulk::swallow(response.into_body(), Rate::over(round_trip), u64::MAX, for_at_most).await)
    }

    /// Measures what one TCP connection carries there in `for_at_most`, as the far end received it; sends at most
    /// `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn bulk_to(&self, for_at_most: Duration, bytes_max: u64) -> Result<BulkReceived> {
        let deadline = Deadline::after(for_at_most + self.patience);
        let mut caller = self.connect(deadline).await?;
        let body = Bulk::new(bytes_max, for_at_most, ());
        let answer = caller.call(Method::PUT, routes::BULK, body, ANSWER_BYTES_MAX, deadline).await;
        self.parse(&answer.map_err(|error| self.failed(error))?.into_body())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, patience: Duration) -> Result<T> {
        self.parse(&self.call(Method::GET, path, Bytes::new(), patience).await?)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, patience: Duration) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| self.failed(CallError::Malformed(error.to_string())))?;
        self.parse(&self.call(Method::POST, path, body.into(), patience).await?)
    }

    /// Sends a request over a connection of its own, and returns the answer.
    async fn call(&self, method: Method, path: &str, body: Bytes, patience: Duration) -> Result<Bytes> {
        let deadline = Deadline::after(patience);
        let mut caller = self.connect(deadline).await?;
        let answer = caller.call(method, path, Full::new(body), ANSWER_BYTES_MAX, deadline).await;
        Ok(answer.map_err(|error| self.failed(error))?.into_body())
    }

    async fn connect(&self, deadline: Deadline) -> Result<Caller> {
        let tls = self.credential.map(|credential| credential.client(Expected::roles(FAR_ENDS)));
        let tls = tls.transpose().map_err(|error| self.failed(CallError::NoTls(io::Error::other(error))))?;
        let caller = Caller::connect(&self.address.to_string(), tls.as_ref(), deadline).await;
        caller.map_err(|error| self.failed(error))
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        parse(body).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: CallError) -> FarError {
        let address = self.address;
        match error {
            // Older nodes answer this for every unknown path.
            CallError::Refused { status: StatusCode::NOT_FOUND, error: Some(_), .. } => {
                FarError::NotOne { address, why: "it knows nothing of measurements".to_owned() }
            }
            CallError::Refused { status, error: Some(error), .. } => {
                FarError::Refused { address, status: status.as_u16(), error }
            }
            CallError::Refused { .. } | CallError::Malformed(_) | CallError::Ended(_) => {
                FarError::NotOne { address, why: error.to_string() }
            }
            why => FarError::Unreachable { address, why },
        }
    }
}
