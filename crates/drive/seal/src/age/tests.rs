use super::*;

fn key() -> Identity {
    Identity::generate().unwrap()
}

fn passphrase(text: &str) -> Identity {
    Identity::Passphrase(std::sync::Arc::new(Zeroizing::new(text.to_owned())))
}

#[test]
fn a_secret_is_opened_by_its_recipient_only() {
    let (mine, other) = (key(), key());
    let file = wrap(b"the secret", &mine.recipient()).unwrap();
    assert_eq!(unwrap(&file, &mine).unwrap().unwrap().as_slice(), b"the secret");
    assert!(unwrap(&file, &other).unwrap().is_none());
    assert!(unwrap(&file, &passphrase("x")).unwrap().is_none());
}

#[test]
fn a_secret_is_opened_by_its_passphrase_only() {
    let file = wrap(b"the secret", &passphrase("correct").recipient()).unwrap();
    assert_eq!(unwrap(&file, &passphrase("correct")).unwrap().unwrap().as_slice(), b"the secret");
    assert!(unwrap(&file, &passphrase("Correct")).unwrap().is_none());
    assert!(unwrap(&file, &key()).unwrap().is_none());
}

#[test]
fn keys_are_read_as_they_are_printed() {
    let identity = key();
    let again: Identity = identity.secret_text().unwrap().parse().unwrap();
    assert_eq!(again.recipient().to_string(), identity.recipient().to_string());
    let recipient: Recipient = identity.recipient().to_string().parse().unwrap();
    assert_eq!(recipient.to_string(), identity.recipient().to_string());
    let mut damaged = identity.recipient().to_string();
    damaged.replace_range(10..11, if &damaged[10..11] == "q" { "p" } else { "q" });
    assert!(damaged.parse::<Recipient>().is_err());
    assert!(identity.recipient().to_string().parse::<Identity>().is_err());
}

/// The key pair in the tests of `rage`.
#[test]
fn a_public_key_belongs_to_its_secret_key_as_age_computes_it() {
    let identity: Identity =
        "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33".parse().unwrap();
    assert_eq!(identity.recipient().to_string(), "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa");
}

#[test]
fn no_secret_is_shown_by_debug() {
    let shown = format!("{:?} {:?} {:?}", passphrase("hush"), passphrase("hush").recipient(), key());
    assert_eq!(shown, "Identity::Passphrase passphrase Identity::Key");
}

#[test]
fn a_changed_file_never_opens() {
    let identity = key();
    let file = wrap(b"the secret", &identity.recipient()).unwrap();
    for at in 0..file.len() {
        for bit in [1, 0x20, 0x80] {
            let mut changed = file.clone();
            changed[at] ^= bit;
            assert!(!matches!(unwrap(&changed, &identity), Ok(Some(_))), "byte {at}");
        }
        assert!(!matches!(unwrap(&file[..at], &identity), Ok(Some(_))), "cut off at {at}");
    }
}

#[test]
fn a_point_of_low_order_is_refused() {
    assert!(wrap(b"secret", &Recipient::Key([0; 32])).is_err());
}
