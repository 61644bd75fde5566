//! Records of TLS 1.3 after the handshake (RFC 8446, sections 5 and 7). No I/O.
//!
//! The handshake and the keys are rustls's; here the keys are used. Each direction has a state of its own, so that the
//! halves of a connection need no common lock, and content is copied once on its way out and once on its way in.
//! rustls's own buffers copy it two to three times, and receive 4 KiB a system call.

use std::error::Error;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;

use crate::error::{RecordError, Refusal};

/// The most content of a record.
const CONTENT_LEN_MAX: usize = 1 << 14;
/// A record's header: type, version, length.
const HEADER_LEN: usize = 5;
/// The most bytes of a record behind its header.
const BODY_LEN_MAX: usize = CONTENT_LEN_MAX + 256;
/// The tag, of all algorithms.
const TAG_LEN: usize = 16;
/// A record's length beyond its content: header, type, tag.
const OVERHEAD_LEN: usize = HEADER_LEN + 1 + TAG_LEN;
/// Records until the key is changed. The limit for AES-GCM is 2^24 (RFC 8446, section 5.5).
const RECORDS_MAX: u64 = 1 << 23;
/// The most bytes of a message between the two TLS libraries after the handshake.
const MESSAGE_LEN_MAX: usize = 1 << 16;
/// The most records without content in a row: tickets, new keys, and records that are empty. Each costs its receiver a
/// decryption, and a new key some hashing.
const IDLE_RECORDS_MAX: u32 = 32;

/// Types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Messages after the handshake.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// The alert that ends one direction of a connection.
const CLOSE_NOTIFY: u8 = 0;

/// Derives new keys and keeps tickets. rustls's connection does both.
pub(crate) trait Keys: Send {
    /// The next key for sending, or for receiving.
    fn next(&mut self, sending: bool) -> Result<ConnectionTrafficSecrets, rustls::Error>;

    /// Keeps a ticket for resuming the session.
    fn ticket(&mut self, ticket: &[u8]) -> Result<(), rustls::Error>;
}

/// The state that both directions of a connection share.
pub(crate) struct Shared {
    pub keys: Mutex<Box<dyn Keys>>,
    /// The peer has asked for a new sending key.
    pub key_wanted: AtomicBool,
}

