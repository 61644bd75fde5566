//! Records of TLS after the handshake, from a peer that has the keys and from a machine between the peers. The bytes
//! read are a prefix of the bytes sent, nothing is read after an error, and memory is bounded.

use cheetah_tls::testing::{Reader, direction};

/// The most bytes of content in one run, and of memory for received bytes.
const CONTENT_LEN_MAX: usize = 96 << 10;
const MEMORY_BYTES_MAX: usize = 1 << 20;

const DATA: u8 = 23;
const HANDSHAKE: u8 = 22;

/// Runs one input: a script of records, and of their corruption in transit.
pub fn run(data: &[u8]) {
    let (mut forger, mut reader) = direction(0);
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    let (mut intact, mut failed) = (true, false);
    let mut script = data;
    while let [choice, a, b, rest @ ..] = script {
        script = rest;
        let number = usize::from(u16::from_be_bytes([*a, *b]));
        if sent.len() > CONTENT_LEN_MAX {
            break;
        }
        match choice % 8 {
            // Content, sometimes of more than one record.
            0..=2 => {
                let len = if *b == 0 { number % 40_000 } else { number % 300 };
                let content: Vec<u8> = (sent.len()..sent.len() + len).map(|at| (at ^ at >> 8) as u8).collect();
                let records = forger.content(&content).unwrap();
                deliver(&mut reader, &records, number);
                sent.extend(content);
            }
            // The next key, announced properly.
            3 => {
                forger.change_key_after(u64::from(*a));
                let update = forger.record(HANDSHAKE, &[24, 0, 0, 1, a % 2], usize::from(*b));
                forger.next_key();
                reader.receive(&update);
            }
            // Any record.
            4 => {
                let (content, rest) = script.split_at(script.len().min(number % 64));
                script = rest;
                let kind = [DATA, HANDSHAKE, 21, *a][usize::from(*b % 4)];
                let record = forger.record(kind, content, number % 17_000 / 3);
                intact &= kind == DATA;
                if kind == DATA {
                    sent.extend_from_slice(content);
                }
                reader.receive(&record);
            }
            // Changed, truncated, lost, repeated, or forged in transit.
            what => {
                let content = forger.content(&[*a; 20]).unwrap();
                let mut bytes = content.clone();
                match (what, b % 3) {
                    (5, _) => bytes[number % content.len()] ^= b | 1,
                    (6, 0) => bytes.truncate(number % content.len()),
                    (6, 1) => bytes.clear(),
                    (6, _) => bytes.extend_from_slice(&content),
                    _ => bytes = script.get(..number % 64).unwrap_or_default().to_vec(),
                }
                intact &= bytes == content;
                sent.extend([*a; 20]);
                reader.receive(&bytes);
            }
        }
        failed |= take(&mut reader, number % 2000 + 1, &mut read, failed);
        assert!(reader.memory() < MEMORY_BYTES_MAX);
    }
    // An error comes once the content before it is taken.
    for _ in 0..2 {
        failed |= take(&mut reader, usize::MAX, &mut read, failed);
    }
    assert!(sent.starts_with(&read), "other content than was sent");
    assert!(!intact || failed || reader.is_closed() || read == sent, "content is missing");
}

/// Hands bytes over in two pieces.
fn deliver(reader: &mut Reader, bytes: &[u8], place: usize) {
    let (one, two) = bytes.split_at(place % (bytes.len() + 1));
    reader.receive(one);
    reader.receive(two);
}

/// Takes content; returns whether that failed.
fn take(reader: &mut Reader, len_max: usize, read: &mut Vec<u8>, failed: bool) -> bool {
    match reader.take(len_max) {
        Ok(content) => {
            assert!(!failed || content.is_empty(), "content after an error");
            read.extend(content);
            false
        }
        Err(_) => true,
    }
}
