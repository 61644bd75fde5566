//! Handshakes between members of rooms, and of others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use cheetah_tls::testing::Room;
use cheetah_tls::{BadCredential, ClientTls, Credential, Expected, Identity, Role, ServerTls, Standing, TlsError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

/// Connects both sides; the result of each.
async fn meet(client: &ClientTls, server: &ServerTls) -> (io::Result<Option<Identity>>, io::Result<Option<Standing>>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let served = async {
        let (mut stream, peer) = server.accept(far).await?;
        stream.write_all(b"welcome").await?;
        stream.shutdown().await?;
        Ok(peer)
    };
    let dialled = async {
        let (mut stream, peer) = client.connect("127.0.0.1", 1, near).await?;
        // A refusal of the client arrives after the client's own handshake.
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        assert_eq!(bytes, b"welcome");
        Ok(peer)
    };
    tokio::join!(dialled, served)
}

fn node_of(credential: &Credential) -> ClientTls {
    credential.client(Expected::role(Role::Node)).unwrap()
}

#[tokio::test]
async fn both_sides_learn_who_the_other_is_and_resume() {
    let room = Room::new();
    let (examiner, node) = (room.credential("desk", Role::Examiner), room.credential("pc7", Role::Node));
    let (client, server) = (node_of(&examiner), node.server().unwrap());
    for _ in 0..3 {
        let (node, examiner) = meet(&client, &server).await;
        let (node, examiner) = (node.unwrap().unwrap(), examiner.unwrap().unwrap());
        assert_eq!((node.name.as_str(), node.role, node.room), ("pc7", Role::Node, room.id()));
        assert_eq!(examiner.identity().to_string(), "desk (examiner)");
        assert!(!examiner.is_revoked());
    }
}

/// A stream that counts its writes.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn each_flight_of_a_handshake_is_one_write() {
    let room = Room::new();
    let client = node_of(&room.credential("desk", Role::Examiner));
    let server = room.credential("pc7", Role::Node).server().unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let (near, far) = (Counted(near, Arc::clone(&counts[0])), Counted(far, Arc::clone(&counts[1])));
    let (dialled, served) = tokio::join!(client.connect("127.0.0.1", 1, near), server.accept(far));
    assert!(dialled.is_ok() && served.is_ok());
    // The client: its hello; its certificate and the end. The server: its hello to the end; session tickets.
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [2, 2]);
}

#[tokio::test]
async fn another_room_is_refused_by_both_sides() {
    let (ours, theirs) = (Room::new(), Room::new());
    let server = ours.credential("pc7", Role::Node).server().unwrap();
    let stranger = node_of(&theirs.credential("desk", Role::Examiner));
    let (dialled, served) = meet(&stranger, &server).await;
    assert!(dialled.is_err() && served.is_err());
    // The server alone refuses a client that verifies nothing.
    let server = theirs.credential("pc7", Role::Node).server().unwrap();
    let (dialled, served) = meet(&node_of(&ours.credential("desk", Role::Examiner)), &server).await;
    assert!(dialled.is_err() && served.is_err());
}

#[tokio::test]
async fn a_server_of_another_role_or_key_is_refused() {
    let room = Room::new();
    let (examiner, node) = (room.credential("desk", Role::Examiner), room.credential("pc7", Role::Node));
    let other = room.credential("pc8", Role::Node);
    let server = node.server().unwrap();
    let key = node.identity().unwrap().key;
    for (expected, accepted) in [
        (Expected::role(Role::Node), true),
        (Expected::role(Role::Node).with_key(key), true),
        (Expected::role(Role::Node).with_key(other.identity().unwrap().key), false),
        (Expected::role(Role::Agent), false),
        (Expected::role(Role::Examiner), false),
    ] {
        let (dialled, _) = meet(&examiner.client(expected).unwrap(), &server).await;
        assert_eq!(dialled.is_ok(), accepted, "{expected:?}");
    }
}

#[tokio::test]
async fn a_revoked_member_is_refused_in_new_resumed_and_existing_connections() {
    let room = Room::new();
    let (examiner, node) = (room.credential("desk", Role::Examiner), room.credential("pc7", Role::Node));
    let (client, server) = (node_of(&examiner), node.server().unwrap());
    let standing = meet(&client, &server).await.1.unwrap().unwrap();
    let none = room.revocations(&[]);
    node.replace_revocations(&room.revocations(&[&examiner])).unwrap();
    assert!(standing.is_revoked());
    // With a ticket from before.
    let (dialled, served) = meet(&client, &server).await;
    assert!(dialled.is_err() && served.is_err());
    let again =
        Credential::client(&examiner, Expected::role(Role::Node).with_key(node.identity().unwrap().key)).unwrap();
    let (dialled, served) = meet(&again, &server).await;
    assert!(dialled.is_err() && served.is_err());
    // An older list does not bring it back, nor does another room's.
    assert!(matches!(node.replace_revocations(&none), Err(TlsError::OldRevocations)));
    // Nor does a newer one that lacks it.
    assert!(matches!(node.replace_revocations(&room.revocations(&[])), Err(TlsError::OldRevocations)));
    let foreign = Room::new().revocations(&[]);
    assert!(matches!(node.replace_revocations(&foreign), Err(TlsError::ForeignRevocations)));
    assert!(standing.is_revoked());
    // The client, too, refuses a revoked server.
    let fresh = room.credential("desk2", Role::Examiner);
    fresh.replace_revocations(&room.revocations(&[&node])).unwrap();
    assert!(meet(&node_of(&fresh), &server).await.0.is_err());
}

