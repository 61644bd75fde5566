//! One direction of a connection whose keys a test knows: records that a peer with the keys could send in violation of
//! the protocol.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut as _, BytesMut};
use parking_lot::Mutex;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv};

use crate::inbound::Inbound;
use crate::record::{Keys, Opener, Sealer, Shared};

/// Keys, one after the other, by counting.
struct Counted(u8);

fn secrets(number: u8) -> ConnectionTrafficSecrets {
    let (key, iv) = (AeadKey::from([number; 32]), Iv::from([number; 12]));
    match number % 2 {
        0 => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
        _ => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
    }
}

impl Keys for Counted {
    fn next(&mut self, _sending: bool) -> Result<ConnectionTrafficSecrets, rustls::Error> {
        self.0 = self.0.wrapping_add(1);
        Ok(secrets(self.0))
    }

    fn ticket(&mut self, _ticket: &[u8]) -> Result<(), rustls::Error> {
        Ok(())
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared { keys: Mutex::new(Box::new(Counted(0))), key_wanted: AtomicBool::new(false) })
}

/// Makes records.
pub struct Forger {
    sealer: Sealer,
    shared: Arc<Shared>,
}

/// Receives records, as [`Receiver`](crate::Receiver) does.
pub struct Reader {
    inbound: Inbound,
    shared: Arc<Shared>,
}

/// Both ends of a direction, at the start, or at this sequence number.
pub fn direction(sequence: u64) -> (Forger, Reader) {
    let (near, far) = (shared(), shared());
    let sealer = Sealer::new((sequence, secrets(0)), &near).unwrap();
    let opener = Opener::new((sequence, secrets(0)), &far).unwrap();
    (Forger { sealer, shared: near }, Reader { inbound: Inbound::new(opener, &[], &[]), shared: far })
}

impl Forger {
    /// A record of any type, with any content, and this number of zeros behind its type. It may be longer than the
    /// standard allows, up to 65,518 bytes of content and padding.
    pub fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut out = BytesMut::new();
        let made = match padding.checked_sub(1) {
            None => self.sealer.record(kind, content.len(), &mut out, |out| out.put_slice(content)),
            // The type is then the last but one that is not zero.
            Some(zeros) => self.sealer.record(0, content.len() + padding, &mut out, |out| {
                out.put_slice(content);
                out.put_u8(kind);
                out.put_bytes(0, zeros);
            }),
        };
        made.unwrap();
        out.to_vec()
    }

    /// Records with this content, as the sender of a connection makes them.
    ///
    /// # Errors
    ///
    /// If no record can be made any more.
    pub fn content(&mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = BytesMut::new();
        self.sealer.seal(&[io::IoSlice::new(content)], content.len(), &mut out)?;
        Ok(out.to_vec())
    }

    /// Changes the key after this number of records.
    pub fn change_key_after(&mut self, records: u64) {
        self.sealer.change_key_after(records);
    }

    /// Uses the next key, announced or not.
    pub fn next_key(&mut self) {
        let secrets = self.shared.keys.lock().next(true).unwrap();
        self.sealer = Sealer::new((0, secrets), &self.shared).unwrap();
    }
}

impl Reader {
    /// Receives bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbound.room(bytes.len()).put_slice(bytes);
    }

    /// The content so far, up to `len_max` bytes.
    ///
    /// # Errors
    ///
    /// If a record is not as it must be.
    pub fn take(&mut self, len_max: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.inbound.take(&mut content, len_max).map(|_| content)
    }

    /// Whether the end was announced and all content taken.
    pub fn is_closed(&self) -> bool {
        self.inbound.is_closed()
    }

    /// Whether the sender asked for a new key in the other direction.
    pub fn key_wanted(&self) -> bool {
        self.shared.key_wanted.load(Ordering::Relaxed)
    }

    /// The memory that the connection holds for what it received, in bytes.
    pub fn memory(&self) -> usize {
        self.inbound.capacity()
    }
}
