//! The handshake of TLS from an unauthenticated peer, to a server or to a client: it never completes.

use std::sync::LazyLock;

use cheetah_tls::testing::Room;
use cheetah_tls::{ClientTls, Expected, Role, ServerTls};
use futures::FutureExt as _;

use crate::edited;

struct Sides {
    client: ClientTls,
    server: ServerTls,
    /// The first message of a member, and the server's answer.
    hello: Vec<u8>,
    answer: Vec<u8>,
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

static SIDES: LazyLock<Sides> = LazyLock::new(|| {
    let room = Room::new();
    let client = room.credential("desk", Role::Examiner).client(Expected::role(Role::Node)).unwrap();
    let server = room.credential("pc7", Role::Node).server().unwrap();
    let hello = said(|mut stream| client.handshake("pc7", 1, &mut stream).now_or_never().is_none(), &[]);
    let answer = said(|mut stream| server.handshake(&mut stream).now_or_never().is_none(), &hello);
    Sides { client, server, hello, answer }
});

/// A stream that yields these bytes, and keeps the bytes written to it.
type Stream<'a> = tokio::io::Join<&'a [u8], &'a mut Vec<u8>>;

/// Returns the bytes that a side sends after it receives `bytes`.
fn said(side: impl FnOnce(Stream<'_>) -> bool, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(!side(tokio::io::join(bytes, &mut out)), "there is nothing to wait for");
    out
}

/// Runs one input: as it is, as the content of a record, and as an edit of a real message.
pub fn run(data: &[u8]) {
    // The end of a refused handshake is limited in time.
    let _entered = RUNTIME.enter();
    let Sides { client, server, hello, answer } = &*SIDES;
    let record = |kind| {
        let body = &data[..data.len().min(16_000)];
        [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
    };
    for bytes in [data.to_vec(), record(22), [hello, &record(22)[..]].concat(), edited(hello, data)] {
        let mut stream = tokio::io::join(&bytes[..], Vec::new());
        assert!(server.handshake(&mut stream).now_or_never().is_some_and(|result| result.is_err()));
    }
    for bytes in [data.to_vec(), record(22), edited(answer, data)] {
        let mut stream = tokio::io::join(&bytes[..], Vec::new());
        assert!(client.handshake("pc7", 1, &mut stream).now_or_never().is_some_and(|result| result.is_err()));
    }
}
