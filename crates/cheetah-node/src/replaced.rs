//! Connections that replace each other.
//!
//! A client that gives a connection up makes its writes again on a new one, but the old one may still hold a copy
//! of them that this node has not received yet. Carried out later, it would bring back old bytes over newer ones. So a
//! client gives each of its connections a name that is the same for what replaces it, and counts; the node lets only
//! the newest of a name write.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A connection's name, 128 random bits, and which of that name it is: `0123…cdef/7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    name: u128,
    count: u64,
}

/// Not a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadTurn;

impl FromStr for Turn {
    type Err = BadTurn;

    fn from_str(text: &str) -> Result<Self, BadTurn> {
        let (name, count) = text.split_once('/').ok_or(BadTurn)?;
        let hex = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let decimal = count.bytes().all(|byte| byte.is_ascii_digit());
        let name = hex.then(|| u128::from_str_radix(name, 16).ok()).flatten().ok_or(BadTurn)?;
        let count = decimal.then(|| count.parse().ok()).flatten().ok_or(BadTurn)?;
        Ok(Self { name, count })
    }
}

/// Whether a connection was replaced, and may not write any more.
#[derive(Debug, Default)]
pub(crate) struct Cut(AtomicBool);

impl Cut {
    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The named connections to one export.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    named: Mutex<Vec<(Turn, Weak<Cut>)>>,
}

impl Connections {
    /// Adds a connection and cuts those it replaces. `None` if one that replaces it is there: then what asks is left
    /// over from before. A turn may be had several times, since a negotiation opens its export several times.
    ///
    /// To be called while no write is under way, and none can start.
    pub fn enter(&self, turn: Turn) -> Option<Arc<Cut>> {
        let mut named = self.named.lock();
        named.retain(|(_, other)| other.strong_count() > 0);
        let same = |other: &Turn| other.name == turn.name;
        if named.iter().any(|(other, _)| same(other) && other.count > turn.count) {
            return None;
        }
        for (_, old) in named.iter().filter(|(other, _)| same(other) && other.count < turn.count) {
            if let Some(old) = old.upgrade() {
                old.0.store(true, Ordering::Release);
            }
        }
        let cut = Arc::default();
        named.push((turn, Arc::downgrade(&cut)));
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_32_hex_digits_and_a_number() {
        let name = "00000000000000000000000000000abc";
        assert_eq!(format!("{name}/7").parse(), Ok(Turn { name: 0xabc, count: 7 }));
        for text in
            ["", "/", "abc/1", name, &format!("{name}/"), &format!("{name}/+1"), &format!("{name}/{}0", u64::MAX)]
        {
            assert_eq!(text.parse::<Turn>(), Err(BadTurn), "{text}");
        }
    }

    #[test]
    fn the_newest_of_a_name_cuts_the_others_and_nobody_else() {
        let connections = Connections::default();
        let enter = |name, count| connections.enter(Turn { name, count });
        let (first, again, other) = (enter(1, 1).unwrap(), enter(1, 1).unwrap(), enter(2, 1).unwrap());
        assert!(!first.is_cut() && !again.is_cut(), "a negotiation opens several times");
        let third = enter(1, 3).unwrap();
        assert!(first.is_cut() && again.is_cut() && !other.is_cut());
        assert!(enter(1, 2).is_none(), "late");
        assert!(!third.is_cut());
        drop((first, again, third));
        assert!(enter(1, 2).is_some(), "nothing is left to protect");
        assert_eq!(connections.named.lock().len(), 2, "what is gone is forgotten");
    }
}
