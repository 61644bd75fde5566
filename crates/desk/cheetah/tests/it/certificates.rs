//! `cheetah room export`: stock tools as members of a room, and other implementations' servers with TLS.

use std::path::Path;
use std::process::Command;

use crate::support::lab::Lab;
use crate::support::peer::Peer;
use crate::support::run::{Ran, run};
use crate::support::{MIB, need, noise, text};

/// A folder of certificates of a new member of a room.
fn folder(lab: &Lab, room: &str, name: &str, role: &str) -> String {
    let folder = lab.0.arg(name);
    lab.at("examiner", &["room", "export", &folder, "--room", room, "--role", role, "--name", name]).ok();
    folder
}

/// Runs a tool, which must not take longer than a minute.
fn limited(name: &str, args: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command.arg("60").arg(need::find(name).unwrap()).args(args).env("GNUTLS_DEBUG_LEVEL", "0");
    run(command)
}

#[test]
fn stock_tools_read_a_drive_with_the_exported_certificates_of_a_reader_only() {
    if !need::programs(&["nbdcopy", "nbdinfo", "qemu-img", "qemu-nbd", "nbdkit", "openssl"]) {
        return;
    }
    let lab = Lab::new();
    lab.at("examiner", &["room", "init", "other"]).ok();
    let right = [folder(&lab, "lab", "desk", "examiner"), folder(&lab, "lab", "ann", "analyst")];
    let revoked = folder(&lab, "lab", "eve", "analyst");
    lab.at("examiner", &["room", "revoke", "eve", "--room", "lab"]).ok();
    let wrong = [
        folder(&lab, "lab", "pc9", "node"),
        folder(&lab, "lab", "suspect", "agent"),
        folder(&lab, "other", "stranger", "examiner"),
        revoked,
    ];
    let (image, content) = lab.0.image("disk.raw", 4 * MIB);
    let listen = ["export", &image, "--listen", "127.0.0.1:0", "--room", "lab"];
    let export = lab.start("examiner", &listen, "ready");
    let uri = text(&export.ready, "uri").to_owned();
    let (port, name) = uri.rsplit_once(':').unwrap().1.split_once('/').unwrap();
    let (port, name) = (port.to_owned(), name.to_owned());

    let copied = |ran: Ran, out: &Path| {
        let same = ran.code == Some(0) && std::fs::read(out).is_ok_and(|copy| copy == content);
        let _ = std::fs::remove_file(out);
        same
    };
    let out = lab.0.at("copy.raw");
    let to = lab.0.arg("copy.raw");
    let tries = |folder: &str| {
        let nbds = format!("nbds://localhost:{port}/{name}?tls-certificates={folder}");
        let tls = format!("tls-creds-x509,id=t,endpoint=client,dir={folder}");
        let source = format!("driver=nbd,host=localhost,port={port},export={name},tls-creds=t");
        let convert = ["convert", "--object", &tls, "--image-opts", &source, "-O", "raw", &to];
        // nbdkit relays the content of our server to nbdcopy.
        let certificates = format!("tls-certificates={folder}");
        let relay = ["-U", "-", "nbd", &*format!("uri=nbds://localhost:{port}/{name}"), "tls=require", &certificates];
        let copy = format!("nbdcopy \"$uri\" {to}");
        let relayed = [&relay[..], &["--run", &copy]].concat();
        let list = ["-L", "-b", "localhost", "-p", &port, "--object", &tls, "--tls-creds", "t"];
        let ca = format!("{folder}/ca-cert.pem");
        [
            ("nbdcopy", copied(limited("nbdcopy", &[&nbds, &to]), &out)),
            ("qemu-img", copied(limited("qemu-img", &convert), &out)),
            ("nbdkit nbd", copied(limited("nbdkit", &relayed), &out)),
            ("nbdinfo", limited("nbdinfo", &["--size", &nbds]).out().trim() == content.len().to_string()),
            ("qemu-nbd -L", limited("qemu-nbd", &list).out().contains(&format!("export: '{name}'"))),
            (
                "openssl verify",
                limited("openssl", &["verify", "-CAfile", &ca, &format!("{folder}/client-cert.pem")]).code == Some(0),
            ),
        ]
    };
    for folder in &right {
        for (tool, read) in tries(folder) {
            assert!(read, "{tool} with {folder}");
        }
    }
    for folder in &wrong {
        for (tool, read) in tries(folder) {
            assert_eq!(read, tool == "openssl verify", "{tool} with {folder}");
        }
    }
    // Without certificates, and without TLS.
    let plain = format!("nbd://localhost:{port}/{name}");
    assert!(!copied(limited("nbdcopy", &[&plain, &to]), &out));
    assert!(!copied(limited("qemu-img", &["convert", "-f", "raw", "-O", "raw", &plain, &to]), &out));
}

