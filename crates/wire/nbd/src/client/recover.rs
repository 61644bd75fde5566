//! Retrying: choosing a connection for a request, and another when the connection is lost.
//!
//! All NBD requests are idempotent, so the operation's own future repeats a request whose connection is lost, until its
//! deadline. A connection is replaced only if the server still grants what it granted before, so a retry reaches the
//! instance that holds the content.
//!
//! A client that does not wait for replacements fails the requests that need one, once an attempt to make it has failed.
//!
//! Where the server fences replaced connections, changes to the content wait until every connection that was lost with
//! changes in flight has been replaced. From then on, no copy of those can overtake a newer change. Changes also wait
//! for abandoned ones that are still in flight on another connection.

use std::sync::Arc;

use cheetah_device::fatal_reads::Turn;
use cheetah_device::reconnect::tick_of;
use cheetah_device::{ByteRange, Data, Error, Result};
use tokio::time::Instant;

use super::Shared;
use super::handle::{Call, ConnectionHandle};
use super::health::WaitDecision;
use super::inflight::{Answer, ExpectedReply, Failed};
use crate::proto::{Command, CommandFlags, ErrorCode, Request, TransmissionFlags};

/// How often a server may break the protocol during one request.
const VIOLATIONS_MAX: u32 = 1;

/// A request, retries included.
pub(super) struct ClientRequest<'a> {
    pub command: Command,
    pub flags: CommandFlags,
    pub range: ByteRange,
    pub payload: Option<&'a Data>,
}

impl Shared {
    /// Sends a request and returns the answer, retrying until its deadline.
    pub async fn call(&self, request: ClientRequest<'_>) -> Result<Answer> {
        let mut issued = Instant::now();
        let ask = ExpectedReply { command: request.command, range: request.range };
        let mut sent_away = false;
        let (mut kept, mut violations) = (None, 0);
        loop {
            let turn = match kept.take() {
                None => self.turn(&request).await?,
                kept => kept,
            };
            if let Some(Turn::Alone(_)) = turn {
                // Others had their turns, each up to its own time-out.
                issued = Instant::now();
            }
            let deadline = issued + self.timeout;
            let link = self.choose(request.command, request.range, issued).await?;
            let df = turn.is_some() && self.asks_for_one_chunk();
            let flags = request.flags.with_if(df, CommandFlags::DF);
            let call = Call { ask, flags, payload: request.payload, issued, deadline };
            self.counters.requested(Request::LEN as u64 + request.payload.map_or(0, Data::len));
            let called = link.call(call).await;
            if let Some((habits, turn)) = self.habits.as_deref().zip(turn) {
                match &called {
                    Err(Failed::Disconnected) if habits.fatal.dropped(&turn, request.range) => {
                        return Err(self.ends_connections(request.range));
                    }
                    // A read that is alone remains so until it is found out or answered.
                    Err(Failed::Disconnected) => kept = Some(turn).filter(|turn| matches!(turn, Turn::Alone(_))),
                    Err(Failed::TimedOut | Failed::Violated(_)) => {}
                    Err(Failed::Server { code: ErrorCode::Overflow, .. }) if df => {
                        habits.refuses_df();
                        continue;
                    }
                    Ok(_) | Err(Failed::Server { .. }) => habits.fatal.answered(&turn, request.range),
                }
            }
            match called {
                Ok(answer) => return Ok(answer),
                Err(Failed::TimedOut) => return Err(self.lost(request.range, self.silence())),
                Err(Failed::Disconnected) => {}
                Err(Failed::Violated(violation)) => {
                    // Once may be a mishap of that connection. A server that does so again is not believed in anything.
                    violations += 1;
                    if violations > VIOLATIONS_MAX {
                        return Err(self.lost(request.range, violation.to_string().into()));
                    }
                }
                // It is shutting down; its replacement may answer.
                Err(Failed::Server { code: ErrorCode::Shutdown, .. })
                    if Instant::now() < deadline && (self.wait_for_replacement || !sent_away) =>
                {
                    link.abort("the server is shutting down");
                    // A server whose own source is lost keeps answering so: pause between retries.
                    if sent_away {
                        tokio::time::sleep(tick_of(self.timeout)).await;
                    }
                    sent_away = true;
                }
                Err(Failed::Server { code, message }) => return Err(self.refusal(&request, code, &message)),
            }
        }
    }

