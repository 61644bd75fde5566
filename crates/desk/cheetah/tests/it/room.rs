//! Rooms: making one, letting machines in, keeping others out.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::lab::{Lab, port};
use crate::support::run::{program, run};
use crate::support::service::PATIENCE;
use crate::support::{MIB, Node, Port, Service, number, text};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_machine_joins_with_one_string_and_keeps_its_credential() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "analyst"]);
    assert!(string.len() <= 100 && string.starts_with("room1."), "{string}");
    let joined = lab.at("ann", &["room", "join", &string, "--name", "ann-pc"]).ok().json();
    assert_eq!((text(&joined, "room"), text(&joined, "role"), &joined["new"]), ("lab", "analyst", &true.into()));
    let again = lab.at("ann", &["room", "join", &string]).ok().json();
    assert_eq!(again["new"], false);

    let members = lab.members();
    let ann = members.iter().find(|member| member["name"] == "ann-pc").unwrap();
    assert_eq!((text(ann, "role"), &ann["revoked_s"]), ("analyst", &Value::Null));
    let kept = lab.config("ann").join("cheetah/credentials");
    let files: Vec<_> = std::fs::read_dir(&kept).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.iter().all(|path| mode(path) == 0o600), "{files:?}");
    assert_eq!((files.iter().filter(|path| path.extension().is_some()).count(), mode(&kept)), (1, 0o700), "{files:?}");
    for entry in std::fs::read_dir(lab.room_directory()).unwrap().flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.path());
    }
}

#[test]
fn the_string_is_on_the_last_line_in_a_file_and_in_a_qr_code() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let file = lab.0.arg("invitation");
    let mut command = program();
    command.env("XDG_CONFIG_HOME", lab.config("examiner"));
    command.args(["room", "invite", "--role", "node", "--out", &file, "--qr"]);
    let ran = run(command).ok();
    let out = ran.out();
    let last = out.lines().next_back().unwrap();
    assert!(last.starts_with("room1.") && out.contains('█'), "{out}");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), last);
    assert_eq!(mode(Path::new(&file)), 0o600);
    lab.at("one", &["room", "join", &file]).ok();
    // In the form that QR readers and mail programs produce.
    lab.at("two", &["room", "join", &format!(" {}\n{} ", &last[..50], &last[50..])]).ok();
    lab.at("examiner", &["room", "invite", "--no-serve", "--role", "node", "--out", &file])
        .says(2, &["not overwritten"]);
}

#[test]
fn an_invitation_that_is_used_up_expired_or_unknown_lets_nobody_in() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let once = lab.invite(&["--role", "node", "--uses", "1"]);
    lab.at("one", &["room", "join", &once]).ok();
    lab.at("two", &["room", "join", &once]).says(1, &["used as often", "cheetah room invite"]);
    lab.at("one", &["room", "join", &once]).ok();

    let short = lab.invite(&["--role", "node", "--expires", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    lab.at("two", &["room", "join", &short]).says(1, &["expired", "cheetah room invite"]);

    // The register of a moment ago, as a backup would bring it back.
    let register = lab.room_directory().join("register.toml");
    let before = std::fs::read(&register).unwrap();
    let unknown = lab.invite(&["--role", "node"]);
    std::fs::write(&register, before).unwrap();
    lab.at("two", &["room", "join", &unknown]).says(1, &["does not know the invitation"]);
    lab.at("two", &["room", "join", &once[..once.len() - 1]]).says(2, &["copy all of it"]);
    assert_eq!(lab.members().len(), 2);
}

#[test]
fn disks_served_at_once_by_one_machine_cost_one_use_of_an_invitation() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "agent", "--uses", "1"]);
    let (disk, _) = lab.0.image("disk.raw", MIB);
    let serve = ["serve", &disk, "--listen", "127.0.0.1:0", "--room", &string];
    let start = |_| Service::spawn(lab.command("suspect", &serve), "ready").map(drop);
    let served: Vec<_> = std::thread::scope(|scope| {
        let serving: Vec<_> = (0..3).map(|number| scope.spawn(move || start(number))).collect();
        serving.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(served.iter().all(Result::is_ok), "{served:?}");
    assert_ne!(lab.at("other", &serve).code, Some(0), "the use is gone");
}

#[test]
fn an_invitation_gives_its_own_role_only() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    lab.at("one", &["room", "join", &string, "--role", "examiner"]).says(2, &["for the role node"]);
    lab.at("one", &["status", "none.drive", "--room", &string]).says(2, &["for the role node", "needs examiner"]);
    lab.at("one", &["room", "join", &string]).ok();
    lab.at("one", &["status", "none.drive", "--room", "lab"]).says(1, &["as node", "--role examiner"]);
    lab.at("one", &["status", "none.drive", "--room", "other"]).says(2, &["knows no room 'other'", "lab"]);
}

