//! The server's side of the handshake.

use bytes::{Buf, BufMut, BytesMut};

use super::meta::{BadOption, MetaQuery, put_string, text};
use super::{BlockSizes, Context};
use crate::proto::{
    BASE_ALLOCATION, ClientFlags, HandshakeFlags, MAGIC, OPTION_LEN_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC, OPTIONS_MAX,
    Reader, STRING_LEN_MAX, TransmissionFlags, X_CHEETAH, option,
};

/// Where a handshake finds the exports.
pub trait ExportLookup {
    /// The caller's handle of an opened export, returned with the session.
    type Export;

    /// The names to list for clients.
    fn list(&self) -> Vec<String>;

    /// Opens the export `name`. `contexts` are the client's queries in the `x-cheetah:` namespace. May be called
    /// several times in one handshake; only the last result becomes the session's.
    ///
    /// # Errors
    ///
    /// Why the client cannot have it.
    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<Self::Export>, Refusal>;
}

/// An export as offered to a client.
#[derive(Debug, Clone)]
pub struct Offer<E> {
    /// The caller's own handle.
    pub export: E,
    /// Bytes in it.
    pub size: u64,
    /// Its transmission flags. The handshake adds `HAS_FLAGS`, and removes `SEND_DF` where replies are not structured.
    pub flags: TransmissionFlags,
    /// The description; may be empty.
    pub description: String,
    /// The sizes of requests it accepts.
    pub blocks: BlockSizes,
    /// The contexts granted, of those asked for.
    pub contexts: Vec<String>,
}

/// Why an export cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The option reply's number, such as [`option::ERR_UNKNOWN`].
    pub code: u32,
    /// Sent to the client.
    pub message: String,
}

impl Refusal {
    /// There is no such export.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { code: option::ERR_UNKNOWN, message: message.into() }
    }

    /// The client may not have it.
    pub fn policy(message: impl Into<String>) -> Self {
        Self { code: option::ERR_POLICY, message: message.into() }
    }
}

impl From<BadOption> for Refusal {
    fn from(bad: BadOption) -> Self {
        match bad {
            BadOption::Invalid(why) => Self { code: option::ERR_INVALID, message: why.into() },
            BadOption::TooBig(why) => Self { code: option::ERR_TOO_BIG, message: why.into() },
        }
    }
}

/// What to do next, after sending the contents of the output buffer.
#[derive(Debug)]
pub enum Step<E> {
    /// Receive more and call again.
    Read,
    /// Call again: the input may hold another option.
    Again,
    /// Start TLS on the connection, and continue with [`ServerHandshake::secured`].
    StartTls,
    /// The handshake is complete. Bytes left in the input are requests.
    Enter(Session<E>),
    /// Close the connection, for this reason.
    Close(String),
}

/// The result of the handshake.
#[derive(Debug)]
pub struct Session<E> {
    /// The caller's handle of the export.
    pub export: E,
    /// Bytes in it.
    pub size: u64,
    /// The transmission flags sent to the client.
    pub flags: TransmissionFlags,
    /// Whether replies are structured, which is then required of replies to reads.
    pub structured: bool,
    /// The selected contexts, the `x-cheetah:` ones included. A reply to a block status request has a chunk for each.
    pub contexts: Vec<Context>,
}

/// A handshake with one client.
///
/// No input makes it panic or hold more than one option (64 KiB). It ends after 1024 options.
#[derive(Debug)]
pub struct ServerHandshake {
    state: State,
    tls: Tls,
    options: usize,
    no_zeroes: bool,
    structured: bool,
    selected: Option<Selected>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flags,
    Options,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    /// The connection stays unencrypted.
    None,
    /// The client must start TLS before anything else.
    Required,
    /// The client has started TLS.
    Started,
}

/// The selected contexts, and their export.
#[derive(Debug)]
struct Selected {
    export: String,
    queries: Vec<String>,
    contexts: Vec<Context>,
}

const OPTION_HEADER_LEN: usize = 16;

impl ServerHandshake {
    /// Starts a handshake by appending the greeting to `out`. The connection stays in clear.
    pub fn new(out: &mut BytesMut) -> Self {
        Self::greet(Tls::None, out)
    }

    /// The same, for a connection on which the client must start TLS before anything else.
    pub fn with_tls(out: &mut BytesMut) -> Self {
        Self::greet(Tls::Required, out)
    }

