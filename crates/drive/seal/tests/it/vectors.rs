//! The test vectors of the specification.

use cheetah_seal::unit::{DriveBinding, EpochKey, stamp_of};
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};
use cheetah_seal::{DriveKey, Epoch, Record, Stamp, Units};

const PAGE: &str = include_str!("../../../../../docs/reference/seal-format.md");

fn counting<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|n| from + n as u8)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn is_on_the_page(what: &str, value: &str) {
    assert!(PAGE.contains(&format!("| {what} | `{value}` |")), "{what}: {value}");
}

#[test]
fn units_are_sealed_as_specified() {
    let key = DriveKey::from_bytes(&counting(0)).unwrap();
    let cases = [(UNIT_BYTES_SMALL, 5, 1, 1), (UNIT_BYTES_LARGE, 0x01_0203_0405, 0x01_0203, 0x04_0506_0708)];
    for (unit_bytes, index, number, counter) in cases {
        let binding = DriveBinding { drive: counting(0x40), unit_bytes };
        let epoch = EpochKey::derive(&key, binding, &Epoch { number, random: counting(0x80), open: false }).unwrap();
        let stamp = Stamp::new(number, counter).unwrap();
        let content: Vec<u8> = (0..unit_bytes).map(|n| (n % 251) as u8).collect();
        let (mut sealed, mut trailer) = (content.clone(), [0; 24]);
        epoch.seal(index, stamp, &mut sealed, &mut trailer).unwrap();
        is_on_the_page("ciphertext, first 16 bytes", &hex(&sealed[..16]));
        is_on_the_page("trailer", &hex(&trailer));
        let whole = blake3::hash(&[sealed.as_slice(), &trailer].concat());
        is_on_the_page("BLAKE3 of ciphertext and trailer", &whole.to_hex());
        assert_eq!(stamp_of(&trailer), Some(stamp));
        assert!(epoch.open(index, &mut sealed, &trailer));
        assert!(sealed == content);
    }
}

#[test]
fn a_record_has_the_root_that_is_specified() {
    let key = DriveKey::from_bytes(&counting(0)).unwrap();
    let mut record = Record::new(counting(0x40), Units::new(UNIT_BYTES_SMALL, 10_000).unwrap(), true);
    record.sequence = 7;
    let (random, mut reversed) = (counting(0x80), counting(0x80));
    reversed.reverse();
    record.epochs = vec![Epoch { number: 1, random, open: false }, Epoch { number: 3, random: reversed, open: true }];
    record.stamps = vec![Stamp::HOLE, Stamp::new(1, 2).unwrap(), Stamp::new(3, 1).unwrap()];
    let encoded = record.encode(&key).unwrap();
    is_on_the_page("root", &Record::root_text(&encoded));
    assert_eq!(Record::decode(&encoded, &key).unwrap(), record);
}
