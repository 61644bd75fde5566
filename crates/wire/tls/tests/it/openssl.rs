//! Connections beside OpenSSL's.

use std::process::Stdio;
use std::time::Duration;

use cheetah_tls::testing::Room;
use cheetah_tls::{Credential, Expected, Role};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn either_side_changes_its_keys_in_the_middle_of_a_connection_to_openssl() {
    if !cheetah_testing::programs(&["openssl"]) {
        return;
    }
    let room = Room::new();
    let dir = tempfile::tempdir().unwrap();
    room.member_with("localhost", "", 1970..9999).write_to(dir.path());
    let mut server = Command::new("openssl")
        .args(["s_server", "-tls1_3", "-accept", "127.0.0.1:0", "-naccept", "1"])
        .args(["-cert", "server-cert.pem", "-key", "server-key.pem", "-CAfile", "ca-cert.pem", "-Verify", "1"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut says, out) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut lines = BufReader::new(out).lines();
    let mut next = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let port: u16 = loop {
        if let Some(address) = next().await.strip_prefix("ACCEPT ") {
            break address.rsplit(':').next().unwrap().parse().unwrap();
        }
    };
    let tls = Credential::from_dir(dir.path()).unwrap().client(Expected::role(Role::Node)).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut client, _) = timeout(PATIENCE, tls.connect("localhost", port, stream)).await.unwrap().unwrap();
    client.change_key_after(2);
    for round in 0..10 {
        // k: a new key; K: and one asked of this side.
        let command = if round % 2 == 0 { "k\n" } else { "K\n" };
        says.write_all(command.as_bytes()).await.unwrap();
        says.flush().await.unwrap();
        // Records of growing lengths, under ever new keys. What OpenSSL prints about the command is shown with one of them.
        let (mut changed, mut number) = (false, 0);
        while !changed || number < 25 {
            number += 1;
            let line = format!("{round} {number} {}", "long ".repeat(number % 20 * 150));
            // In one record: OpenSSL prints something between two.
            client.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            client.flush().await.unwrap();
            let printed = loop {
                let printed = next().await;
                if printed.starts_with(&format!("{round} ")) {
                    break printed;
                }
                changed |= printed.starts_with("SSL_do_handshake");
            };
            assert!(printed == line, "OpenSSL read other bytes");
        }
        let line = format!("over to the client {round}\n");
        says.write_all(line.as_bytes()).await.unwrap();
        says.flush().await.unwrap();
        let mut received = vec![0; line.len()];
        timeout(PATIENCE, client.read_exact(&mut received)).await.unwrap().unwrap();
        assert_eq!(received, line.as_bytes());
    }
    client.shutdown().await.unwrap();
    assert!(timeout(PATIENCE, server.wait()).await.unwrap().unwrap().success());
}
