//! Fencing connections that have been replaced.
//!
//! A client that abandons a connection repeats its writes on a new one, but copies on the old one may not have arrived yet.
//! Carried out later, they would overwrite newer content. So a client gives each connection an id, which its replacement
//! keeps, and a rising number; only the newest connection of an id may write.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A connection's id, 128 random bits, and its number: `0123…cdef/7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionNumber {
    name: u128,
    count: u64,
}

/// The text is not a connection number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadConnectionNumber;

impl FromStr for ConnectionNumber {
    type Err = BadConnectionNumber;

    fn from_str(text: &str) -> Result<Self, BadConnectionNumber> {
        let (name, count) = text.split_once('/').ok_or(BadConnectionNumber)?;
        let hex = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let decimal = count.bytes().all(|byte| byte.is_ascii_digit());
        let name = hex.then(|| u128::from_str_radix(name, 16).ok()).flatten().ok_or(BadConnectionNumber)?;
        let count = decimal.then(|| count.parse().ok()).flatten().ok_or(BadConnectionNumber)?;
        Ok(Self { name, count })
    }
}

/// Whether a connection has been replaced, and must not write.
#[derive(Debug, Default)]
pub(crate) struct ReplacedFlag(AtomicBool);

impl ReplacedFlag {
    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The numbered connections of an export.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    named: Mutex<Vec<(ConnectionNumber, Weak<ReplacedFlag>)>>,
}

impl Connections {
    /// Adds a connection and fences those it replaces. `None` if a newer one exists. A number may be entered several times,
    /// because a handshake opens its export several times.
    ///
    /// Must be called while no write is in progress or can start.
    pub fn enter(&self, number: ConnectionNumber) -> Option<Arc<ReplacedFlag>> {
        let mut named = self.named.lock();
        named.retain(|(_, other)| other.strong_count() > 0);
        let same = |other: &ConnectionNumber| other.name == number.name;
        if named.iter().any(|(other, _)| same(other) && other.count > number.count) {
            return None;
        }
        for (_, old) in named.iter().filter(|(other, _)| same(other) && other.count < number.count) {
            if let Some(old) = old.upgrade() {
                old.0.store(true, Ordering::Release);
            }
        }
        let cut = Arc::default();
        named.push((number, Arc::downgrade(&cut)));
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_number_is_32_hex_digits_and_a_count() {
        let name = "00000000000000000000000000000abc";
        assert_eq!(format!("{name}/7").parse(), Ok(ConnectionNumber { name: 0xabc, count: 7 }));
        for text in
            ["", "/", "abc/1", name, &format!("{name}/"), &format!("{name}/+1"), &format!("{name}/{}0", u64::MAX)]
        {
            assert_eq!(text.parse::<ConnectionNumber>(), Err(BadConnectionNumber), "{text}");
        }
    }

    #[test]
    fn the_newest_connection_of_an_id_cuts_the_older_ones_of_that_id_only() {
        let connections = Connections::default();
        let enter = |name, count| connections.enter(ConnectionNumber { name, count });
        let (first, again, other) = (enter(1, 1).unwrap(), enter(1, 1).unwrap(), enter(2, 1).unwrap());
        assert!(!first.is_cut() && !again.is_cut(), "a negotiation opens several times");
        let third = enter(1, 3).unwrap();
        assert!(first.is_cut() && again.is_cut() && !other.is_cut());
        assert!(enter(1, 2).is_none(), "late");
        assert!(!third.is_cut());
        drop((first, again, third));
        assert!(enter(1, 2).is_some(), "nothing is left to protect");
        assert_eq!(connections.named.lock().len(), 2, "a deleted export is forgotten");
    }
}