    /// The handshake on the same connection once it has TLS. Of the messages before TLS only the client's flags are
    /// kept, since a man in the middle could have sent them (CVE-2021-3716).
    #[must_use]
    pub fn secured(self) -> Self {
        Self {
            state: State::Options,
            tls: Tls::Started,
            options: 0,
            no_zeroes: self.no_zeroes,
            structured: false,
            selected: None,
        }
    }

    fn greet(tls: Tls, out: &mut BytesMut) -> Self {
        out.put_u64(MAGIC);
        out.put_u64(OPTION_MAGIC);
        out.put_u16(HandshakeFlags::ALL.0);
        Self { state: State::Flags, tls, options: 0, no_zeroes: false, structured: false, selected: None }
    }

    /// Consumes at most one message of `input`, and appends the answer to `out`.
    ///
    /// `input` never needs to hold more than one option: 64 KiB and 16 bytes.
    pub fn advance<L: ExportLookup>(
        &mut self,
        input: &mut BytesMut,
        exports: &L,
        out: &mut BytesMut,
    ) -> Step<L::Export> {
        let step = match self.state {
            State::Flags => self.client_flags(input),
            State::Options => self.option(input, exports, out),
            State::Over => Step::Close("the negotiation is over".into()),
        };
        if matches!(step, Step::Enter(_) | Step::StartTls | Step::Close(_)) {
            self.state = State::Over;
        }
        step
    }

    fn client_flags<E>(&mut self, input: &mut BytesMut) -> Step<E> {
        if input.len() < 4 {
            return Step::Read;
        }
        let flags = ClientFlags(input.get_u32());
        if flags.without(ClientFlags::ALL) != ClientFlags::NONE {
            return Step::Close(format!("the client sent unknown flags: {flags:?}"));
        }
        self.no_zeroes = flags.has(ClientFlags::NO_ZEROES);
        self.state = State::Options;
        Step::Again
    }

    fn option<L: ExportLookup>(&mut self, input: &mut BytesMut, exports: &L, out: &mut BytesMut) -> Step<L::Export> {
        let mut reader = Reader::new(input);
        let (Some(magic), Some(number), Some(len)) = (reader.u64(), reader.u32(), reader.u32()) else {
            return Step::Read;
        };
        if magic != OPTION_MAGIC {
            return Step::Close("an option does not start with its magic number".into());
        }
        let len = match usize::try_from(len) {
            Ok(len) if len <= OPTION_LEN_MAX => len,
            _ => return Step::Close(format!("option {number} comes with {len} bytes of data")),
        };
        if input.len() < OPTION_HEADER_LEN + len {
            return Step::Read;
        }
        if self.options == OPTIONS_MAX {
            return Step::Close(format!("the client sent more than {OPTIONS_MAX} options"));
        }
        self.options += 1;
        input.advance(OPTION_HEADER_LEN);
        let data = input.split_to(len);
        if self.tls == Tls::Required {
            return start_tls(number, &data, input, out);
        }
        self.answer(number, &data, exports, out)
    }

    fn answer<L: ExportLookup>(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &L,
        out: &mut BytesMut,
    ) -> Step<L::Export> {
        let mut replies = Replies { option: number, out };
        let answered = match number {
            option::EXPORT_NAME => return self.export_name(data, exports, out),
            option::GO => match self.info(data, exports, &mut replies) {
                Ok(session) => {
                    replies.ack();
                    return Step::Enter(session);
                }
                Err(refusal) => Err(refusal),
            },
            option::ABORT => {
                replies.ack();
                return Step::Close("the client broke off the negotiation".into());
            }
            option::INFO => self.info(data, exports, &mut replies).map(drop),
            option::LIST => list(data, exports, &mut replies),
            option::STRUCTURED_REPLY => no_data(data).map(|()| self.structured = true),
            option::LIST_META_CONTEXT => self.list_contexts(data, exports, &mut replies),
            option::SET_META_CONTEXT => self.set_contexts(data, exports, &mut replies),
            option::STARTTLS if self.tls == Tls::Started => {
                Err(Refusal { code: option::ERR_INVALID, message: "the connection has TLS already".into() })
            }
            _ => Err(Refusal { code: option::ERR_UNSUP, message: "this server does not know the option".into() }),
        };
        match answered {
            Ok(()) => replies.ack(),
            Err(refusal) => replies.refuse(&refusal),
        }
        Step::Again
    }