#[test]
fn openssl_handshakes_with_the_control_port_by_exported_certificates() {
    if !need::programs(&["openssl"]) {
        return;
    }
    let lab = Lab::new();
    lab.at("examiner", &["room", "init", "other"]).ok();
    let node = lab.node("examiner", "a", &["--room", "lab"]);
    let status = |folder: &str, with_key: bool| {
        let certificate = format!("-cert {folder}/client-cert.pem -key {folder}/client-key.pem");
        let script = format!(
            "(printf 'GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'; sleep 2) | timeout 30 \
             openssl s_client -quiet -verify_return_error -verify_hostname localhost -tls1_3 -connect {} -CAfile \
             {folder}/ca-cert.pem {}",
            node.http,
            if with_key { &*certificate } else { "" }
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        run(shell).out()
    };
    let (ours, theirs) = (folder(&lab, "lab", "desk", "examiner"), folder(&lab, "other", "stranger", "examiner"));
    assert!(status(&ours, true).contains("\"instance\""));
    assert!(!status(&ours, false).contains("HTTP/1.1"));
    assert!(!status(&theirs, true).contains("HTTP/1.1"));
}

/// nbdkit and qemu-nbd with the certificates of a folder.
fn servers(folder: &str, file: &str) -> Vec<(&'static str, Peer)> {
    let certificates = format!("--tls-certificates={folder}");
    let nbdkit = ["--tls=require", "--tls-verify-peer", &certificates, "file", file];
    let tls = format!("tls-creds-x509,id=t,endpoint=server,dir={folder},verify-peer=on");
    vec![("nbdkit", Peer::nbdkit_tcp(&nbdkit)), ("qemu-nbd", Peer::qemu_nbd_tls(file, &tls))]
}

/// The URI of a server with TLS, and certificates for it.
fn secured(peer: &Peer, folder: &str) -> String {
    let port = peer.uri.trim_end_matches('/').rsplit_once(':').unwrap().1;
    format!("nbds://localhost:{port}/?tls-certificates={folder}")
}

#[test]
fn servers_of_others_with_tls_are_sources_and_nodes_by_the_right_certificates_only() {
    if !need::programs(&["nbdkit", "qemu-nbd"]) {
        return;
    }
    let lab = Lab::new();
    lab.at("examiner", &["room", "init", "other"]).ok();
    let (agent, node) = (folder(&lab, "lab", "agent-1", "agent"), folder(&lab, "lab", "node-1", "node"));
    let (ours, theirs) = (folder(&lab, "lab", "desk", "examiner"), folder(&lab, "other", "stranger", "examiner"));
    let disk = lab.0.file("disk.raw", &noise(4 * MIB, 3));
    let content = std::fs::read(&disk).unwrap();
    let never = lab.0.arg("never.raw");
    for (what, source) in servers(&agent, &disk) {
        let copy = lab.0.arg(&format!("{what}.raw"));
        let acquire = |uri: &str, to: &str| {
            lab.at("examiner", &["acquire", uri, to, "--room", "none", "--timeout", "10"]).code == Some(0)
        };
        assert!(acquire(&secured(&source, &ours), &copy), "{what}");
        assert!(std::fs::read(&copy).unwrap() == content, "{what}");
        assert!(!acquire(&secured(&source, &theirs), &never), "{what} with certificates of another room");
        assert!(!acquire(&source.uri, &never), "{what} in clear");
    }
    let (image, _) = lab.0.image("image.raw", MIB);
    for (what, peer) in servers(&node, &disk) {
        let drive = lab.0.arg(&format!("{what}.drive"));
        let create = |folder: &str| {
            let uri = secured(&peer, folder);
            lab.at("examiner", &["create", &drive, "--nodes", &uri, "--overwrite", "--from", &image, "--room", "none"])
        };
        assert_ne!(create(&theirs).code, Some(0), "{what}");
        create(&ours).ok();
        lab.at("examiner", &["verify", &drive, "--room", "none"]).ok();
        lab.at("examiner", &["destroy", &drive, "--room", "none"]).ok();
    }
    // A node poses as an agent.
    let (_, posing) = servers(&node, &disk).remove(0);
    let posed = lab.at("examiner", &["acquire", &secured(&posing, &ours), &never, "--room", "none"]);
    assert_ne!(posed.code, Some(0));
}