#[test]
fn a_revoked_member_and_its_invitation_let_nobody_in_again() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    lab.at("one", &["room", "join", &string, "--name", "one"]).ok();
    let revoked = lab.at("examiner", &["room", "revoke", "one"]).ok().json();
    assert_eq!(revoked["closed_invitations"].as_array().unwrap().len(), 1, "{revoked}");
    lab.at("two", &["room", "join", &string]).says(1, &["closed", "cheetah room invite"]);
    std::fs::remove_dir_all(lab.config("one").join("cheetah/credentials")).unwrap();
    lab.at("one", &["room", "join", &string]).says(1, &["closed"]);
    lab.at("examiner", &["room", "revoke", "nobody"]).says(2, &["no member 'nobody'", "room list"]);
    assert!(lab.members().iter().any(|member| member["name"] == "one" && member["revoked_s"].is_u64()));
}

/// Bytes that a client sent through a relay.
type Recorded = Arc<Mutex<Vec<u8>>>;

/// Relays connections to a port, and records what clients send. `cut` decides for each connection, by its number and the
/// bytes that the client has sent, whether the answer is withheld and the connection cut.
fn relay(to: u16, cut: impl Fn(usize, usize) -> bool + Send + Sync + 'static) -> (u16, Recorded) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded = Recorded::default();
    let (record, cut) = (Arc::clone(&recorded), Arc::new(cut));
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let (record, cut) = (Arc::clone(&record), Arc::clone(&cut));
            std::thread::spawn(move || {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { return };
                let (mut back, mut out) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let answers = std::thread::spawn(move || std::io::copy(&mut back, &mut out));
                let (mut client, mut server, mut buffer, mut sent) = (client, server, [0; 4096], 0);
                while let Ok(len @ 1..) = client.read(&mut buffer) {
                    record.lock().unwrap().extend(&buffer[..len]);
                    sent += len;
                    if server.write_all(&buffer[..len]).is_err() {
                        break;
                    }
                    if cut(number, sent) {
                        break;
                    }
                }
                let _ = (server.shutdown(std::net::Shutdown::Both), client.shutdown(std::net::Shutdown::Both));
                let _ = answers.join();
            });
        }
    });
    (port, recorded)
}

#[test]
fn a_man_in_the_middle_learns_nothing_and_is_refused() {
    let lab = Lab::new();
    lab.at("mallory", &["room", "init", "lab"]).ok();
    let false_server = lab.serve("mallory", "lab");
    let (relay, recorded) = relay(port(&false_server), |_, _| false);
    let listen = format!("127.0.0.1:{relay}");
    let string = lab.invite(&["--role", "examiner", "--listen", &listen]);
    lab.at("ann", &["room", "join", &string]).says(1, &["not the room of the invitation", "nothing was sent"]);
    let sent = recorded.lock().unwrap().clone();
    // One record is the ClientHello; what follows is an alert. A request has hundreds of bytes.
    assert_eq!(sent[0], 22, "a handshake");
    let hello = 5 + usize::from(u16::from_be_bytes([sent[3], sent[4]]));
    assert!(sent.len() - hello < 80, "{} bytes after the ClientHello", sent.len() - hello);
    let heard = lab.at("mallory", &["room", "list"]).ok().json();
    assert_eq!(heard["members"].as_array().unwrap().len(), 1);
    drop(false_server);
    // A server that is no room at all.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = silent.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        silent.incoming().flatten().for_each(|mut peer| drop(peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n")))
    });
    let string = lab.invite(&["--role", "node", "--listen", &listen]);
    assert_eq!(lab.at("ann", &["room", "join", &string]).code, Some(1));
}

