//! Calling the HTTP server of another machine, in clear or with TLS, within limits of time and size.
//!
//! The Host header is the server's address, never a name: servers refuse names that they do not know. What a server says
//! in an error is made safe to print, so that it cannot forge a line of a report or of a log.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use cheetah_device::error::EHOSTUNREACH;
use cheetah_device::{os_error, visible};
use cheetah_error::{Fact, Next};
use cheetah_tls::{ClientTls, Identity, Refusal, Transport};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::ErrorBody;

/// The most characters of a server's message that are shown.
const WORDS_CHARS_MAX: usize = 500;
/// The most bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// How long to wait for the reason why a connection has ended.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

type BoxError = Box<dyn StdError + Send + Sync>;

/// When a call is given up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// After this time from now on.
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// This one, or an earlier one after `limit`.
    #[must_use]
    pub fn or_after(self, limit: Duration) -> Self {
        let other = Self::after(limit);
        if other.at < self.at { other } else { self }
    }

    async fn wait<T>(self, work: impl Future<Output = T>, late: impl FnOnce(Duration) -> CallError) -> Result<T> {
        timeout_at(self.at, work).await.map_err(|_| late(self.limit))
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection to the address.
    #[error("cannot connect: {}", os_error::describe(.0))]
    NotConnected(#[source] io::Error),
    /// Nothing accepted the connection in time.
    #[error("no connection within {} s", .0.as_secs_f32())]
    NotAccepted(Duration),
    /// The handshake of TLS failed.
    #[error("no TLS: {0}")]
    NoTls(#[source] io::Error),
    /// The handshake of TLS did not complete in time.
    #[error("no TLS within {} s", .0.as_secs_f32())]
    SilentTls(Duration),
    /// The connection ended before the answer.
    #[error("the connection ended: {}", shown(.0))]
    Ended(#[source] BoxError),
    /// There was no complete answer in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The answer is not HTTP, is too long, or has another content than agreed.
    #[error("{0}")]
    Malformed(String),
    /// The server refused.
    #[error("{}", refused(*.status, .error.as_deref()))]
    Refused {
        /// The status.
        status: StatusCode,
        /// The server's message, safe to print; `None` if it sent none.
        error: Option<String>,
        /// The next steps that the server names.
        next: Vec<Next>,
    },
}

type Result<T> = std::result::Result<T, CallError>;

impl CallError {
    /// The error of the connection, if that failed.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::NotConnected(error) | Self::NoTls(error) => Some(error),
            Self::Ended(error) => io_of(&**error),
            _ => None,
        }
    }

    /// The reason for which TLS was refused, if it was.
    pub fn refusal(&self) -> Option<Refusal> {
        self.io().and_then(Refusal::of_error)
    }

    /// The next steps, if there are some.
    pub fn steps(&self) -> Vec<Next> {
        match self {
            Self::Refused { next, .. } => next.clone(),
            _ => self.refusal().and_then(|refusal| Next::of_connection(refusal.errno())).into_iter().collect(),
        }
    }

    /// What the error says about a node at the address.
    pub fn fact(&self) -> Fact {
        match self {
            Self::NotConnected(_) | Self::NoTls(_) | Self::Ended(_) => self.io().map_or(Fact::Unreachable, fact_of),
            Self::SilentTls(_) | Self::Silent(_) => Fact::Silent,
            // The machine answers, and it is no node.
            Self::NotAccepted(_) | Self::Malformed(_) | Self::Refused { .. } => Fact::Unreachable,
        }
    }

    fn malformed(why: impl ToString) -> Self {
        // May quote the answer.
        Self::Malformed(words(&why.to_string()))
    }

    fn of_http(error: BoxError) -> Self {
        if io_of(&*error).is_some() { Self::Ended(error) } else { Self::malformed(error) }
    }
}

fn shown(ended: &BoxError) -> String {
    io_of(&**ended).map_or_else(|| ended.to_string(), os_error::describe)
}

fn refused(status: StatusCode, error: Option<&str>) -> String {
    error.map_or_else(|| format!("HTTP status {status}"), str::to_owned)
}

/// What an error of a connection says about the node.
fn fact_of(error: &io::Error) -> Fact {
    Fact::of_errno(match (Refusal::of_error(error), cheetah_kit::errno::of(error), error.kind()) {
        (Some(refusal), ..) => refusal.errno(),
        // The operating system's time-out is that of a connection that nobody accepts.
        (None, Some(errno), kind) if kind != io::ErrorKind::TimedOut => errno,
        _ => EHOSTUNREACH,
    })
}

/// The error of the stream below HTTP, if it is the cause.
fn io_of<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// A connection to a server, for one request after the other. Dropping it closes it.
#[derive(Debug)]
pub struct Caller {
    sender: SendRequest<UnsyncBoxBody<Bytes, BoxError>>,
    /// The server's address, without the scope.
    host: String,
    transport: Transport,
    /// Drives the connection, until that has ended.
    driver: Option<JoinHandle<hyper::Result<()>>>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// Connects to `address` (`host:port`) in clear.
///
/// # Errors
///
/// [`CallError::NotConnected`] or [`CallError::NotAccepted`].
pub async fn dial(address: &str, deadline: Deadline) -> Result<TcpStream> {
    let connected = deadline.wait(TcpStream::connect(address), CallError::NotAccepted).await?;
    // The first request follows the handshake without waiting for an answer.
    let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    connected.map_err(CallError::NotConnected)
}

impl Caller {
    /// Connects to `address` (`host:port`), with TLS if any is given.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached before the deadline, or is not as `tls` expects.
    pub async fn connect(address: &str, tls: Option<&ClientTls>, deadline: Deadline) -> Result<Self> {
        let stream = dial(address, deadline).await?;
        let peer = stream.peer_addr().map_err(CallError::NotConnected)?;
        let Some(tls) = tls else { return Self::begin(stream, peer, Transport::Clear).await };
        let host = peer.ip().to_string();
        let secured = deadline.wait(tls.connect(&host, peer.port(), stream), CallError::SilentTls).await?;
        let (stream, identity) = secured.map_err(CallError::NoTls)?;
        let transport = Transport::Tls { cipher: stream.channel().cipher, peer: identity.map(Box::new) };
        Self::begin(stream, peer, transport).await
    }

    async fn begin<S>(stream: S, peer: SocketAddr, transport: Transport) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let host = SocketAddr::new(peer.ip(), peer.port()).to_string();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(CallError::malformed)?;
        Ok(Self { sender, host, transport, driver: Some(tokio::spawn(connection)) })
    }

    /// The protection of the connection.
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The server, if it is a member of a room.
    pub fn peer(&self) -> Option<&Identity> {
        match &self.transport {
            Transport::Tls { peer, .. } => peer.as_deref(),
            Transport::Clear | Transport::Unix => None,
        }
    }

    /// Sends a request, and returns the answer's head; its body comes while this connection is kept.
    ///
    /// # Errors
    ///
    /// If there is no answer before the deadline, or a refusal.
    pub async fn send<B>(
        &mut self,
        method: Method,
        path: &str,
        body: B,
        deadline: Deadline,
    ) -> Result<Response<Incoming>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map_err(Into::into).boxed_unsync())
            .map_err(CallError::malformed)?;
        let sent = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = match deadline.wait(sent, CallError::Silent).await? {
            Ok(response) if response.status().is_success() => return Ok(response),
            Ok(response) => response,
            Err(error) => return Err(self.ended(error).await),
        };
        let status = response.status();
        let body = whole(response, REFUSAL_BYTES_MAX, deadline).await?.into_body();
        let (error, next) = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => (Some(words(&body.error)), body.next),
            Err(_) => (None, Vec::new()),
        };
        Err(CallError::Refused { status, error, next })
    }

    /// Sends a request, and returns the whole answer, of at most `answer_bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// If there is no answer before the deadline, it is too long, or a refusal.
    pub async fn call<B>(
        &mut self,
        method: Method,
        path: &str,
        body: B,
        answer_bytes_max: usize,
        deadline: Deadline,
    ) -> Result<Response<Bytes>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let response = self.send(method, path, body, deadline).await?;
        whole(response, answer_bytes_max, deadline).await
    }

    /// The error for a request without an answer: that of the connection, such as a certificate that the server does
    /// not accept, or else that the answer is not HTTP.
    async fn ended(&mut self, error: hyper::Error) -> CallError {
        let own = CallError::of_http(error.into());
        let Some(mut driver) = self.driver.take().filter(|_| own.refusal().is_none()) else { return own };
        // The server's last word may arrive after the failure to send.
        let last = timeout(REASON_TIMEOUT, &mut driver).await;
        driver.abort();
        match last {
            Ok(Ok(Err(last))) if io_of(&last).is_some() => CallError::Ended(last.into()),
            _ => own,
        }
    }
}

