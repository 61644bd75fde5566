//! A connection to the server on the room's machine, for one request.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use cheetah_control::http::caller::{CallError, Caller, Deadline};
use cheetah_error::{Error, Fact, next};
use cheetah_tls::{ClientTls, Fingerprint, Role};
use http_body_util::Full;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::invitation::Host;
use crate::wire::ANSWER_LEN_MAX;

/// How long connecting to one address may take, the handshake included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a request got no answer.
pub enum Failed {
    /// The server cannot be reached, or the connection broke: try again.
    Broken(Error),
    /// The server refused, or is not the room: trying again does not help.
    Refused(Error),
    /// The room does not have what was asked for.
    Missing,
}

impl Failed {
    /// The error without the difference.
    pub fn into_error(self) -> Error {
        match self {
            Self::Broken(error) => error,
            Self::Refused(error) => error,
            Self::Missing => Error::failed("the room does not have that"),
        }
    }
}

/// A connection to the enrolment server, whose room has been verified, for one request.
pub struct Connection(Caller);

impl Connection {
    /// Connects, without a certificate, to the first address that answers, which must be the room with this key.
    pub async fn open_for_enrolment(addresses: &[(Host, u16)], room_key: &Fingerprint) -> Result<Self, Failed> {
        let tls =
            ClientTls::for_enrolment(*room_key).map_err(|error| Failed::Refused(Error::failed(error.to_string())))?;
        Self::open(addresses, &tls).await
    }

    /// Connects to the first address that answers, which must be the room's enrolment server.
    pub async fn open(addresses: &[(Host, u16)], tls: &ClientTls) -> Result<Self, Failed> {
        let (mut why, mut next) = (Vec::new(), Vec::new());
        let mut other = None;
        for (host, port) in addresses {
            let shown = host.with_port(*port);
            match Caller::connect(&shown, Some(tls), Deadline::after(CONNECT_TIMEOUT)).await {
                // Only the machine that has the room's key is the room; an examiner's credential does not suffice.
                Ok(caller) if caller.peer().is_some_and(|server| server.role == Role::Room) => return Ok(Self(caller)),
                Ok(_) => other = Some(format!("{shown} is not the room's enrolment server")),
                Err(CallError::NoTls(error)) if is_certificate_error(&error) => {
                    other = Some(format!("{shown} is not the room of the invitation ({error})"));
                }
                Err(error) => {
                    next.append(&mut error.steps());
                    why.push(format!("{shown}: {error}"));
                }
            }
        }
        Err(match other {
            Some(other) => Failed::Refused(Error::failed(format!(
                "{other}; nothing was sent to it. Another machine may have that address, or intercept the connection"
            )).next(next::Room::CompareMembers)),
            None => Failed::Broken(Error::failed(why.join("; ")).advise(next)),
        })
    }

    /// Sends JSON and parses the answer.
    pub async fn ask<T: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failed> {
        parse(&self.send(method, path, body).await?.1)
    }

    /// Sends JSON, and returns the status, which is a success, and the answer.
    pub async fn send(self, method: Method, path: &str, body: &impl Serialize) -> Result<(StatusCode, Bytes), Failed> {
        let body = serde_json::to_vec(body)
            .map_err(|error| Failed::Refused(Error::failed(format!("putting a request as JSON: {error}"))))?;
        self.send_bytes(method, path, body.into(), ANSWER_LEN_MAX).await
    }

    /// Sends a body, and returns the status, which is a success, and the answer of at most `answer_max` bytes.
    pub async fn send_bytes(
        mut self,
        method: Method,
        path: &str,
        body: Bytes,
        answer_max: usize,
    ) -> Result<(StatusCode, Bytes), Failed> {
        let deadline = Deadline::after(ANSWER_TIMEOUT);
        let (status, why, next) = match self.0.call(method, path, Full::new(body), answer_max, deadline).await {
            Ok(answer) => return Ok((answer.status(), answer.into_body())),
            Err(CallError::Refused { status, error, next }) => {
                (status, error.unwrap_or_else(|| status.to_string()), next)
            }
            Err(error) => return Err(Failed::Broken(Error::failed(error.to_string()).advise(error.steps()))),
        };
        if status == StatusCode::NOT_FOUND {
            return Err(Failed::Missing);
        }
        if status.is_server_error() {
            return Err(Failed::Broken(Error::failed(why).advise(next)));
        }
        let why = format!("the room refuses: {why}");
        let refusal = match status {
            StatusCode::FORBIDDEN => Error::node(Fact::Refused, why),
            _ => Error::failed(why),
        };
        Err(Failed::Refused(refusal.advise(next)))
    }
}

pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failed> {
    serde_json::from_slice(body)
        .map_err(|_| Failed::Refused(Error::failed("the room's answer is malformed; update Cheetah on both machines")))
}

/// Whether a handshake failed because of the server's answer rather than the network.
fn is_certificate_error(error: &io::Error) -> bool {
    let by_us = error.get_ref().is_some_and(|inner| inner.is::<cheetah_tls::TlsError>());
    by_us || error.kind() == io::ErrorKind::InvalidData
}
