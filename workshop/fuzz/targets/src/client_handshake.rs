//! The client's handshake with a hostile server: it neither panics nor sends without bound, and never completes without
//! the contexts it requires.

use bytes::BytesMut;
use cheetah_nbd::handshake::client::{ClientHandshake, ExportRequest, Step};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let contexts = if choice & 1 == 0 { vec![] } else { vec!["x-cheetah:instance/0".to_owned()] };
    let insists = !contexts.is_empty();
    let mut client = ClientHandshake::new(ExportRequest { export: "a".into(), contexts, ..ExportRequest::default() });
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let half = usize::from(*choice).min(data.len());
    for piece in [&data[..half], &data[half..]] {
        input.extend_from_slice(piece);
        match client.advance(&mut input, &mut out) {
            Ok(Step::Read) => {}
            Ok(Step::Done(agreement)) => {
                assert!(agreement.blocks.are_valid() && i64::try_from(agreement.size).is_ok());
                assert!(!insists || agreement.structured);
                return;
            }
            Err(failure) => {
                let _ = failure.to_string();
                return;
            }
        }
        assert!(out.len() < 1000);
    }
}
