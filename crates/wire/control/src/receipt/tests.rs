use cheetah_tls::Role;
use cheetah_tls::testing::Room;
use serde_json::{Value, json};

use super::*;

fn asked(nonce: &str) -> Asked {
    Asked { drive: "0123456789abcdef".repeat(2), nonce: nonce.to_owned() }
}

fn statement(asked: Asked) -> Statement {
    let statement = Statement::of_export("case42-01234567-0".into(), 1 << 20, asked);
    Statement {
        node: "lab1".into(),
        instance: "ab".repeat(16),
        wiped_bytes: 65_536,
        verified_zero: true,
        time: "2026-01-02T03:04:05.000Z".into(),
        ..statement
    }
}

fn receipt(room: &Room) -> Receipt {
    statement(asked("n1")).sign(Some(&room.credential("lab1", Role::Node)))
}

fn check(receipt: &Receipt, nonce: &str) -> Result<Option<Identity>, BadReceipt> {
    receipt.check(&asked(nonce), "case42-01234567-0", &"ab".repeat(16))
}

#[test]
fn a_receipt_is_verified_after_a_journey_through_json() {
    let room = Room::new();
    let text = serde_json::to_string(&receipt(&room)).unwrap();
    let read: Receipt = serde_json::from_str(&text).unwrap();
    let signer = check(&read, "n1").unwrap().unwrap();
    assert_eq!((signer.name.as_str(), signer.role, signer.room), ("lab1", Role::Node, room.id()));
}

/// Replaces each scalar below `value`, one after the other, and calls `each` with the whole.
fn for_each_change(whole: &Value, pointer: &str, each: &mut impl FnMut(&str, Value)) {
    let here = whole.pointer(pointer).unwrap();
    let changed = match here {
        Value::Object(members) => {
            return members.keys().for_each(|key| for_each_change(whole, &format!("{pointer}/{key}"), each));
        }
        Value::Array(items) => {
            return (0..items.len()).for_each(|at| for_each_change(whole, &format!("{pointer}/{at}"), each));
        }
        Value::String(text) => {
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                let mut copy = whole.clone();
                *copy.pointer_mut(pointer).unwrap() = json!(String::from_utf8(bytes).unwrap());
                each(pointer, copy);
            }
            json!(format!("{text}x"))
        }
        Value::Bool(yes) => json!(!yes),
        Value::Number(number) => json!(number.as_u64().unwrap() + 1),
        Value::Null => return,
    };
    let mut copy = whole.clone();
    *copy.pointer_mut(pointer).unwrap() = changed;
    each(pointer, copy);
}

#[test]
fn a_receipt_with_a_changed_byte_in_any_field_is_refused() {
    let whole = serde_json::to_value(receipt(&Room::new())).unwrap();
    let mut fields = std::collections::BTreeSet::new();
    for_each_change(&whole, "", &mut |pointer, changed| {
        fields.insert(pointer.to_owned());
        let changed: Receipt = serde_json::from_value(changed).unwrap();
        assert!(changed.signer().is_err(), "{pointer}");
    });
    // 11 fields of the statement, of which the range has two, and three of the signature.
    assert_eq!(fields.len(), 15, "{fields:?}");
    let unchanged: Receipt = serde_json::from_value(whole).unwrap();
    assert!(unchanged.signer().unwrap().is_some());
}

#[test]
fn a_receipt_that_answers_another_request_is_refused() {
    let old = receipt(&Room::new());
    assert!(check(&old, "n1").is_ok());
    let error = check(&old, "n2").unwrap_err();
    assert!(matches!(error, BadReceipt::Other("nonce")), "{error}");
    let error = old.check(&asked("n1"), "case42-01234567-1", &"ab".repeat(16)).unwrap_err();
    assert!(matches!(error, BadReceipt::Other("export")), "{error}");
    let error = old.check(&asked("n1"), "case42-01234567-0", &"cd".repeat(16)).unwrap_err();
    assert!(matches!(error, BadReceipt::Other("instance")), "{error}");
    let other = Asked { drive: "f".repeat(32), ..asked("n1") };
    let error = old.check(&other, "case42-01234567-0", &"ab".repeat(16)).unwrap_err();
    assert!(matches!(error, BadReceipt::Other("drive")), "{error}");
}

#[test]
fn a_receipt_of_a_node_without_a_room_has_no_signer() {
    let unsigned = statement(asked("n1")).sign(None);
    assert_eq!(check(&unsigned, "n1").unwrap(), None);
    assert!(check(&unsigned, "n2").is_err());
}