fn broken(why: RecordError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A key, and the number of the next record.
struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Cipher {
    fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(broken(RecordError::UnknownCipher)),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| broken(RecordError::KeyLength))?;
        let iv = iv.as_ref().try_into().map_err(|_| broken(RecordError::NonceLength))?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The nonce of the next record. None is used twice.
    fn nonce(&mut self) -> io::Result<Nonce> {
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(broken(RecordError::TooManyRecords))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// The header of a record whose body has `len` bytes.
fn header(len: usize) -> [u8; HEADER_LEN] {
    let [high, low] = (len as u16).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// Encrypts one direction of a connection.
pub(crate) struct Sealer {
    cipher: Cipher,
    shared: Arc<Shared>,
    /// Records until the key is changed.
    records_max: u64,
}

impl Sealer {
    pub fn new((sequence, secrets): (u64, ConnectionTrafficSecrets), shared: &Arc<Shared>) -> io::Result<Self> {
        Ok(Self { cipher: Cipher::new(sequence, &secrets)?, shared: Arc::clone(shared), records_max: RECORDS_MAX })
    }

    /// Changes the key after this number of records already.
    #[cfg(feature = "testing")]
    pub fn change_key_after(&mut self, records: u64) {
        self.records_max = records;
    }

    /// Appends records with the first `len_max` bytes of `slices`, or all if they are fewer, to `out`. Returns the
    /// number of bytes.
    pub fn seal(&mut self, slices: &[IoSlice<'_>], len_max: usize, out: &mut BytesMut) -> io::Result<usize> {
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let len = all.min(len_max);
        out.reserve(len + len.div_ceil(CONTENT_LEN_MAX) * OVERHEAD_LEN);
        let (mut slices, mut slice, mut rest) = (slices.iter(), &[][..], len);
        while rest > 0 {
            if self.cipher.sequence >= self.records_max || self.shared.key_wanted.load(Ordering::Relaxed) {
                self.change_key(out)?;
            }
            let content = rest.min(CONTENT_LEN_MAX);
            self.record(APPLICATION_DATA, content, out, |out| {
                let mut missing = content;
                while missing > 0 {
                    if slice.is_empty() {
                        slice = slices.next().map_or(&[][..], |slice| slice);
                        continue;
                    }
                    let (here, later) = slice.split_at(missing.min(slice.len()));
                    out.put_slice(here);
                    missing -= here.len();
                    slice = later;
                }
            })?;
            rest -= content;
        }
        Ok(len)
    }

    /// Appends an alert that ends the connection.
    pub fn end(&mut self, alert: Alert, out: &mut BytesMut) -> io::Result<()> {
        let bytes = match alert {
            Alert::Close => [1, CLOSE_NOTIFY],
            Alert::Violation => [2, 10],
            Alert::Revoked => [2, 44],
        };
        self.record(ALERT, 2, out, |out| out.put_slice(&bytes))
    }

    /// Appends a record with the `len` bytes that `content` puts.
    pub fn record(
        &mut self,
        kind: u8,
        len: usize,
        out: &mut BytesMut,
        content: impl FnOnce(&mut BytesMut),
    ) -> io::Result<()> {
        let nonce = self.cipher.nonce()?;
        let header = header(len + 1 + TAG_LEN);
        let start = out.len();
        out.put_slice(&header);
        content(out);
        out.put_u8(kind);
        let body = &mut out[start + HEADER_LEN..];
        let Ok(tag) = self.cipher.key.seal_in_place_separate_tag(nonce, Aad::from(header), body) else {
            // `out` will be sent: nothing in clear may stay in it.
            out.truncate(start);
            return Err(broken(RecordError::NotEncryptable));
        };
        out.put_slice(tag.as_ref());
        Ok(())
    }

    /// Announces a new key, and uses it from then on.
    fn change_key(&mut self, out: &mut BytesMut) -> io::Result<()> {
        self.shared.key_wanted.store(false, Ordering::Relaxed);
        let secrets = self.shared.keys.lock().next(true).map_err(io::Error::other)?;
        let next = Cipher::new(0, &secrets)?;
        // None is requested of the peer, which counts its records itself.
        self.record(HANDSHAKE, 5, out, |out| out.put_slice(&[KEY_UPDATE, 0, 0, 1, 0]))?;
        self.cipher = next;
        Ok(())
    }
}

/// An alert that ends a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Alert {
    /// close_notify: in order.
    Close,
    /// unexpected_message: the peer sent something invalid, or somebody on the way has changed it.
    Violation,
    /// certificate_revoked: the peer's certificate is not accepted any more.
    Revoked,
}

/// Decrypts one direction of a connection.
pub(crate) struct Opener {
    cipher: Cipher,
    shared: Arc<Shared>,
    /// The beginning of a message after the handshake.
    message: Vec<u8>,
    /// Records without content since the last one with some.
    idle_records: u32,
}

/// A record, decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Content, as a range of the given record.
    Content { start: usize, end: usize },
    /// Nothing for the caller.
    Nothing,
    /// The peer sends no more.
    Closed,
}

impl Opener {
    pub fn new((sequence, secrets): (u64, ConnectionTrafficSecrets), shared: &Arc<Shared>) -> io::Result<Self> {
        let cipher = Cipher::new(sequence, &secrets)?;
        Ok(Self { cipher, shared: Arc::clone(shared), message: Vec::new(), idle_records: 0 })
    }

    /// The length of the record at the start of `bytes`, header included; `None` if more must be received to know it.
    pub fn record_len(bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some([_, 3, _, high, low]) = bytes.first_chunk() else {
            return if bytes.len() < HEADER_LEN { Ok(None) } else { Err(broken(RecordError::NotTls)) };
        };
        match usize::from(u16::from_be_bytes([*high, *low])) {
            0 => Err(broken(RecordError::Empty)),
            len if len <= BODY_LEN_MAX => Ok(Some(HEADER_LEN + len)),
            _ => Err(broken(RecordError::TooLong)),
        }
    }

    /// Decrypts one record in its place. After an error, the connection must not be used any more: the number of the
    /// next record is not known.
    pub fn open(&mut self, record: &mut [u8]) -> io::Result<Opened> {
        let (header, body) = record.split_first_chunk_mut::<HEADER_LEN>().ok_or(broken(RecordError::Short))?;
        if header[0] != APPLICATION_DATA {
            return Err(broken(RecordError::Clear));
        }
        let nonce = self.cipher.nonce()?;
        let opened = self.cipher.key.open_in_place(nonce, Aad::from(*header), body);
        let opened = opened.map_err(|_| broken(RecordError::Changed))?;
        if opened.len() > CONTENT_LEN_MAX + 1 {
            return Err(broken(RecordError::TooMuchContent));
        }
        // Padding of zeros follows the type.
        let end = opened.iter().rposition(|byte| *byte != 0).ok_or(broken(RecordError::NoType))?;
        let (kind, content) = (opened[end], &opened[..end]);
        if kind != HANDSHAKE && !self.message.is_empty() {
            return Err(broken(RecordError::Interrupted));
        }
        if kind == APPLICATION_DATA && !content.is_empty() {
            self.idle_records = 0;
            return Ok(Opened::Content { start: HEADER_LEN, end: HEADER_LEN + end });
        }
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(broken(RecordError::Idle));
        }
        match (kind, content) {
            (APPLICATION_DATA, _) => Ok(Opened::Nothing),
            (ALERT, [_, CLOSE_NOTIFY]) => Ok(Opened::Closed),
            (ALERT, content) => Err(alert(content)),
            (HANDSHAKE, []) => Err(broken(RecordError::EmptyMessage)),
            (HANDSHAKE, content) => {
                self.message.extend_from_slice(content);
                self.messages()?;
                Ok(Opened::Nothing)
            }
            _ => Err(broken(RecordError::UnknownType)),
        }
    }

    /// Acts on complete messages.
    fn messages(&mut self) -> io::Result<()> {
        let mut message = std::mem::take(&mut self.message);
        let mut rest = &message[..];
        while let Some([kind, a, b, c]) = rest.first_chunk() {
            let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if len > MESSAGE_LEN_MAX {
                return Err(broken(RecordError::LongMessage));
            }
            let Some(body) = rest.get(4..4 + len) else { break };
            let after = &rest[4 + len..];
            match (*kind, body) {
                (KEY_UPDATE, [wanted @ (0 | 1)]) if after.is_empty() => {
                    let secrets = self.shared.keys.lock().next(false).map_err(io::Error::other)?;
                    self.cipher = Cipher::new(0, &secrets)?;
                    // One answer covers all requests before it, so a peer that asks without end gets few.
                    self.shared.key_wanted.fetch_or(*wanted == 1, Ordering::Relaxed);
                }
                (NEW_SESSION_TICKET, body) => {
                    self.shared.keys.lock().ticket(body).map_err(io::Error::other)?;
                }
                _ => return Err(broken(RecordError::UnexpectedMessage)),
            }
            rest = after;
        }
        let done = message.len() - rest.len();
        message.drain(..done);
        self.message = message;
        Ok(())
    }
}

/// The error for an alert of the peer.
fn alert(content: &[u8]) -> io::Error {
    let aborted = |why: Box<dyn Error + Send + Sync>| io::Error::new(io::ErrorKind::ConnectionAborted, why);
    match content {
        [_, code] => match Refusal::of_alert(*code) {
            Some(refusal) => aborted(refusal.into()),
            None => aborted(RecordError::Alert(*code).into()),
        },
        _ => aborted(RecordError::MalformedAlert.into()),
    }
}
