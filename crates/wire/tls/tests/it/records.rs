//! Connections beside rustls's own: the records that each side makes are understood by the other.

use std::sync::Arc;

use cheetah_tls::testing::Room;
use cheetah_tls::{Expected, Role, Secured};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A connection between this crate's client and rustls's server.
async fn pair(capacity: usize) -> (Secured<DuplexStream>, TlsStream<DuplexStream>) {
    let room = Room::new();
    let member = room.member("pc7", Role::Node);
    let chain = vec![CertificateDer::from_pem_slice(member.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(member.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let client = room.credential("desk", Role::Examiner).client(Expected::role(Role::Node)).unwrap();
    let (near, far) = tokio::io::duplex(capacity);
    let accepting = TlsAcceptor::from(Arc::new(config)).accept(far);
    let (client, server) = tokio::join!(client.connect("pc7", 1, near), accepting);
    (client.unwrap().0, server.unwrap())
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * index) >> 7) as u8).collect()
}

/// Sends `bytes` in pieces of growing lengths from one end to the other.
async fn pass(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin), bytes: &[u8]) {
    let sending = async {
        let (mut rest, mut len) = (bytes, 1);
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(len.min(rest.len()));
            from.write_all(piece).await.unwrap();
            (rest, len) = (later, len * 3 + 1);
        }
        from.flush().await.unwrap();
    };
    let receiving = async {
        let mut received = vec![0; bytes.len()];
        to.read_exact(&mut received).await.unwrap();
        assert!(received == bytes, "other bytes arrived");
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn content_of_any_length_arrives_in_both_directions() {
    for capacity in [2000, 5000, 1 << 20] {
        let (mut client, mut server) = pair(capacity).await;
        for len in [1, 16383, 16384, 16385, 1 << 20] {
            pass(&mut client, &mut server, &content(len)).await;
            pass(&mut server, &mut client, &content(len)).await;
        }
        let mut end = Vec::new();
        let (closed, read) = tokio::join!(client.shutdown(), server.read_to_end(&mut end));
        assert!(closed.is_ok() && read.unwrap() == 0, "the end is announced");
    }
}

#[tokio::test]
async fn keys_are_changed_when_the_peer_asks() {
    let (mut client, mut server) = pair(1 << 20).await;
    for _ in 0..3 {
        server.get_mut().1.refresh_traffic_keys().unwrap();
        pass(&mut server, &mut client, &content(40_000)).await;
        pass(&mut client, &mut server, &content(40_000)).await;
    }
}

#[tokio::test]
async fn a_changed_repeated_or_cut_record_ends_the_connection() {
    for attack in ["change", "repeat", "cut"] {
        let room = Room::new();
        let server = room.credential("pc7", Role::Node).server().unwrap();
        let client = room.credential("desk", Role::Examiner).client(Expected::role(Role::Node)).unwrap();
        let ((near, mut middle), (mut other, far)) = (tokio::io::duplex(1 << 20), tokio::io::duplex(1 << 20));
        let (armed, mut arm) = tokio::sync::oneshot::channel::<()>();
        let relay = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            let (mut from_client, mut to_client) = tokio::io::split(&mut middle);
            let (mut from_server, mut to_server) = tokio::io::split(&mut other);
            let attacked = async {
                loop {
                    let len = from_client.read(&mut buffer).await.unwrap();
                    if len == 0 {
                        return;
                    }
                    if arm.try_recv().is_err() {
                        to_server.write_all(&buffer[..len]).await.unwrap();
                        continue;
                    }
                    match attack {
                        "change" => buffer[len / 2] ^= 1,
                        "repeat" => to_server.write_all(&buffer[..len]).await.unwrap(),
                        _ => return,
                    }
                    to_server.write_all(&buffer[..len]).await.unwrap();
                }
            };
            tokio::select! {
                () = attacked => {}
                _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
            }
        });
        let ((client, _), (server, _)) = tokio::try_join!(client.connect("pc7", 1, near), server.accept(far)).unwrap();
        let (mut client, mut server) = (client, server);
        armed.send(()).unwrap();
        client.write_all(b"a request").await.unwrap();
        client.flush().await.unwrap();
        drop(client);
        let mut received = Vec::new();
        let error = server.read_to_end(&mut received).await.unwrap_err();
        assert!(received.len() <= 9, "{attack}: {error}");
        relay.await.unwrap();
    }
}

#[tokio::test]
async fn keys_are_changed_after_a_number_of_records() {
    let (mut client, mut server) = pair(1 << 20).await;
    client.change_key_after(3);
    for _ in 0..3 {
        pass(&mut client, &mut server, &content(1 << 20)).await;
        pass(&mut server, &mut client, &content(40_000)).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_ends_with_an_error_and_not_as_if_all_had_been_sent() {
    let (mut client, mut server) = pair(1 << 20).await;
    server.write_all(b"a part").await.unwrap();
    server.flush().await.unwrap();
    // The stream below ends, as when anyone on the way closes it.
    server.get_mut().0.shutdown().await.unwrap();
    let mut received = Vec::new();
    let error = client.read_to_end(&mut received).await.unwrap_err();
    assert_eq!((received.as_slice(), error.kind()), (&b"a part"[..], std::io::ErrorKind::UnexpectedEof));
    assert!(client.read(&mut [0; 10]).await.is_err(), "nor later");
}

#[tokio::test]
async fn an_end_after_an_invalid_record_is_no_end_in_order() {
    let (mut client, mut server) = pair(1 << 16).await;
    // A man in the middle sends a record of his own.
    let forged = [&[23, 3, 3, 0, 32][..], &[7; 32]].concat();
    server.get_mut().0.write_all(&forged).await.unwrap();
    let mut content = Vec::new();
    assert!(client.read_to_end(&mut content).await.is_err() && content.is_empty());
    client.shutdown().await.unwrap();
    let error = server.read_to_end(&mut content).await.unwrap_err();
    let told = rustls::Error::AlertReceived(rustls::AlertDescription::UnexpectedMessage);
    assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&told), "{error}");
}