#[test]
fn an_answer_that_is_lost_costs_no_second_use() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    // A handshake takes about 400 bytes of the client; the request ends beyond 800.
    let (relay, _) = relay(port(&server), |number, sent| {
        if number == 0 && sent > 800 {
            // The server has the request; the answer is never read.
            std::thread::sleep(Duration::from_millis(300));
            return true;
        }
        false
    });
    let made = lab.at("examiner", &["room", "invite", "--no-serve", "--role", "node", "--uses", "1"]).ok().json();
    let direct = text(&made, "invitation").to_owned();
    drop(server);
    let at = format!("127.0.0.1:{relay}");
    let through = lab.invite(&["--role", "node", "--uses", "1", "--listen", &at]);
    let server =
        lab.start("examiner", &["room", "serve", "--listen", &format!("127.0.0.1:{}", port_of(&made))], "ready");
    lab.at("one", &["room", "join", &through]).ok();
    let used = |list: &Value| list["members"].as_array().unwrap().len();
    assert_eq!(used(&lab.list()), 2);

    // The server is killed; the machine says what to do, and the same string works once the server is back.
    server.kill();
    lab.at("two", &["room", "join", &direct]).says(1, &["cannot join", "cheetah room serve"]);
    let _server =
        lab.start("examiner", &["room", "serve", "--listen", &format!("127.0.0.1:{}", port_of(&made))], "ready");
    lab.at("two", &["room", "join", &direct]).ok();
    assert_eq!(used(&lab.list()), 3);
}

