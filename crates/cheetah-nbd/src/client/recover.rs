//! Making a request until it is answered: choosing a connection, and asking again on another when one is lost.
//!
//! All requests of NBD can be repeated without harm, so a request whose connection is lost is simply made again,
//! by the future of the operation itself, as long as its deadline allows. A connection comes back only if the
//! server still grants what it granted before, so what is repeated goes to the instance that has the bytes.
//!
//! Changes to the content wait until every connection that was lost with changes under way has been replaced, where
//! the server cuts what is replaced: from then on, no copy of them is left that could come after a newer one. And
//! they wait for those that were abandoned, which may be late on another connection.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Error, Result};
use tokio::time::Instant;

use super::Shared;
use super::connection::tick_of;
use super::health::Outlook;
use super::inflight::{Answer, Ask, Failed};
use super::link::{Call, Link};
use crate::proto::{Command, CommandFlags, ErrorCode, Request};

/// One request, however often it has to be made.
pub(super) struct Order<'a> {
    pub command: Command,
    pub flags: CommandFlags,
    pub range: ByteRange,
    pub payload: Option<&'a Data>,
}

impl Shared {
    /// Has the request answered, by its deadline.
    pub async fn call(&self, order: Order<'_>) -> Result<Answer> {
        let issued = Instant::now();
        let deadline = issued + self.timeout;
        let ask = Ask { command: order.command, range: order.range };
        let mut sent_away = false;
        loop {
            let link = self.choose(order.command, order.range, deadline).await?;
            let call = Call { ask, flags: order.flags, payload: order.payload, issued, deadline };
            self.counters.requested(Request::LEN as u64 + order.payload.map_or(0, Data::len));
            match link.call(call).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::TimedOut) => return Err(self.lost(order.range, self.silence())),
                Err(Failed::Disconnected) => {}
                // It asks us to go; whoever comes next in its place may answer.
                Err(Failed::Server { code: ErrorCode::Shutdown, .. }) if Instant::now() < deadline => {
                    link.abort("the server is shutting down");
                    // One whose own source is lost goes on saying so, and is not to be asked without a pause.
                    if sent_away {
                        tokio::time::sleep(tick_of(self.timeout)).await;
                    }
                    sent_away = true;
                }
                Err(Failed::Server { code, message }) => return Err(self.refusal(&order, code, &message)),
            }
        }
    }

    /// The connection with the least under way, or the next to come up.
    async fn choose(&self, command: Command, range: ByteRange, deadline: Instant) -> Result<&Link> {
        loop {
            if let Some(link) = self.usable(command) {
                return Ok(link);
            }
            // Listen before looking, or a change in between would be missed.
            let mut changed = std::pin::pin!(self.health.changed().notified());
            changed.as_mut().enable();
            let now = Instant::now();
            match self.health.outlook(now) {
                Outlook::Refused(refused) if refused.fenced => {
                    return Err(Error::Fenced(format!("{}: {}", self.name, refused.why).into()));
                }
                Outlook::Refused(refused) => return Err(self.lost(range, refused.why)),
                Outlook::Lost(why) => return Err(self.lost(range, why)),
                Outlook::Wait if self.usable(command).is_some() => {}
                Outlook::Wait if now + tick_of(self.timeout) >= deadline => {
                    let why = self.health.why().unwrap_or_else(|| "a lost connection could not be replaced".into());
                    return Err(self.lost(range, why));
                }
                Outlook::Wait => changed.await,
            }
        }
    }

    /// The connection to make a request on, if it can be made now.
    fn usable(&self, command: Command) -> Option<&Link> {
        let held_back = command.modifies() && self.links.iter().any(Link::holds_up_changes);
        if held_back { None } else { self.least_loaded() }
    }

    fn least_loaded(&self) -> Option<&Link> {
        match &self.links[..] {
            [only] => only.load().map(|_| only),
            links => links
                .iter()
                .filter_map(|link| Some((link.load()?, link)))
                .min_by_key(|(load, _)| *load)
                .map(|(_, link)| link),
        }
    }

    /// The error for bytes that nobody answers for.
    pub fn lost(&self, range: ByteRange, why: Arc<str>) -> Error {
        let error = Error::Lost { device: Arc::clone(&self.name), range, why };
        tracing::warn!("{error}");
        error
    }

    /// What to call it when nothing is heard.
    pub fn silence(&self) -> Arc<str> {
        format!("no answer for {:?}", self.timeout).into()
    }

    /// What the server's error means here.
    fn refusal(&self, order: &Order<'_>, code: ErrorCode, message: &str) -> Error {
        let doing = match order.command {
            Command::Read => "reading",
            Command::Write => "writing",
            Command::Trim => "trimming",
            Command::WriteZeroes => "zeroing",
            Command::Flush => "flushing",
            _ => "asking about",
        };
        let context = format!("{}: {doing} {}", self.name, order.range);
        let why = if message.is_empty() { code.to_string() } else { message.to_owned() };
        match code {
            ErrorCode::Perm if order.command.modifies() => Error::Fenced(format!("{context}: {why}").into()),
            ErrorCode::NoSpc => Error::NoSpace(format!("{context}: {why}").into()),
            ErrorCode::NotSup => Error::Unsupported("the NBD server has no fast way"),
            // Says something about the server, and nothing about the bytes: they must not be taken for a bad sector.
            ErrorCode::Shutdown => self.lost(order.range, why.into()),
            code => Error::Io { context: context.into(), why: why.into(), errno: code.errno() },
        }
    }
}