    /// `NBD_OPT_EXPORT_NAME`, which has no error reply: a refusal closes the connection.
    fn export_name<L: ExportLookup>(&mut self, data: &[u8], exports: &L, out: &mut BytesMut) -> Step<L::Export> {
        let opened = text(data).map_err(Refusal::from).and_then(|name| self.open(&name, exports));
        match opened {
            Ok((session, _)) => {
                out.put_u64(session.size);
                out.put_u16(session.flags.0);
                if !self.no_zeroes {
                    out.put_bytes(0, 124);
                }
                Step::Enter(session)
            }
            Err(refusal) => Step::Close(refusal.message),
        }
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`, up to the final acknowledgement.
    fn info<L: ExportLookup>(
        &mut self,
        data: &[u8],
        exports: &L,
        replies: &mut Replies<'_>,
    ) -> Result<Session<L::Export>, Refusal> {
        let (name, wanted) = parse_info(data)?;
        let (session, about) = self.open(&name, exports)?;
        replies.info(option::INFO_EXPORT, |out| {
            out.put_u64(session.size);
            out.put_u16(session.flags.0);
        });
        if wanted.contains(&option::INFO_NAME) {
            replies.info(option::INFO_NAME, |out| out.put_slice(name.as_bytes()));
        }
        if wanted.contains(&option::INFO_DESCRIPTION) && !about.description.is_empty() {
            let description = &about.description[..about.description.floor_char_boundary(STRING_LEN_MAX)];
            replies.info(option::INFO_DESCRIPTION, |out| out.put_slice(description.as_bytes()));
        }
        if wanted.contains(&option::INFO_BLOCK_SIZE) {
            replies.info(option::INFO_BLOCK_SIZE, |out| {
                out.put_u32(about.blocks.min);
                out.put_u32(about.blocks.preferred);
                out.put_u32(about.blocks.payload_max);
            });
        }
        Ok(session)
    }

    /// Opens an export, which must still grant the contexts selected for it.
    fn open<L: ExportLookup>(&self, name: &str, exports: &L) -> Result<(Session<L::Export>, About), Refusal> {
        let selected = self.selected.as_ref().filter(|selected| selected.export == name);
        let queries = selected.map_or(&[][..], |selected| &selected.queries);
        let contexts = selected.map_or_else(Vec::new, |selected| selected.contexts.clone());
        let offer = exports.open(name, queries)?;
        if let Some(lost) = queries.iter().find(|query| !offer.contexts.contains(query)) {
            return Err(Refusal::policy(format!("{lost} was granted a moment ago but is not any more")));
        }
        let unstructured = TransmissionFlags::NONE.with_if(!self.structured, TransmissionFlags::SEND_DF);
        let flags = offer.flags.with(TransmissionFlags::HAS_FLAGS).without(unstructured);
        let session = Session { export: offer.export, size: offer.size, flags, structured: self.structured, contexts };
        Ok((session, About { description: offer.description, blocks: offer.blocks }))
    }

    fn list_contexts<L: ExportLookup>(
        &self,
        data: &[u8],
        exports: &L,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let asked = MetaQuery::parse(data)?;
        let ours = our_queries(&asked.queries);
        let offer = exports.open(&asked.export, &ours)?;
        let everything = asked.queries.is_empty();
        if everything || asked.queries.iter().any(|query| query == "base:" || query == BASE_ALLOCATION) {
            replies.context(0, BASE_ALLOCATION);
        }
        for name in offer.contexts.iter().filter(|name| ours.contains(name)) {
            replies.context(0, name);
        }
        Ok(())
    }

    fn set_contexts<L: ExportLookup>(
        &mut self,
        data: &[u8],
        exports: &L,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        // Earlier selections are void even if this fails.
        self.selected = None;
        if !self.structured {
            return Err(BadOption::Invalid("structured replies must be negotiated first").into());
        }
        let asked = MetaQuery::parse(data)?;
        let mut queries = our_queries(&asked.queries);
        let offer = exports.open(&asked.export, &queries)?;
        queries.retain(|query| offer.contexts.contains(query));
        let base = asked.queries.iter().any(|query| query == BASE_ALLOCATION).then_some(BASE_ALLOCATION);
        let names = base.into_iter().chain(queries.iter().map(String::as_str));
        let contexts: Vec<_> = (1..).zip(names).map(|(id, name)| Context { id, name: name.to_owned() }).collect();
        for context in &contexts {
            replies.context(context.id, &context.name);
        }
        self.selected = Some(Selected { export: asked.export, queries, contexts });
        Ok(())
    }
}

/// The information of `NBD_OPT_INFO` and `NBD_OPT_GO` beyond size and flags.
struct About {
    description: String,
    blocks: BlockSizes,
}

/// The queries in the `x-cheetah:` namespace, without duplicates. The wildcard selects nothing.
fn our_queries(queries: &[String]) -> Vec<String> {
    let mut ours: Vec<String> = Vec::new();
    for query in queries {
        if query.len() > X_CHEETAH.len() && query.starts_with(X_CHEETAH) && !ours.contains(query) {
            ours.push(query.clone());
        }
    }
    ours
}

/// The name and the information requests of `NBD_OPT_INFO` or `NBD_OPT_GO`.
/// The answer to an option before TLS.
fn start_tls<E>(number: u32, data: &[u8], behind: &BytesMut, out: &mut BytesMut) -> Step<E> {
    let mut replies = Replies { option: number, out };
    match number {
        option::STARTTLS if !data.is_empty() => {
            replies.refuse(&Refusal { code: option::ERR_INVALID, message: "the option takes no data".into() });
            Step::Again
        }
        option::STARTTLS if !behind.is_empty() => Step::Close("the client sent more behind its request for TLS".into()),
        option::STARTTLS => {
            replies.ack();
            Step::StartTls
        }
        option::ABORT => {
            replies.ack();
            Step::Close("the client broke off the negotiation".into())
        }
        // It has no error reply.
        option::EXPORT_NAME => Step::Close("the client wants an export without TLS".into()),
        _ => {
            let message = "this server speaks TLS only, with members of its room: start TLS first".into();
            replies.refuse(&Refusal { code: option::ERR_TLS_REQD, message });
            Step::Again
        }
    }
}

fn parse_info(data: &[u8]) -> Result<(String, Vec<u16>), BadOption> {
    let short = BadOption::Invalid("the option's lengths do not fit its data");
    let mut reader = Reader::new(data);
    let name = text(reader.string().ok_or(short.clone())?)?;
    let count = reader.u16().ok_or(short.clone())?;
    let wanted: Option<Vec<u16>> = (0..count).map(|_| reader.u16()).collect();
    match wanted {
        Some(wanted) if reader.is_empty() => Ok((name, wanted)),
        _ => Err(short),
    }
}

fn list<L: ExportLookup>(data: &[u8], exports: &L, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    no_data(data)?;
    for name in exports.list() {
        replies.put(option::REP_SERVER, |out| put_string(out, &name));
    }
    Ok(())
}

fn no_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() { Ok(()) } else { Err(BadOption::Invalid("the option takes no data").into()) }
}

/// Writes the replies to one option.
struct Replies<'a> {
    option: u32,
    out: &'a mut BytesMut,
}

impl Replies<'_> {
    fn put(&mut self, kind: u32, payload: impl FnOnce(&mut BytesMut)) {
        self.out.put_u64(OPTION_REPLY_MAGIC);
        self.out.put_u32(self.option);
        self.out.put_u32(kind);
        let start = self.out.len();
        self.out.put_u32(0);
        payload(self.out);
        let len = u32::try_from(self.out.len() - start - 4).unwrap_or(u32::MAX);
        self.out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }

    fn ack(&mut self) {
        self.put(option::REP_ACK, |_| {});
    }

    fn refuse(&mut self, refusal: &Refusal) {
        let message = &refusal.message[..refusal.message.floor_char_boundary(STRING_LEN_MAX)];
        self.put(refusal.code | option::REP_ERROR_BIT, |out| out.put_slice(message.as_bytes()));
    }

    fn info(&mut self, kind: u16, payload: impl FnOnce(&mut BytesMut)) {
        self.put(option::REP_INFO, |out| {
            out.put_u16(kind);
            payload(out);
        });
    }

    fn context(&mut self, id: u32, name: &str) {
        self.put(option::REP_META_CONTEXT, |out| {
            out.put_u32(id);
            out.put_slice(name.as_bytes());
        });
    }
}
