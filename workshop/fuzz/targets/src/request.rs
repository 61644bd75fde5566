//! NBD request headers: a request that passes the checks lies within the export.

use cheetah_nbd::proto::{Command, Request, TransmissionFlags};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((flags, requests)) = data.split_first_chunk::<2>() else { return };
    let offered = TransmissionFlags(u16::from_be_bytes(*flags));
    for header in requests.as_chunks::<{ Request::LEN }>().0 {
        let Ok(request) = Request::parse(header) else { return };
        let mut again = bytes::BytesMut::new();
        request.encode(&mut again);
        assert_eq!(again[..], header[..]);
        if request.check(offered, 1 << 30).is_ok() {
            let rangeless = matches!(request.command, Command::Flush | Command::Disconnect);
            assert!(rangeless || request.range().fits(1 << 30));
            assert!(!request.command.modifies() || !offered.has(TransmissionFlags::READ_ONLY));
        }
    }
}
