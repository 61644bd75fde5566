//! The server's handshake with a hostile client: it neither panics nor answers without bound, and never opens an export
//! that does not exist.

use bytes::BytesMut;
use cheetah_nbd::handshake::BlockSizes;
use cheetah_nbd::handshake::server::{ExportLookup, Offer, Refusal, ServerHandshake, Step};
use cheetah_nbd::proto::TransmissionFlags;

struct Exports;

impl ExportLookup for Exports {
    type Export = ();

    fn list(&self) -> Vec<String> {
        vec!["a".into(), String::new()]
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<()>, Refusal> {
        if name != "a" {
            return Err(Refusal::unknown(format!("no export '{name}'")));
        }
        Ok(Offer {
            export: (),
            size: 1 << 20,
            flags: TransmissionFlags::ALL,
            description: "d".into(),
            blocks: BlockSizes::default(),
            contexts: contexts.to_vec(),
        })
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut out = BytesMut::new();
    // The lowest bit of the second byte says whether TLS is required.
    let tls = data.get(1).is_some_and(|byte| byte & 1 == 1);
    let mut server = if tls { ServerHandshake::with_tls(&mut out) } else { ServerHandshake::new(&mut out) };
    let mut has_tls = !tls;
    let mut input = BytesMut::new();
    // In two pieces, so that the server has to wait for the rest.
    let half = data.first().map_or(0, |first| usize::from(*first).min(data.len()));
    for piece in [&data[..half], &data[half..]] {
        input.extend_from_slice(piece);
        loop {
            out.clear();
            let before = input.len();
            match server.advance(&mut input, &Exports, &mut out) {
                Step::Again => assert!(input.len() < before, "no progress"),
                Step::Read => break,
                Step::StartTls => {
                    assert!(input.is_empty() && !has_tls, "bytes before TLS are taken for bytes after it");
                    has_tls = true;
                    server = server.secured();
                }
                Step::Enter(session) => {
                    assert!(has_tls, "an export is open without TLS");
                    assert!(session.contexts.len() <= 33);
                    return;
                }
                Step::Close(_) => return,
            }
            // One option's data may be echoed for each context, but no more than that.
            assert!(out.len() <= 200_000);
        }
    }
}