/// The port in an invitation's answer.
fn port_of(made: &Value) -> u16 {
    let host = made["hosts"][0].as_str().unwrap();
    host.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn invitations_made_at_once_are_all_valid_and_share_one_background_server() {
    let lab = Lab::new();
    let listen = "127.0.0.1:0";
    let invite =
        || lab.at("examiner", &["room", "invite", "--role", "node", "--uses", "1", "--listen", listen]).ok().json();
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(invite)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let pid = number(&made[0], "server_pid");
    let _server = Detached(pid);
    assert!(made.iter().all(|made| number(made, "server_pid") == pid), "{made:?}");
    assert_eq!(lab.list()["invitations"].as_array().unwrap().len(), 6);
    for (machine, made) in made.iter().enumerate() {
        lab.at(&format!("m{machine}"), &["room", "join", text(made, "invitation")]).ok();
    }
    assert_eq!(lab.members().len(), 7);
    // With nothing left to do, it ends.
    let started = Instant::now();
    while Path::new(&format!("/proc/{pid}/cmdline")).exists() && !lab.list()["serving"].is_null() {
        assert!(started.elapsed() < PATIENCE, "the background server does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A process in the background, which the test ends if it is still there.
struct Detached(u64);

impl Drop for Detached {
    fn drop(&mut self) {
        let command = std::fs::read(format!("/proc/{}/cmdline", self.0)).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains("--detached") {
            let pid = rustix::process::Pid::from_raw(i32::try_from(self.0).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

#[test]
fn a_hundred_machines_join_at_once() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    let started = Instant::now();
    let mut processes: Vec<_> = (0..100)
        .map(|machine| {
            let name = format!("m{machine}");
            let mut command = lab.command(&name, &["room", "join", &string, "--name", &name]);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
    eprintln!("100 machines joined in {:.2} s", started.elapsed().as_secs_f64());
    let members = lab.members();
    assert_eq!(members.len(), 101);
    let serials: std::collections::HashSet<_> = members.iter().map(|member| text(member, "serial")).collect();
    assert_eq!(serials.len(), 101);
    assert_eq!(number(&lab.list()["invitations"][0], "uses"), 100);
}

#[test]
fn a_machine_without_an_invitation_is_let_in_by_the_code_on_its_screen() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let at = format!("127.0.0.1:{}", port(&server));
    let mut joining = lab.start("one", &["room", "join", &at, "--role", "node", "--name", "one"], "waiting");
    let code = text(&joining.ready, "code").to_owned();
    let pending = lab.at("examiner", &["room", "pending"]).ok().json();
    assert_eq!((text(&pending["pending"][0], "code"), text(&pending["pending"][0], "name")), (&*code, "one"));
    lab.at("examiner", &["room", "approve", &code, "--role", "examiner"]).says(1, &["asks for the role node"]);
    assert_eq!(lab.members().len(), 1);
    lab.at("examiner", &["room", "approve", &code.replace('-', " "), "--role", "node"]).ok();
    let (ended, last) = joining.wait();
    assert_eq!((ended, text(&last, "event"), text(&last, "role")), (Some(0), "joined", "node"));
    assert_eq!(lab.members().len(), 2);
}

#[test]
fn with_a_man_in_the_middle_the_codes_differ_and_nobody_is_let_in() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    // It shows the joining machine a room of its own, and asks the real room for itself.
    lab.at("mallory", &["room", "init", "lab"]).ok();
    let between = lab.serve("mallory", "lab");
    let (real, fake) = (format!("127.0.0.1:{}", port(&server)), format!("127.0.0.1:{}", port(&between)));
    let victim = lab.start("one", &["room", "join", &fake, "--role", "node", "--name", "one"], "waiting");
    let attacker = lab.start("mallory", &["room", "join", &real, "--role", "node", "--name", "one"], "waiting");
    let (shown, listed) = (text(&victim.ready, "code"), text(&attacker.ready, "code"));
    assert_ne!(shown, listed);
    lab.at("examiner", &["room", "approve", shown, "--role", "node"]).says(1, &["no waiting machine has this code"]);
    assert_eq!(lab.members().len(), 1);
}

#[test]
fn a_role_that_sees_evidence_is_confirmed_on_the_joining_machine() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let at = format!("127.0.0.1:{}", port(&server));
    let mut joining = lab.start("one", &["room", "join", &at, "--role", "agent"], "waiting");
    let code = text(&joining.ready, "code").to_owned();
    lab.at("examiner", &["room", "approve", &code, "--role", "agent"]).ok();
    assert_eq!(joining.wait().0, Some(2), "without a terminal nobody can confirm");
    assert!(!lab.config("one").join("cheetah/credentials").exists());
}

#[test]
fn a_damaged_room_is_named_and_not_used() {
    let lab = Lab::new();
    let directory = lab.room_directory();
    let change = |name: &str, edit: &dyn Fn(&Path), words: &[&str]| {
        let path = directory.join(name);
        let saved = std::fs::read(&path).unwrap();
        edit(&path);
        lab.at("examiner", &["room", "list"]).says(1, words);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, saved).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        lab.at("examiner", &["room", "list"]).ok();
    };
    let cut = |path: &Path| std::fs::write(path, &std::fs::read(path).unwrap()[..30]).unwrap();
    let empty = |path: &Path| std::fs::write(path, b"").unwrap();
    let gone = |path: &Path| std::fs::remove_file(path).unwrap();
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let link = |path: &Path| {
        let moved = path.with_extension("moved");
        std::fs::rename(path, &moved).unwrap();
        symlink(&moved, path).unwrap();
    };
    for name in ["room.toml", "ca-key.pem", "ca-cert.pem", "register.toml"] {
        change(name, &cut, &[name]);
        change(name, &empty, &[name]);
        change(name, &gone, &[name, "missing"]);
        change(name, &open, &[name, "chmod"]);
        change(name, &link, &[name, "symbolic link"]);
    }
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    lab.at("examiner", &["room", "list"]).says(1, &["rooms/lab", "chmod go="]);
}

#[test]
fn a_room_is_made_once() {
    let lab = Lab::new();
    let key = std::fs::read(lab.room_directory().join("ca-key.pem")).unwrap();
    lab.at("examiner", &["room", "init", "lab"]).says(2, &["there is a room 'lab'"]);
    assert_eq!(std::fs::read(lab.room_directory().join("ca-key.pem")).unwrap(), key);
    lab.at("examiner", &["room", "init", "../lab"]).says(2, &["cannot be the name"]);
    lab.at("nobody", &["room", "list"]).says(2, &["cheetah room init"]);
    lab.at("examiner", &["room", "init", "other"]).ok();
    lab.at("examiner", &["room", "list"]).says(2, &["several rooms", "--room"]);
    assert_eq!(text(&lab.at("examiner", &["room", "list", "--room", "lab"]).ok().json(), "room"), "lab");
}

#[test]
fn a_credential_made_in_advance_is_a_file_of_the_owners() {
    let lab = Lab::new();
    let file = lab.0.arg("lab-7.pem");
    let made = lab.at("examiner", &["room", "credential", "--role", "analyst", "--out", &file]).ok().json();
    assert_eq!((text(&made, "name"), text(&made, "role")), ("lab-7", "analyst"));
    assert_eq!(mode(Path::new(&file)), 0o600);
    lab.at("examiner", &["room", "credential", "--role", "analyst", "--out", &file]).says(2, &["not overwritten"]);
    assert_eq!(lab.members().len(), 2, "a refused command admits nobody");
    // The credential is used without a question; only the drive is missing.
    assert!(lab.at("one", &["status", "none.drive", "--room", &file]).stderr.contains("none.drive"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    lab.at("one", &["status", "none.drive", "--room", &file]).says(2, &["chmod 600"]);
    let directory = lab.0.arg("pem");
    lab.at("examiner", &["room", "export", &directory, "--role", "node", "--name", "nbdkit-1"]).ok();
    for name in ["ca-cert.pem", "client-cert.pem", "client-key.pem", "server-cert.pem", "server-key.pem", "ca-crl.pem"]
    {
        assert_eq!(mode(&Path::new(&directory).join(name)), 0o600, "{name}");
    }
    lab.at("examiner", &["room", "export", &directory]).says(2, &["not overwritten"]);
}

#[test]
fn the_tour_needs_the_string_on_each_machine_and_nothing_else() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    let node = |machine: &str| {
        let args = ["node", "--memory", "32MiB", "--listen", "127.0.0.1:0", "--name", machine, "--room", &string];
        Node::of(lab.start(machine, &args, "ready"))
    };
    let nodes = [node("one"), node("two")];
    assert!(nodes.iter().all(|node| node.service.ready["transport"] == "tls"));
    let (image, content) = lab.0.image("disk.raw", 4 * MIB);
    let drive = lab.0.arg("case42.drive");
    let list = nodes.iter().map(Node::address).collect::<Vec<_>>().join(",");
    lab.at("examiner", &["create", &drive, "--nodes", &list, "--from", &image]).ok();
    lab.at("examiner", &["verify", &drive]).ok();
    let copy = lab.0.arg("copy.raw");
    lab.at("examiner", &["save", &drive, &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == content, "the copy differs");

    // The custody log names the credential.
    let log = std::fs::read_to_string(format!("{drive}.custody")).unwrap();
    let members = lab.members();
    let examiner = members.iter().find(|member| member["role"] == "examiner").unwrap();
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["credential"]["key_sha256"], examiner["key_sha256"], "{line}");
        assert_eq!(
            (&record["credential"]["role"], &record["credential"]["name"]),
            (&"examiner".into(), &examiner["name"])
        );
    }

    // Without a credential, and with a node's, there is nothing to read.
    assert_ne!(lab.at("nobody", &["verify", &drive]).code, Some(0));
    assert_ne!(lab.at("one", &["verify", &drive]).code, Some(0));
    lab.at("examiner", &["destroy", &drive]).ok();
}

#[test]
fn a_revoked_analyst_reads_nothing_from_the_next_request_on() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let (string, analyst) = (lab.invite(&["--role", "node"]), lab.invite(&["--role", "analyst"]));
    let (port, _next) = Port::neighbours();
    let args = ["node", "--memory", "32MiB", "--listen", &port.text(), "--name", "one", "--room", &string];
    let node = Node::of(lab.start("one", &args, "ready"));
    lab.at("ann", &["room", "join", &analyst, "--name", "ann"]).ok();
    let (image, _) = lab.0.image("disk.raw", 2 * MIB);
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", node.address(), "--from", &image]).ok();
    lab.at("ann", &["verify", &drive]).ok();
    let revoked = lab.at("examiner", &["room", "revoke", "ann"]).ok().json();
    assert_eq!(revoked["notified"], serde_json::json!(["one"]), "{revoked}");
    assert_ne!(lab.at("ann", &["verify", &drive]).code, Some(0));
}
