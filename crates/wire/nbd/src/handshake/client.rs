//! The client's side of the negotiation.

use bytes::{Buf, BufMut, BytesMut};

use super::meta::{MetaQuery, put_string};
use super::{BlockSizes, Context};
use crate::packing::{Method, Packing};
use crate::proto::{
    BASE_ALLOCATION, ClientFlags, HandshakeFlags, MAGIC, OPTION_LEN_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader,
    STRING_LEN_MAX, TransmissionFlags, Violation, option,
};

/// The most replies accepted to one option.
const REPLIES_MAX: usize = 10_000;
/// The most export names kept for an error message.
const LISTED_MAX: usize = 32;

/// The request of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportRequest {
    /// The export's name; empty for the server's default.
    pub export: String,
    /// Metadata contexts that the server must grant.
    pub contexts: Vec<String>,
    /// Whether to request packed reads.
    pub packing: Packing,
}

/// The result of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Bytes in the export.
    pub size: u64,
    /// The export's transmission flags.
    pub flags: TransmissionFlags,
    /// The sizes of requests it accepts.
    pub blocks: BlockSizes,
    /// Whether replies are structured.
    pub structured: bool,
    /// The id of `base:allocation`, if the server offers block status.
    pub allocation: Option<u32>,
    /// How reads are packed, if the server grants that.
    pub packed: Option<Method>,
    /// The server's description of the export, if any.
    pub description: Option<String>,
}

/// Why the negotiation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server does not have the export.
    #[error("the server has no export '{name}'; {}", listed(.names))]
    UnknownExport {
        /// The requested name.
        name: String,
        /// Some of the names it has; empty if it does not list them.
        names: Vec<String>,
    },
    /// The server did not grant a required context.
    #[error("the server does not grant {0}")]
    NotGranted(String),
    /// The server does not let this client have the export.
    #[error("the server refused: {0}")]
    Forbidden(String),
    /// The server refuses connections in clear.
    #[error("the server refused: it speaks TLS only, with members of its room")]
    TlsOnly,
    /// The server refused for another reason.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server violated the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "it lists none".into(),
        names => format!("it has {}", names.join(", ")),
    }
}

/// What to do next, after sending the contents of the output buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Receive more and call again.
    Read,
    /// The handshake is complete. Bytes left in the input are replies.
    Done(Agreement),
}

/// A handshake with one server.
#[derive(Debug)]
pub struct ClientHandshake {
    wanted: ExportRequest,
    state: State,
    /// All options are sent at once, which saves a round trip for each. Not where a context is required, because
    /// without it the handshake ends.
    at_once: bool,
    no_zeroes: bool,
    structured: bool,
    replies: usize,
    /// The number of contexts requested.
    asked: usize,
    contexts: Vec<Context>,
    info: Option<(u64, TransmissionFlags)>,
    blocks: BlockSizes,
    description: Option<String>,
    names: Vec<String>,
}

/// The awaited message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    StructuredReply,
    Contexts,
    Go,
    /// The export is unknown; the server lists those it has.
    List,
    ExportName,
    Over,
}

impl State {
    fn option(self) -> u32 {
        match self {
            Self::StructuredReply => option::STRUCTURED_REPLY,
            Self::Contexts => option::SET_META_CONTEXT,
            Self::Go => option::GO,
            Self::List => option::LIST,
            Self::Greeting | Self::ExportName | Self::Over => option::EXPORT_NAME,
        }
    }
}

/// One reply to an option.
struct OptionReply {
    kind: u32,
    data: BytesMut,
}

impl OptionReply {
    /// Why the server refuses.
    fn refusal(&self) -> Failure {
        match self.kind {
            // The server's own text does not know our options.
            option::ERR_TLS_REQD => Failure::TlsOnly,
            option::ERR_POLICY => Failure::Forbidden(self.message()),
            _ => Failure::Refused(self.message()),
        }
    }

    /// The message of an error reply.
    fn message(&self) -> String {
        let text = String::from_utf8_lossy(&self.data);
        if !text.trim().is_empty() {
            return text.trim().to_owned();
        }
        match self.kind {
            option::ERR_UNSUP => "it does not support the option".into(),
            option::ERR_POLICY => "its policy forbids it".into(),
            option::ERR_SHUTDOWN => "it is shutting down".into(),
            kind => format!("error {}", kind & !option::REP_ERROR_BIT),
        }
    }
}