#[tokio::test]
async fn certificates_of_the_past_and_of_the_future_are_accepted() {
    let room = Room::new();
    let urn = |role| Identity::urn(&room.id(), role);
    let server = room.member_with("pc7", &urn(Role::Node), 2090..2099).credential().server().unwrap();
    let client = node_of(&room.member_with("desk", &urn(Role::Examiner), 1970..1971).credential());
    let (dialled, served) = meet(&client, &server).await;
    assert!(dialled.is_ok() && served.is_ok(), "{dialled:?}");
}

#[tokio::test]
async fn a_joiner_accepts_only_the_enrolment_server_of_the_room_that_the_invitation_names() {
    let room = Room::new();
    let enrols = room.credential("desk", Role::Room);
    let server = enrols.enrolment_server().unwrap();
    let joiner = ClientTls::for_enrolment(enrols.authority_key()).unwrap();
    let (dialled, served) = meet(&joiner, &server).await;
    assert_eq!(dialled.unwrap().unwrap().name, "desk");
    assert!(served.unwrap().is_none());
    let other = Room::new().credential("desk", Role::Examiner).authority_key();
    assert!(meet(&ClientTls::for_enrolment(other).unwrap(), &server).await.0.is_err());
    // No member of the room can pose as its enrolment server.
    for role in [Role::Node, Role::Agent, Role::Analyst, Role::Examiner] {
        let member = room.credential("pc7", role).enrolment_server().unwrap();
        assert!(meet(&joiner, &member).await.0.is_err(), "{role}");
    }
}

#[tokio::test]
async fn servers_of_others_are_verified_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let others = Room::new();
    std::fs::write(dir.path().join("ca-cert.pem"), &others.member("x", Role::Node).authority).unwrap();
    let tls = |dir: &std::path::Path| {
        let foreign = Credential::from_dir(dir).unwrap();
        assert!(foreign.room().is_none() && foreign.server().is_err());
        let tls = foreign.client(Expected::role(Role::Node)).unwrap();
        assert!(tls.is_foreign());
        tls
    };
    let nameless = tls(dir.path());
    let server = others.credential("enrols", Role::Examiner).enrolment_server().unwrap();
    let (dialled, _) = meet(&nameless, &server).await;
    assert!(dialled.unwrap().is_none());
    let (near, far) = tokio::io::duplex(1 << 16);
    let (dialled, _) = tokio::join!(nameless.connect("elsewhere", 1, near), server.accept(far));
    assert!(dialled.is_err());
    // A server of a room refuses a client whose certificate has no role.
    others.member_with("client", "", 2000..2001).write_to(dir.path());
    let named = tls(dir.path());
    assert!(meet(&named, &server).await.1.is_err());
    assert!(meet(&named, &others.credential("pc7", Role::Node).server().unwrap()).await.1.is_err());
}

#[test]
fn a_credential_of_parts_that_do_not_belong_together_is_refused() {
    let (room, other) = (Room::new(), Room::new());
    let (member, stranger) = (room.member("pc7", Role::Node), other.member("pc7", Role::Node));
    let refused = |pem: String| Credential::from_pem(pem.as_bytes()).unwrap_err();
    let part = |pem: String| match refused(pem) {
        TlsError::Credential(why) => why,
        other => panic!("{other}"),
    };
    let parts = |key: &str, certificate: &str, authority: &str| format!("{key}{certificate}{authority}");
    let theirs = other.member("x", Role::Node).authority;
    assert!(matches!(refused(parts(&stranger.key, &member.certificate, &member.authority)), TlsError::Rustls(_)));
    assert_eq!(part(parts(&member.key, &member.certificate, &theirs)), BadCredential::NotSigned);
    assert_eq!(part(parts("", &member.certificate, &member.authority)), BadCredential::NoKey);
    assert_eq!(part(parts(&member.key, "", &member.authority)), BadCredential::NoCertificate);
    assert_eq!(part(parts(&member.key, &member.certificate, "")), BadCredential::NoAuthority);
    let certified = |name: &str, urn: &str| room.member_with(name, urn, 1970..1999).pem();
    assert!(matches!(refused(certified("", &Identity::urn(&room.id(), Role::Node))), TlsError::Malformed(_)));
    assert!(matches!(refused(certified("pc7", "")), TlsError::NotOfARoom));
    assert_eq!(part(certified("pc7", &Identity::urn(&other.id(), Role::Node))), BadCredential::OtherRoom);
    assert!(matches!(refused(certified("pc7", "urn:cheetah:room:1:role:node")), TlsError::Malformed(_)));
}

#[test]
fn a_credential_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pc7.pem");
    std::fs::write(&path, Room::new().member("pc7", Role::Node).pem()).unwrap();
    let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o640);
    assert!(matches!(Credential::from_file(&path), Err(TlsError::Readable(_))));
    allow(0o600);
    assert_eq!(Credential::from_file(&path).unwrap().identity().unwrap().role, Role::Node);
    let link = dir.path().join("link.pem");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Credential::from_file(&link).is_err());
}

#[test]
fn a_peer_is_given_each_list_of_revoked_certificates_once() {
    let room = Room::new();
    let (desk, node) = (room.credential("desk", Role::Examiner), room.credential("pc7", Role::Node));
    assert_eq!(desk.new_revocations("pc7:1"), None, "no certificate is revoked");
    desk.replace_revocations(&room.revocations(&[&node])).unwrap();
    assert_eq!(desk.new_revocations("pc7:1"), desk.revocations());
    assert_eq!(desk.new_revocations("pc7:1"), None);
    assert!(desk.new_revocations("pc8:1").is_some());
}
