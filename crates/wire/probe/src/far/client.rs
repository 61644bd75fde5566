//! The client of a far end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cheetah_tls::{Expected, Role, Roles, credential_store};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::api::{
    Arrivals, BulkReceived, ErrorBody, FarInfo, ReceiveRequest, Receiving, SendReply, SendRequest, Token,
};
use super::bulk::{self, Bulk};
use super::rate::Rate;
use super::routes;

/// The members that take part in measurements.
const FAR_ENDS: Roles = Roles::of(&[Role::Node, Role::Agent]);
/// The largest answer accepted, in bytes: twenty times the arrivals of the longest train.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The most characters shown of a far end's message.
const WORDS_CHARS_MAX: usize = 200;
/// The time-out of requests that a far end answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time-out of sending a train: waiting for a permit, and the longest train.
const SEND_PATIENCE: Duration = Duration::from_secs(10);

/// A client of one far end. It opens a connection for each request.
#[derive(Debug, Clone, Copy)]
pub struct FarClient {
    address: SocketAddr,
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
        why: io::Error,
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

/// A connection, driven until this is dropped.
struct Driven(JoinSet<()>);

impl FarClient {
    /// Creates a client of the far end at `address`. Sends nothing yet.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, patience: PATIENCE }
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
        Ok(FarInfo { name: words(&name), version: words(&version), sends, limits })
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
        let request = self.request(Method::DELETE, &routes::received(token), Empty::new())?;
        self.answer(request, self.patience).await.map(drop)
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
        let request = self.request(Method::GET, routes::BULK, Empty::new())?;
        let (response, _driven) = self.within(self.patience, self.accepted(request)).await?;
        Ok(bulk::swallow(response.into_body(), u64::MAX, for_at_most).await)
    }

    /// Measures what one TCP connection carries there in `for_at_most`, as the far end received it; sends at most
    /// `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`FarError`].
    pub async fn bulk_to(&self, for_at_most: Duration, bytes_max: u64) -> Result<BulkReceived> {
        let request = self.request(Method::PUT, routes::BULK, Bulk::new(bytes_max, for_at_most, ()))?;
        let body = self.answer(request, for_at_most + self.patience).await?;
        self.parse(&body)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, patience: Duration) -> Result<T> {
        let request = self.request(Method::GET, path, Empty::new())?;
        self.parse(&self.answer(request, patience).await?)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, patience: Duration) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| self.odd(error))?;
        let request = self.request(Method::POST, path, Full::new(Bytes::from(body)))?;
        self.parse(&self.answer(request, patience).await?)
    }

    fn request<B>(&self, method: Method, path: &str, body: B) -> Result<Request<B>> {
        let request = Request::builder().method(method).uri(path);
        // The address without its scope, never a name: a far end does not answer to names it does not know.
        let host = SocketAddr::new(self.address.ip(), self.address.port());
        let request = request.header(header::HOST, host.to_string());
        request.header(header::CONTENT_TYPE, "application/json").body(body).map_err(|error| self.odd(error))
    }

    /// Returns the body of the response, within the time-out.
    async fn answer<B>(&self, request: Request<B>, patience: Duration) -> Result<Bytes>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.within(patience, async {
            let (response, _driven) = self.accepted(request).await?;
            self.whole(response).await
        })
        .await
    }

    /// Returns the response, or an error if the request was refused.
    async fn accepted<B>(&self, request: Request<B>) -> Result<(Response<Incoming>, Driven)>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let (response, driven) = self.exchange(request).await?;
        let status = response.status();
        if status.is_success() {
            Ok((response, driven))
        } else {
            Err(self.refused(status, &self.whole(response).await?))
        }
    }

    async fn exchange<B>(&self, request: Request<B>) -> Result<(Response<Incoming>, Driven)>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let stream = TcpStream::connect(self.address).await.map_err(|why| self.unreachable(why))?;
        stream.set_nodelay(true).map_err(|why| self.unreachable(why))?;
        let Some(credential) = credential_store::default() else { return self.converse(stream, request).await };
        let tls =
            credential.client(Expected::roles(FAR_ENDS)).map_err(|why| self.unreachable(io::Error::other(why)))?;
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        let (stream, _) = tls.connect(&host, port, stream).await.map_err(|why| self.unreachable(why))?;
        self.converse(stream, request).await
    }

    async fn converse<S, B>(&self, stream: S, request: Request<B>) -> Result<(Response<Incoming>, Driven)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.odd(error))?;
        let mut driven = Driven(JoinSet::new());
        driven.0.spawn(async move {
            // The request reports errors of the connection.
            let _ = connection.await;
        });
        let response = sender.send_request(request).await.map_err(|error| self.odd(error))?;
        Ok((response, driven))
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| self.odd(error))?.to_bytes())
    }

    async fn within<T>(&self, patience: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs_f32()));
        timeout(patience, work).await.unwrap_or_else(|_| Err(self.unreachable(late())))
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        serde_json::from_slice(body).map_err(|error| self.odd(error))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> FarError {
        match serde_json::from_slice::<ErrorBody>(body) {
            // Older nodes answer this for every unknown path.
            Ok(_) if status == StatusCode::NOT_FOUND => self.odd("it knows nothing of measurements"),
            Ok(body) => FarError::Refused { address: self.address, status: status.as_u16(), error: words(&body.error) },
            Err(_) => self.odd(format!("HTTP status {status}")),
        }
    }

    fn unreachable(&self, why: io::Error) -> FarError {
        FarError::Unreachable { address: self.address, why }
    }

    fn odd(&self, why: impl ToString) -> FarError {
        // May quote the answer.
        FarError::NotOne { address: self.address, why: words(&why.to_string()) }
    }
}

/// Makes a far end's message safe to print: no control or bidirectional characters, and a limited length.
fn words(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !turns(*c)).take(WORDS_CHARS_MAX).collect()
}
