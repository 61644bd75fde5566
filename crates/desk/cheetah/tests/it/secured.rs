//! Drives and agents among the members of a room.

use cheetah_tls::testing::Room;
use cheetah_tls::{Role, RoomId};
use rustix::process::Signal;

use crate::support::run::{cheetah_plain, run};
use crate::support::{Desk, MIB, Node, Service, cheetah, need, node, noise};

/// A credential file.
pub fn credential(desk: &Desk, room: &Room, name: &str, role: Role) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let file = desk.file(&format!("{name}.pem"), room.member(name, role).pem().as_bytes());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// Runs cheetah as a member.
pub fn acting(credential: &str, args: &[&str]) -> crate::support::run::Ran {
    cheetah(&[&["--room", credential], args].concat())
}

pub fn node(credential: &str) -> Node {
    Node::start_with("64MiB", "127.0.0.1:0", &["--room", credential])
}

#[test]
fn a_drive_is_written_by_examiners_read_by_analysts_and_closed_to_all_others() {
    let desk = Desk::new();
    let (room, other) = (Room::new(), Room::new());
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let analyst = credential(&desk, &room, "ann", Role::Analyst);
    let nodes: Vec<_> =
        ["pc1", "pc2"].into_iter().map(|name| node(&credential(&desk, &room, name, Role::Node))).collect();
    let listed = node::list(&nodes.iter().collect::<Vec<_>>());
    let (image, _) = desk.image("disk.raw", 20 * MIB);
    let drive = desk.arg("case.drive");

    // Without a credential, with another room's, and with a node's or an agent's, there is nothing.
    let create = ["create", &drive, "--nodes", &listed, "--from", &image, "--layout", "stripe"];
    assert_ne!(cheetah(&create).code, Some(0));
    let strangers = [
        credential(&desk, &other, "stranger", Role::Examiner),
        credential(&desk, &room, "pc3", Role::Node),
        credential(&desk, &room, "suspect", Role::Agent),
        analyst.clone(),
    ];
    for stranger in &strangers {
        assert_ne!(acting(stranger, &create).code, Some(0), "{stranger}");
        assert!(!desk.at("case.drive").exists());
    }
    acting(&examiner, &create).ok();

    // The drive file names the room and the keys of its nodes.
    let file = std::fs::read_to_string(&drive).unwrap();
    let id: RoomId = room.id();
    assert_eq!(file.matches(&format!("room={id}&key=")).count(), 2, "{file}");

    acting(&examiner, &["verify", &drive]).ok();
    acting(&analyst, &["verify", &drive]).ok();
    // What protects the connections is shown.
    let status = acting(&analyst, &["status", &drive]).ok().json();
    assert_eq!(status["acting_as"], "ann (analyst)");
    for (node, name) in status["nodes"].as_array().unwrap().iter().zip(["pc1", "pc2"]) {
        let transport = node["transport"].as_str().unwrap();
        assert!(transport.starts_with("TLS 1.3, ") && transport.contains(&format!("{name} (node)")), "{transport}");
    }
    let shown = cheetah_plain(&["--room", &analyst, "status", &drive]).ok().out();
    assert!(shown.contains("connections: TLS 1.3, ") && shown.contains("as ann (analyst)"), "{shown}");
    // An analyst hands the drive on for reading only.
    let export = ["--room", &analyst, "export", &drive, "--listen", "127.0.0.1:0"];
    assert_ne!(cheetah(&[&export[..], &["--writable"]].concat()).code, Some(0));
    let exported = Service::start(&export);
    let report = acting(&examiner, &["acquire", exported.ready["uri"].as_str().unwrap(), &desk.arg("exported.raw")]);
    let server = &report.ok().json()["report"]["source"]["server"];
    assert!(server["transport"].as_str().unwrap().contains("ann (analyst)"), "{server}");
    assert!(std::fs::read(desk.at("exported.raw")).unwrap() == std::fs::read(&image).unwrap());
    drop(exported);
    for stranger in &strangers[..3] {
        assert_ne!(acting(stranger, &["verify", &drive]).code, Some(0), "{stranger}");
    }
    assert_ne!(cheetah(&["verify", &drive]).code, Some(0));
    for refused in [&["destroy", &drive][..], &["load", &image, &drive]] {
        assert_ne!(acting(&analyst, refused).code, Some(0), "{refused:?}");
    }
    acting(&examiner, &["destroy", &drive]).ok();
}

#[test]
fn nodes_join_the_examiner_of_their_own_room() {
    let desk = Desk::new();
    let (room, other) = (Room::new(), Room::new());
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let drive = desk.arg("joined.drive");
    let args = ["--room", &examiner, "create", &drive, "--wait", "1", "--listen", "127.0.0.1:0"];
    let mut creating = Service::start_on(&[&args[..], &["--size", "8MiB"]].concat(), "waiting");
    let address = creating.ready["listen"].as_str().unwrap().to_owned();
    let join = |credential: &str| Node::start_with("32MiB", "127.0.0.1:0", &["--room", credential, "--join", &address]);
    let _stranger = join(&credential(&desk, &other, "stranger", Role::Node));
    let _clear = Node::start_with("32MiB", "127.0.0.1:0", &["--join", &address]);
    let _node = join(&credential(&desk, &room, "pc1", Role::Node));
    let (code, _) = creating.wait();
    assert_eq!(code, Some(0), "{}", creating.stderr());
    assert_eq!(std::fs::read_to_string(&drive).unwrap().matches(&format!("room={}&key=", room.id())).count(), 1);
    acting(&examiner, &["status", &drive]).ok();
}