impl ClientHandshake {
    /// Starts a handshake. The server speaks first.
    pub fn new(wanted: ExportRequest) -> Self {
        Self {
            at_once: wanted.contexts.is_empty(),
            wanted,
            state: State::Greeting,
            no_zeroes: false,
            structured: false,
            replies: 0,
            asked: 0,
            contexts: Vec::new(),
            info: None,
            blocks: BlockSizes::default(),
            description: None,
            names: Vec::new(),
        }
    }

    /// Starts a handshake behind the greeting, on a connection that has TLS since. The first options are appended to `out`.
    pub fn secured(wanted: ExportRequest, no_zeroes: bool, out: &mut BytesMut) -> Self {
        let mut handshake = Self { no_zeroes, ..Self::new(wanted) };
        handshake.ask_first(out);
        handshake
    }

    /// Consumes as much of `input` as possible, and appends the answer to `out`.
    ///
    /// # Errors
    ///
    /// If the server refuses or violates the protocol; close the connection after sending `out`.
    pub fn advance(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Step, Failure> {
        let result = loop {
            let advanced = match self.state {
                State::Greeting => self.greeting(input, out),
                State::ExportName => self.export_name(input),
                State::Over => Err(Violation::new("bytes after the end of the negotiation").into()),
                _ => self.reply(input, out),
            };
            match advanced {
                Ok(None) => {}
                Ok(Some(step)) => break Ok(step),
                Err(failure) => break Err(failure),
            }
        };
        if !matches!(result, Ok(Step::Read)) {
            self.state = State::Over;
        }
        result
    }

    /// The likely reason why the server closed the connection now.
    pub fn closed(&self) -> Failure {
        match self.state {
            // `NBD_OPT_EXPORT_NAME` has no error reply, so a refusal closes the connection.
            State::ExportName => Failure::UnknownExport { name: self.wanted.export.clone(), names: Vec::new() },
            _ => Failure::Refused("it closed the connection during the negotiation".into()),
        }
    }

    fn greeting(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Step>, Failure> {
        let mut reader = Reader::new(input);
        match reader.u64() {
            Some(MAGIC) => {}
            Some(_) => return Err(Violation::new("the greeting is not NBD's").into()),
            None => return Ok(Some(Step::Read)),
        }
        match reader.u64() {
            Some(OPTION_MAGIC) => {}
            Some(_) => return Err(Violation::new("the server speaks an NBD older than newstyle").into()),
            None => return Ok(Some(Step::Read)),
        }
        let Some(flags) = reader.u16().map(HandshakeFlags) else { return Ok(Some(Step::Read)) };
        input.advance(18);
        let fixed = flags.has(HandshakeFlags::FIXED_NEWSTYLE);
        self.no_zeroes = flags.has(HandshakeFlags::NO_ZEROES);
        let answer = ClientFlags::NONE
            .with_if(fixed, ClientFlags::FIXED_NEWSTYLE)
            .with_if(self.no_zeroes, ClientFlags::NO_ZEROES);
        out.put_u32(answer.0);
        if fixed {
            self.ask_first(out);
        } else {
            self.ask_by_name(out)?;
        }
        Ok(None)
    }

    fn ask_first(&mut self, out: &mut BytesMut) {
        self.ask(State::StructuredReply, out, |_| {});
        if self.at_once {
            self.put_contexts(out);
            self.put_go(out);
        }
    }

    /// Takes one reply to an option.
    fn reply(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Step>, Failure> {
        let Some(reply) = self.next_reply(input)? else { return Ok(Some(Step::Read)) };
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(Violation::new("the server's replies to an option do not end").into());
        }
        match self.state {
            State::StructuredReply => self.structured_reply(&reply, out)?,
            State::Contexts => self.contexts_reply(&reply, out)?,
            State::Go => return self.go_reply(&reply, out),
            _ => self.list_reply(&reply, out)?,
        }
        Ok(None)
    }

    fn next_reply(&self, input: &mut BytesMut) -> Result<Option<OptionReply>, Violation> {
        let mut reader = Reader::new(input);
        let (Some(magic), Some(option), Some(kind), Some(len)) =
            (reader.u64(), reader.u32(), reader.u32(), reader.u32())
        else {
            return Ok(None);
        };
        if magic != OPTION_REPLY_MAGIC || option != self.state.option() {
            return Err(Violation::new("what should be the reply to an option is something else"));
        }
        let len = match usize::try_from(len) {
            Ok(len) if len <= OPTION_LEN_MAX => len,
            _ => return Err(Violation::new(format!("a reply to an option of {len} bytes"))),
        };
        if reader.bytes(len).is_none() {
            return Ok(None);
        }
        input.advance(20);
        Ok(Some(OptionReply { kind, data: input.split_to(len) }))
    }

    fn structured_reply(&mut self, reply: &OptionReply, out: &mut BytesMut) -> Result<(), Failure> {
        match reply.kind {
            option::REP_ACK => {
                self.structured = true;
                if !self.at_once {
                    self.put_contexts(out);
                }
                self.await_answer(State::Contexts);
                Ok(())
            }
            option::ERR_TLS_REQD | option::ERR_SHUTDOWN => self.fail(reply.refusal(), out),
            kind if kind & option::REP_ERROR_BIT != 0 => match self.wanted.contexts.first() {
                Some(context) => self.fail(Failure::NotGranted(context.clone()), out),
                None => {
                    // Contexts were asked for already, and are refused as well.
                    self.await_answer(State::Contexts);
                    Ok(())
                }
            },
            _ => Err(unexpected(reply)),
        }
    }

    fn contexts_reply(&mut self, reply: &OptionReply, out: &mut BytesMut) -> Result<(), Failure> {
        match reply.kind {
            option::REP_META_CONTEXT => {
                let mut reader = Reader::new(&reply.data);
                let id = reader.u32().ok_or_else(|| unexpected(reply))?;
                let name = String::from_utf8_lossy(reader.rest()).into_owned();
                if self.contexts.len() == self.asked {
                    return Err(Violation::new("more contexts granted than were asked for").into());
                }
                self.contexts.push(Context { id, name });
                return Ok(());
            }
            option::REP_ACK => {}
            option::ERR_UNKNOWN if !self.at_once => {
                self.ask(State::List, out, |_| {});
                return Ok(());
            }
            option::ERR_TLS_REQD | option::ERR_SHUTDOWN => return self.fail(reply.refusal(), out),
            // Not that it lacks the context: this client may not have the export at all.
            option::ERR_POLICY if !self.at_once => return self.fail(reply.refusal(), out),
            // A server may have structured replies and no contexts; then an error must not leave any behind.
            kind if kind & option::REP_ERROR_BIT != 0 => self.contexts.clear(),
            _ => return Err(unexpected(reply)),
        }
        let granted = |wanted: &&String| self.contexts.iter().any(|context| context.name == **wanted);
        match self.wanted.contexts.iter().find(|wanted| !granted(wanted)) {
            Some(missing) if reply.kind == option::REP_ACK => self.fail(Failure::NotGranted(missing.clone()), out),
            Some(missing) => self.fail(Failure::NotGranted(format!("{missing}: {}", reply.message())), out),
            None => {
                if !self.at_once {
                    self.put_go(out);
                }
                self.await_answer(State::Go);
                Ok(())
            }
        }
    }

    fn go_reply(&mut self, reply: &OptionReply, out: &mut BytesMut) -> Result<Option<Step>, Failure> {
        match reply.kind {
            option::REP_INFO => self.take_info(&reply.data)?,
            option::REP_ACK => {
                let (size, flags) = self.info.ok_or_else(|| Violation::new("accepted without telling the size"))?;
                return Ok(Some(Step::Done(self.agreement(size, flags)?)));
            }
            option::ERR_UNSUP => self.ask_by_name(out)?,
            option::ERR_UNKNOWN => self.ask(State::List, out, |_| {}),
            kind if kind & option::REP_ERROR_BIT != 0 => self.fail(reply.refusal(), out)?,
            _ => return Err(unexpected(reply)),
        }
        Ok(None)
    }

    fn take_info(&mut self, data: &[u8]) -> Result<(), Violation> {
        let malformed = || Violation::new("information about the export is malformed");
        let mut reader = Reader::new(data);
        match reader.u16().ok_or_else(malformed)? {
            option::INFO_EXPORT => {
                let (size, flags) = (reader.u64(), reader.u16());
                self.info = size.zip(flags.map(TransmissionFlags));
                if self.info.is_none() || !reader.is_empty() {
                    return Err(malformed());
                }
            }
            option::INFO_BLOCK_SIZE => {
                let (min, preferred, payload_max) = (reader.u32(), reader.u32(), reader.u32());
                let (Some(min), Some(preferred), Some(payload_max)) = (min, preferred, payload_max) else {
                    return Err(malformed());
                };
                let blocks = BlockSizes { min, preferred, payload_max };
                if !blocks.are_valid() {
                    return Err(Violation::new(format!("impossible block sizes {min}, {preferred}, {payload_max}")));
                }
                self.blocks = blocks;
            }
            option::INFO_DESCRIPTION => {
                let text = String::from_utf8_lossy(reader.rest()).into_owned();
                self.description = Some(text).filter(|text| !text.is_empty() && text.len() <= STRING_LEN_MAX);
            }
            _ => {}
        }
        Ok(())
    }

    fn list_reply(&mut self, reply: &OptionReply, out: &mut BytesMut) -> Result<(), Failure> {
        match reply.kind {
            option::REP_SERVER => {
                let name = Reader::new(&reply.data).string().ok_or_else(|| unexpected(reply))?;
                if self.names.len() < LISTED_MAX {
                    self.names.push(format!("'{}'", String::from_utf8_lossy(name)));
                }
                Ok(())
            }
            kind if kind == option::REP_ACK || kind & option::REP_ERROR_BIT != 0 => {
                let names = std::mem::take(&mut self.names);
                self.fail(Failure::UnknownExport { name: self.wanted.export.clone(), names }, out)
            }
            _ => Err(unexpected(reply)),
        }
    }

    /// Takes the answer to `NBD_OPT_EXPORT_NAME`.
    fn export_name(&mut self, input: &mut BytesMut) -> Result<Option<Step>, Failure> {
        let len = if self.no_zeroes { 10 } else { 134 };
        let mut reader = Reader::new(input);
        let (Some(size), Some(flags)) = (reader.u64(), reader.u16().map(TransmissionFlags)) else {
            return Ok(Some(Step::Read));
        };
        if input.len() < len {
            return Ok(Some(Step::Read));
        }
        input.advance(len);
        Ok(Some(Step::Done(self.agreement(size, flags)?)))
    }

    fn agreement(&self, size: u64, flags: TransmissionFlags) -> Result<Agreement, Violation> {
        // So that adding to an offset within it never overflows.
        if size > i64::MAX as u64 {
            return Err(Violation::new(format!("an export of {size} bytes")));
        }
        // Without structured replies there is no block status, even if the context was granted.
        let contexts = if self.structured { &self.contexts[..] } else { &[] };
        let allocation = contexts.iter().find(|context| context.name == BASE_ALLOCATION);
        Ok(Agreement {
            size,
            flags,
            blocks: self.blocks,
            structured: self.structured,
            allocation: allocation.map(|context| context.id),
            packed: contexts.iter().find_map(|context| Method::of_context(&context.name)),
            description: self.description.clone(),
        })
    }

    /// Sends an option and awaits its answer.
    fn ask(&mut self, state: State, out: &mut BytesMut, data: impl FnOnce(&mut BytesMut)) {
        put_option(out, state.option(), data);
        self.await_answer(state);
    }

    fn await_answer(&mut self, state: State) {
        self.state = state;
        self.replies = 0;
    }

    fn put_contexts(&mut self, out: &mut BytesMut) {
        let mut queries = vec![BASE_ALLOCATION.to_owned()];
        queries.extend(self.wanted.contexts.iter().cloned());
        if let Packing::Wanted(method) = self.wanted.packing {
            queries.push(method.context());
        }
        self.asked = queries.len();
        let query = MetaQuery { export: self.wanted.export.clone(), queries };
        put_option(out, option::SET_META_CONTEXT, |out| query.encode(out));
    }

    fn put_go(&self, out: &mut BytesMut) {
        put_option(out, option::GO, |out| {
            put_string(out, &self.wanted.export);
            out.put_u16(2);
            out.put_u16(option::INFO_BLOCK_SIZE);
            out.put_u16(option::INFO_DESCRIPTION);
        });
    }

    /// Sends `NBD_OPT_EXPORT_NAME`, for servers without `NBD_OPT_GO`.
    fn ask_by_name(&mut self, out: &mut BytesMut) -> Result<(), Failure> {
        if let Some(context) = self.wanted.contexts.first()
            && self.contexts.is_empty()
        {
            return Err(Failure::NotGranted(context.clone()));
        }
        let export = self.wanted.export.clone();
        self.ask(State::ExportName, out, |out| out.put_slice(export.as_bytes()));
        Ok(())
    }

    /// Sends `NBD_OPT_ABORT` and fails.
    fn fail(&self, failure: Failure, out: &mut BytesMut) -> Result<(), Failure> {
        put_option(out, option::ABORT, |_| {});
        Err(failure)
    }
}

fn unexpected(reply: &OptionReply) -> Failure {
    Violation::new(format!("a reply to an option is of the unexpected or malformed type {}", reply.kind)).into()
}

fn put_option(out: &mut BytesMut, number: u32, data: impl FnOnce(&mut BytesMut)) {
    out.put_u64(OPTION_MAGIC);
    out.put_u32(number);
    let start = out.len();
    out.put_u32(0);
    data(out);
    let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}
