//! Replies of a hostile server: the client does not panic, and completes a read only with exactly the requested bytes.

use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::ByteRange;
use cheetah_nbd::Method;
use cheetah_nbd::client::inflight::{Answer, ExpectedReply, Failed, Inflight, Wakers};
use cheetah_nbd::client::receive::Receiver;
use cheetah_nbd::handshake::BlockSizes;
use cheetah_nbd::handshake::client::Agreement;
use cheetah_nbd::proto::{Command, TransmissionFlags};
use tokio::time::Instant;

const ASKS: [(Command, u64, u64); 6] = [
    (Command::Read, 0, 16),
    (Command::Read, 4096, 600),
    (Command::Read, 1 << 20, 40_000),
    (Command::BlockStatus, 0, 4096),
    (Command::Write, 0, 4096),
    (Command::Flush, 0, 0),
];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, mut data)) = data.split_first() else { return };
    let structured = choice & 1 == 0;
    let agreement = Agreement {
        size: 1 << 30,
        flags: TransmissionFlags::ALL,
        blocks: BlockSizes::default(),
        structured,
        allocation: structured.then_some(1),
        packed: (choice & 1 == 0 && choice & 4 != 0).then_some(if choice & 8 == 0 {
            Method::Auto
        } else {
            Method::Omit
        }),
        description: None,
    };
    let (mut receiver, mut table, mut input) = (Receiver::new(&agreement, false), Inflight::default(), BytesMut::new());
    let now = Instant::now();
    let cookies = ASKS.map(|(command, offset, len)| {
        let ask = ExpectedReply { command, range: ByteRange::new(offset, len) };
        table.insert(ask, now, now + Duration::from_secs(10), 0)
    });
    if choice & 2 != 0 {
        table.abandon(cookies[2]);
    }
    let at_once = usize::from(choice >> 2) * 100 + 1;
    while !data.is_empty() {
        if let Some(len) = receiver.target(table.read_len_mean()).receive_from(&mut data, at_once, &mut input) {
            receiver.received(len, &mut input);
        }
        if receiver.take(&mut input, &mut table, &mut Wakers::new()).is_err() {
            break;
        }
    }
    for (cookie, (_, _, len)) in cookies.into_iter().zip(ASKS) {
        if let Poll::Ready(Ok(Answer::Data(data))) = table.poll(cookie, Waker::noop()) {
            assert_eq!(data.len(), len);
        }
    }
    table.fail_all(&Failed::Disconnected, &mut Wakers::new());
    assert!(table.is_empty());
}
