//! The receipts of wipes in a log.

use std::collections::BTreeMap;

use cheetah_control::receipt::{BadReceipt, Receipt, Statement};
use cheetah_device::visible::OneLine;
use serde::{Serialize, Serializer};

/// The receipts in a log, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wipes {
    /// The number of valid signed receipts, by room.
    pub signed_in_rooms: BTreeMap<String, u64>,
    /// The number of receipts without a signature.
    pub unsigned: u64,
    /// Bytes wiped, by all these receipts.
    pub wiped_bytes: u64,
    /// The invalid receipts, a sentence each.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub problems: Vec<BadWipe>,
    /// The statements by nonce.
    #[serde(skip)]
    seen: BTreeMap<String, Statement>,
}

/// A receipt that is not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadWipe {
    /// The line, from 1.
    line: u64,
    why: NotCounted,
}

impl Serialize for BadWipe {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a receipt is not counted. Each has the name of its node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NotCounted {
    /// Its signature is not valid; why.
    #[error("the receipt of {0} is not valid: {1}")]
    NotValid(String, String),
    /// It is of a room other than the one that the log is about.
    #[error("the receipt of {0} is not of the room in which this record was written")]
    OtherRoom(String),
    /// Another receipt has its nonce.
    #[error("the receipt of {0} has the nonce of another one")]
    UsedNonce(String),
}

impl Wipes {
    /// Whether there is no receipt in the log.
    pub fn is_empty(&self) -> bool {
        self.signed_in_rooms.is_empty() && self.unsigned == 0 && self.problems.is_empty()
    }

    /// Adds the receipt on a line, recorded by a member of `room`.
    pub(crate) fn add(&mut self, line: u64, receipt: Receipt, room: Option<&str>) {
        if let Err(why) = self.count(receipt, room) {
            self.problems.push(BadWipe { line, why });
        }
    }

    fn count(&mut self, receipt: Receipt, room: Option<&str>) -> Result<(), NotCounted> {
        let statement = &receipt.statement;
        let node = || OneLine(&statement.node).to_string();
        let signer = receipt.signer().map_err(|error: BadReceipt| NotCounted::NotValid(node(), error.to_string()))?;
        let found = signer.map(|signer| signer.room.to_string());
        if room.is_some() && found.is_some() && found.as_deref() != room {
            return Err(NotCounted::OtherRoom(node()));
        }
        match self.seen.get(&statement.nonce) {
            // A drive that is destroyed in several attempts records the first receipts again.
            Some(seen) if seen == statement => return Ok(()),
            Some(_) => return Err(NotCounted::UsedNonce(node())),
            None => {}
        }
        match found {
            Some(room) => *self.signed_in_rooms.entry(room).or_default() += 1,
            None => self.unsigned += 1,
        }
        self.wiped_bytes = self.wiped_bytes.saturating_add(statement.wiped_bytes);
        self.seen.insert(receipt.statement.nonce.clone(), receipt.statement);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cheetah_control::receipt::Asked;
    use cheetah_tls::Role;
    use cheetah_tls::testing::Room;

    use super::*;

    fn receipt(room: &Room, nonce: &str) -> Receipt {
        let asked = Asked { drive: "12".repeat(16), nonce: nonce.to_owned() };
        let statement = Statement { wiped_bytes: 100, ..Statement::of_export("e".into(), 200, asked) };
        statement.sign(Some(&room.credential("lab1", Role::Node)))
    }

    #[test]
    fn receipts_are_counted_once_each() {
        let room = Room::new();
        let mut wipes = Wipes::default();
        for nonce in ["a", "b", "b"] {
            let receipt = Receipt { statement: receipt(&room, nonce).statement, signature: None };
            wipes.add(1, receipt, None);
        }
        assert_eq!((wipes.unsigned, wipes.wiped_bytes), (2, 200));
        let own = room.id().to_string();
        wipes.add(2, receipt(&room, "c"), Some(&own));
        assert_eq!((wipes.signed_in_rooms[&own], wipes.wiped_bytes, wipes.problems.len()), (1, 300, 0));
    }

    #[test]
    fn an_altered_receipt_and_one_of_another_room_and_one_with_a_used_nonce_are_problems() {
        let room = Room::new();
        let own = room.id().to_string();
        let mut wipes = Wipes::default();
        let mut altered = receipt(&room, "a");
        altered.statement.wiped_bytes += 1;
        wipes.add(7, altered, Some(&own));
        wipes.add(8, receipt(&Room::new(), "b"), Some(&own));
        wipes.add(9, receipt(&room, "c"), Some(&own));
        let statement = Statement { export: "f".into(), ..receipt(&room, "c").statement };
        wipes.add(10, statement.sign(Some(&room.credential("lab1", Role::Node))), Some(&own));
        let problems = wipes.problems.iter().map(|one| (one.line, &one.why)).collect::<Vec<_>>();
        assert!(
            matches!(
                problems[..],
                [(7, NotCounted::NotValid(..)), (8, NotCounted::OtherRoom(_)), (10, NotCounted::UsedNonce(_))]
            ),
            "{problems:?}"
        );
        assert_eq!((wipes.signed_in_rooms[&own], wipes.wiped_bytes), (1, 100));
    }
}
