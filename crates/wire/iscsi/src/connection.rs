//! A connection and its session: moves bytes between the socket and the state machines.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use cheetah_device::receive::Target;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::login::{Discovery, Login, LoginError, LoginParameters, Step};
use crate::options::LoginKeys;
use crate::scsi::Cdb;
use crate::session::{Outcome, Session, SessionEnd};
use crate::uri::IscsiUri;

/// The silence after which the kernel detects a dead peer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The reason a connection failed or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The socket fails.
    #[error("{}", cheetah_device::os_error::describe(.0))]
    Io(#[from] io::Error),
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The session ended.
    #[error(transparent)]
    SessionEnd(#[from] SessionEnd),
    /// The target closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// The target, or the path to it, is dead.
    #[error("no answer for {0:?}")]
    Silent(Duration),
    /// It is reachable, but unusable.
    #[error("{0}")]
    Unusable(String),
}

/// A connection and its session.
pub(crate) struct IscsiConnection {
    stream: TcpStream,
    pub session: Session,
    /// The keys the target agreed to.
    pub keys: LoginKeys,
    input: BytesMut,
    pub out: BytesMut,
    /// Completed commands; the caller of `poll` drains it.
    pub ended: Vec<(u32, Outcome)>,
}

/// Connects a socket.
async fn dial(uri: &IscsiUri) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((uri.host.as_str(), uri.port)).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// Sends `out`, and receives more into `input`.
async fn exchange(stream: &mut TcpStream, input: &mut BytesMut, out: &mut BytesMut) -> Result<(), ConnectionError> {
    stream.write_all_buf(out).await?;
    input.reserve(8 << 10);
    match stream.read_buf(input).await? {
        0 => Err(LoginError::Closed.into()),
        _ => Ok(()),
    }
}

impl IscsiConnection {
    /// Connects and logs in.
    pub async fn open(
        uri: &IscsiUri,
        parameters: LoginParameters,
        lun: u16,
        in_flight_max: usize,
    ) -> Result<Self, ConnectionError> {
        let mut stream = dial(uri).await?;
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        let mut login = Login::start(parameters, &mut out);
        loop {
            exchange(&mut stream, &mut input, &mut out).await?;
            if let Step::Done(agreement) = login.advance(&mut input, &mut out)? {
                let session = Session::new(&agreement, lun, in_flight_max);
                return Ok(Self { stream, session, keys: agreement.keys, input, out, ended: Vec::new() });
            }
        }
    }

    /// Connects, and lists the targets.
    pub async fn discover(uri: &IscsiUri, parameters: LoginParameters) -> Result<Vec<String>, ConnectionError> {
        let mut stream = dial(uri).await?;
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        let mut login = Login::start(parameters, &mut out);
        let agreement = loop {
            exchange(&mut stream, &mut input, &mut out).await?;
            if let Step::Done(agreement) = login.advance(&mut input, &mut out)? {
                break agreement;
            }
        };
        let mut discovery = Discovery::start(agreement, &mut out);
        loop {
            exchange(&mut stream, &mut input, &mut out).await?;
            if let Some(targets) = discovery.advance(&mut input, &mut out)? {
                return Ok(targets);
            }
        }
    }

    /// Runs one command; used before the connection task owns the connection.
    pub async fn execute(&mut self, cdb: &Cdb, len: u32) -> Result<Outcome, ConnectionError> {
        while !self.session.has_room() {
            poll_fn(|cx| self.poll(cx)).await?;
        }
        let itt = self.session.submit(cdb, len, &mut self.out);
        loop {
            poll_fn(|cx| self.poll(cx)).await?;
            if let Some(index) = self.ended.iter().position(|(ended, _)| *ended == itt) {
                return Ok(self.ended.swap_remove(index).1);
            }
        }
    }

    /// Sends and receives as far as the socket allows. Ready when something was received and processed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        while !self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ConnectionError::Closed)),
                Poll::Ready(Ok(len)) => self.out.advance(len),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => break,
            }
        }
        let (buffer, len_max, direct) = match self.session.target() {
            Target::Payload(buffer, len_max) => (buffer, len_max, true),
            Target::Input(len_max) => {
                self.input.reserve(len_max);
                (&mut self.input, len_max, false)
            }
        };
        let len = ready!(pin!(self.stream.read_buf(&mut buffer.limit(len_max))).poll(cx))?;
        if len == 0 {
            return Poll::Ready(Err(ConnectionError::Closed));
        }
        if direct {
            self.session.received(len, &mut self.input);
        }
        self.session.take(&mut self.input, &mut self.out, &mut self.ended)?;
        Poll::Ready(Ok(()))
    }

    /// Logs out, if the socket has room; otherwise the target notices the closed connection.
    pub fn say_goodbye(mut self) {
        self.session.logout(&mut self.out);
        let _ = self.stream.try_write(&self.out);
    }
}