async fn whole(response: Response<Incoming>, bytes_max: usize, deadline: Deadline) -> Result<Response<Bytes>> {
    let (head, body) = response.into_parts();
    let body = deadline.wait(Limited::new(body, bytes_max).collect(), CallError::Silent).await?;
    Ok(Response::from_parts(head, body.map_err(CallError::of_http)?.to_bytes()))
}

/// Parses the JSON of an answer.
///
/// # Errors
///
/// [`CallError::Malformed`].
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(CallError::malformed)
}

/// Makes a peer's words safe to print: without characters that control how text is shown, and of limited length.
pub fn words(text: &str) -> String {
    text.chars().filter(|c| !visible::is_control(*c)).take(WORDS_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Json, Router};
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http::{Limits, serve};

    /// Longer than any of these calls takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A server of these answers.
    async fn server(router: Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let limits = Limits { connections_max: 64, life_max: PATIENCE };
        tokio::spawn(async move { serve(listener, limits, None, |_| router.clone()).await });
        at
    }

    async fn get_from(at: &str, limit: Duration, answer_bytes_max: usize) -> Result<Response<Bytes>> {
        let deadline = Deadline::after(limit);
        let mut caller = Caller::connect(at, None, deadline).await?;
        caller.call(Method::GET, "/", Empty::new(), answer_bytes_max, deadline).await
    }

    #[tokio::test]
    async fn a_servers_words_are_one_short_line_without_escapes() {
        let error = "\u{1b}[2J\nnode pc7: ok\r\u{202e}".to_owned() + &"x".repeat(1000);
        let refuse = || async { (StatusCode::CONFLICT, Json(ErrorBody { error, next: Vec::new() })) };
        let at = server(Router::new().route("/", get(refuse))).await;
        let Err(CallError::Refused { status: StatusCode::CONFLICT, error: Some(words), .. }) =
            get_from(&at, PATIENCE, 10).await
        else {
            panic!("it refuses");
        };
        let safe = "[2Jnode pc7: ok".to_owned() + &"x".repeat(1000);
        assert_eq!(words, safe[..WORDS_CHARS_MAX]);
        let quoted = parse::<u32>(b"\"\x7f\xe2\x80\xae\"").unwrap_err().to_string();
        assert!(!quoted.contains(visible::is_control), "{quoted:?}");
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_or_no_http_is_malformed() {
        let at = server(Router::new().route("/", get(|| async { "0123456789" }))).await;
        assert_eq!(get_from(&at, PATIENCE, 10).await.unwrap().into_body(), "0123456789");
        assert!(matches!(get_from(&at, PATIENCE, 9).await, Err(CallError::Malformed(_))));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_10.0\r\n").await.unwrap();
            // Until the caller closes the connection.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        assert!(matches!(get_from(&at, PATIENCE, 10).await, Err(CallError::Malformed(_))));
    }

    #[tokio::test]
    async fn a_server_that_is_silent_and_one_that_is_not_there_give_different_facts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let silent = get_from(&at, Duration::from_millis(50), 10).await.unwrap_err();
        assert_eq!((silent.fact(), silent.to_string()), (Fact::Silent, "no answer within 0.05 s".to_owned()));
        drop(listener);
        let gone = get_from(&at, PATIENCE, 10).await.unwrap_err();
        assert_eq!((gone.fact(), gone.to_string()), (Fact::Lost, "cannot connect: Connection refused".to_owned()));
    }
}