    /// Waits until a read may be made; `None` for other requests, and where no habits are kept.
    async fn turn(&self, request: &ClientRequest<'_>) -> Result<Option<Turn<'_>>> {
        let Some(habits) = self.habits.as_deref().filter(|_| request.command == Command::Read) else { return Ok(None) };
        match habits.fatal.turn(request.range).await {
            Some(turn) => Ok(Some(turn)),
            None => Err(self.ends_connections(request.range)),
        }
    }

    /// Whether reads are to be answered in one chunk.
    fn asks_for_one_chunk(&self) -> bool {
        self.flags.has(TransmissionFlags::SEND_DF) && self.habits.as_ref().is_some_and(|habits| habits.wants_df())
    }

    /// The error for a read that the server does not answer: it closes the connection each time.
    fn ends_connections(&self, range: ByteRange) -> Error {
        let why =
            "the server closes the connection each time it is asked for this range, instead of returning an error";
        Error::Unreadable { device: Arc::clone(&self.name), range, why: why.into() }
    }

    /// The connection with the fewest in-flight requests, or the next to come up.
    async fn choose(&self, command: Command, range: ByteRange, issued: Instant) -> Result<&ConnectionHandle> {
        if let Some(link) = self.usable(command) {
            return Ok(link);
        }
        let deadline = issued + self.timeout;
        let _waiting = self.silence.wait(issued);
        loop {
            // Listen before looking, or a change in between would be missed.
            let mut changed = std::pin::pin!(self.health.changed().notified());
            changed.as_mut().enable();
            if let Some(link) = self.usable(command) {
                return Ok(link);
            }
            let now = Instant::now();
            match self.health.outlook(now) {
                WaitDecision::Refused(refused) if refused.fenced => {
                    return Err(Error::Fenced(format!("{}: {}", self.name, refused.why).into()));
                }
                WaitDecision::Refused(refused) => return Err(self.lost(range, refused.why)),
                WaitDecision::Lost(why) => return Err(self.lost(range, why)),
                WaitDecision::Wait if now + tick_of(self.timeout) >= deadline || self.is_hopeless(command) => {
                    let why = self.health.why().unwrap_or_else(|| "a lost connection could not be replaced".into());
                    return Err(self.lost(range, why));
                }
                WaitDecision::Wait => changed.await,
            }
        }
    }

    /// The connection for a request, if it can be sent now.
    fn usable(&self, command: Command) -> Option<&ConnectionHandle> {
        let held_back = command.modifies() && self.links.iter().any(ConnectionHandle::holds_up_changes);
        if held_back { None } else { self.least_loaded() }
    }

    /// Whether a request that cannot be sent now fails at once. It waits for any connection or, if it is a change, for
    /// those that hold up changes.
    fn is_hopeless(&self, command: Command) -> bool {
        let holds_up = |link: &ConnectionHandle| link.has_unfenced_change() && link.is_refused();
        !self.wait_for_replacement
            && (self.links.iter().all(ConnectionHandle::is_refused)
                || command.modifies() && self.links.iter().any(holds_up))
    }

    fn least_loaded(&self) -> Option<&ConnectionHandle> {
        match &self.links[..] {
            [only] => only.load().map(|_| only),
            links => links
                .iter()
                .filter_map(|link| Some((link.load()?, link)))
                .min_by_key(|(load, _)| *load)
                .map(|(_, link)| link),
        }
    }

    /// The error for a range whose server is lost.
    pub fn lost(&self, range: ByteRange, why: Arc<str>) -> Error {
        let error = Error::Lost { device: Arc::clone(&self.name), range, why };
        // Otherwise the layer above uses another server, or opens this one again, and logs the failure.
        match self.wait_for_replacement && self.may_reconnect() {
            true => self.failures.log_failure(&error),
            false => tracing::debug!("{error}"),
        }
        error
    }

    /// The reason when the server is silent.
    pub fn silence(&self) -> Arc<str> {
        format!("no answer for {:?}", self.timeout).into()
    }

    /// Translates a server's error.
    fn refusal(&self, request: &ClientRequest<'_>, code: ErrorCode, message: &str) -> Error {
        let doing = match request.command {
            Command::Read => "reading",
            Command::Write => "writing",
            Command::Trim => "trimming",
            Command::WriteZeroes => "zeroing",
            Command::Flush => "flushing",
            _ => "asking about",
        };
        let context = format!("{}: {doing} {}", self.name, request.range);
        let why = if message.is_empty() { code.to_string() } else { message.to_owned() };
        match code {
            ErrorCode::Perm if request.command.modifies() => Error::Fenced(format!("{context}: {why}").into()),
            ErrorCode::NoSpc => Error::NoSpace(format!("{context}: {why}").into()),
            ErrorCode::NotSup => Error::Unsupported("the NBD server has no fast way"),
            // An error of the server, not of the medium: the range must not be taken for bad sectors.
            ErrorCode::Shutdown => self.lost(request.range, why.into()),
            // Only the last block can be cut short, and the server refuses to read it: nothing can be done here, now or later.
            ErrorCode::Inval
                if request.command == Command::Read && !request.range.end().is_multiple_of(self.block_min) =>
            {
                let (block, size) = (self.block_min, self.size);
                let why = format!(
                    "the server reads whole blocks of {block} bytes only, and its size, {size} bytes, is no multiple of that \
                     ({why})"
                );
                Error::Unreadable { device: Arc::clone(&self.name), range: request.range, why: why.into() }
            }
            // The request is valid: such a server cannot decompress this part of an image, or its file ends before.
            ErrorCode::Inval if request.command == Command::Read && self.habits.is_some() => {
                Error::Unreadable { device: Arc::clone(&self.name), range: request.range, why: why.into() }
            }
            code => Error::Io { context: context.into(), why: why.into(), errno: code.errno() },
        }
    }
}