#[test]
fn an_agent_is_acquired_by_an_examiner_in_both_directions() {
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let agent = credential(&desk, &room, "suspect", Role::Agent);
    let analyst = credential(&desk, &room, "pc9", Role::Node);
    let disk = desk.file("disk.raw", &noise(8 * MIB, 5));
    let serving = Service::start(&["--room", &agent, "serve", &disk, "--listen", "127.0.0.1:0"]);
    let uri = serving.ready["uri"].as_str().unwrap().to_owned();
    assert_ne!(cheetah(&["acquire", &uri, &desk.arg("clear.raw")]).code, Some(0));
    assert_ne!(acting(&analyst, &["acquire", &uri, &desk.arg("node.raw")]).code, Some(0));
    let report = acting(&examiner, &["acquire", &uri, &desk.arg("dialled.raw")]).ok().json()["report"].clone();
    let transport = report["source"]["server"]["transport"].as_str().unwrap();
    assert!(transport.starts_with("TLS 1.3, ") && transport.contains("suspect (agent)"), "{transport}");
    let log = std::fs::read_to_string(desk.at("dialled.raw.custody")).unwrap();
    assert!(log.lines().next().unwrap().contains(transport), "{log}");
    assert!(std::fs::read(desk.at("dialled.raw")).unwrap() == std::fs::read(&disk).unwrap());

    let copy = desk.arg("called.raw");
    let mut acquiring =
        Service::start_on(&["--room", &examiner, "acquire", "--listen", "127.0.0.1:0", &copy], "waiting");
    let to = acquiring.ready["listen"].as_str().unwrap().to_owned();
    let _stranger = Service::start(&["serve", &disk, "--connect", &to]);
    let _agent = Service::start(&["--room", &agent, "serve", &disk, "--connect", &to]);
    let (code, _) = acquiring.wait();
    assert_eq!(code, Some(0), "{}", acquiring.stderr());
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&disk).unwrap());
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
}

#[test]
fn openssl_talks_to_the_control_port_with_the_right_certificate_only() {
    if !need::programs(&["openssl"]) {
        return;
    }
    let desk = Desk::new();
    let (room, other) = (Room::new(), Room::new());
    let pc = Service::start(&[
        "--room",
        &credential(&desk, &room, "pc1", Role::Node),
        "node",
        "--memory",
        "8MiB",
        "--listen",
        "127.0.0.1:0",
    ]);
    let at = pc.ready["http"].as_str().unwrap().to_owned();
    let ask = |member: Option<(&Room, Role)>| {
        let dir = desk.arg("pem");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let (from, role) = member.unwrap_or((&room, Role::Examiner));
        from.member("desk", role).write_to(dir.as_ref());
        let certificate = format!("-cert {dir}/client-cert.pem -key {dir}/client-key.pem");
        let certificate = member.map(|_| certificate).unwrap_or_default();
        let script = format!(
            "(printf 'GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'; sleep 2) | \
             timeout 30 openssl s_client -quiet -verify_return_error -connect {at} -CAfile {dir}/ca-cert.pem {certificate}"
        );
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]);
        run(shell).out()
    };
    assert!(ask(Some((&room, Role::Examiner))).contains("\"instance\""));
    assert!(ask(Some((&room, Role::Analyst))).contains("\"instance\""));
    assert!(ask(Some((&room, Role::Node))).contains("403"));
    assert!(ask(Some((&room, Role::Agent))).contains("403"));
    assert!(!ask(Some((&other, Role::Examiner))).contains("HTTP/1.1"));
    assert!(!ask(None).contains("HTTP/1.1"));
}

#[test]
fn an_unencrypted_server_beyond_loopback_warns_and_reports_record_it() {
    let desk = Desk::new();
    let disk = desk.file("disk.raw", &noise(MIB, 5));
    let everywhere = ["--listen", "0.0.0.0:0", "--insecure"];
    for words in [&["export", &disk][..], &["serve", &disk], &["node", "--memory", "16MiB"]] {
        let server = Service::start(&[words, &everywhere].concat());
        let said = server.stderr();
        assert!(said.contains("INSECURE") && said.contains("neither encrypted nor authenticated"), "{words:?}: {said}");
        if words[0] == "serve" {
            let copy = desk.arg("copy.raw");
            let uri = server.ready["uri"].as_str().unwrap().replace("0.0.0.0", "127.0.0.1");
            let report = cheetah(&["acquire", &uri, &copy]).ok().json()["report"].clone();
            assert_eq!(report["source"]["server"]["transport"], "in clear: neither encrypted nor authenticated");
            assert!(
                std::fs::read_to_string(format!("{copy}.custody")).unwrap().contains("in clear: neither encrypted")
            );
        }
    }
}
