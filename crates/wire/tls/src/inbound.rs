//! The received bytes of a connection. No I/O.

use std::io;

use bytes::{Buf, BufMut, BytesMut};

use crate::error::{RecordError, Refusal};
use crate::record::{Opened, Opener};

/// Received bytes that are not taken yet.
pub(crate) struct Inbound {
    opener: Opener,
    /// Decrypted content that is not taken yet, of [`plain`](Self::plain) bytes, and then encrypted records.
    bytes: BytesMut,
    /// The length of the decrypted content in `bytes`.
    plain: usize,
    /// The length of the rest of its record, which follows it.
    behind: usize,
    closed: bool,
    /// The error of a refused record; the content before it is good.
    broken: Option<io::Error>,
}

impl Inbound {
    /// Begins with what arrived behind the handshake: `content`, decrypted, and `bytes`, encrypted.
    pub fn new(opener: Opener, content: &[u8], bytes: &[u8]) -> Self {
        let mut all = BytesMut::with_capacity(content.len() + bytes.len());
        all.put_slice(content);
        all.put_slice(bytes);
        Self { opener, plain: content.len(), behind: 0, bytes: all, closed: false, broken: None }
    }

    /// Moves up to `len_max` bytes of content to `to`. Returns their number: 0 if more must be received first, or if
    /// the peer has [closed](Self::is_closed) its side.
    ///
    /// # Errors
    ///
    /// If a record is invalid, once the content before it was taken; and from then on at each call.
    pub fn take(&mut self, to: &mut impl BufMut, len_max: usize) -> io::Result<usize> {
        let len_max = len_max.min(to.remaining_mut());
        let mut taken = 0;
        while taken < len_max {
            if self.plain > 0 {
                let here = self.plain.min(len_max - taken);
                to.put_slice(&self.bytes[..here]);
                self.bytes.advance(here);
                self.plain -= here;
                taken += here;
                continue;
            }
            self.bytes.advance(std::mem::take(&mut self.behind));
            if self.closed || self.broken.is_some() {
                break;
            }
            match self.open() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.broken = Some(error),
            }
        }
        match &self.broken {
            Some(error) if taken == 0 => Err(repeated(error)),
            _ => Ok(taken),
        }
    }

    /// Decrypts the next record, if it has arrived.
    fn open(&mut self) -> io::Result<bool> {
        let Some(len) = Opener::record_len(&self.bytes)?.filter(|len| *len <= self.bytes.len()) else {
            return Ok(false);
        };
        match self.opener.open(&mut self.bytes[..len])? {
            Opened::Content { start, end } => {
                self.bytes.advance(start);
                self.plain = end - start;
                self.behind = len - end;
            }
            Opened::Nothing => self.bytes.advance(len),
            Opened::Closed => {
                self.bytes.advance(len);
                self.closed = true;
            }
        }
        Ok(true)
    }

    /// Whether the peer has closed its side, and all content was taken.
    pub fn is_closed(&self) -> bool {
        self.closed && self.plain == 0
    }

    /// Where to append received bytes, with room for `len` bytes or more, and at least the rest of the record at
    /// the start.
    pub fn room(&mut self, len: usize) -> &mut BytesMut {
        let record = Opener::record_len(&self.bytes).ok().flatten().unwrap_or(0);
        let missing = record.saturating_sub(self.bytes.len()).max(len);
        if self.bytes.capacity() - self.bytes.len() < missing {
            self.bytes.reserve(missing);
        }
        &mut self.bytes
    }
}

#[cfg(feature = "testing")]
impl Inbound {
    /// The memory for what arrived, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The same error again; [`Refusal::of_error`] and [`RecordError::of_error`] recognise each.
fn repeated(error: &io::Error) -> io::Error {
    match (Refusal::of_error(error), RecordError::of_error(error)) {
        (Some(refusal), _) => io::Error::new(error.kind(), refusal),
        (None, Some(defect)) => io::Error::new(error.kind(), defect),
        (None, None) => io::Error::new(error.kind(), error.to_string()),
    }
}
