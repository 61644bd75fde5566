//! What each role may do at an export and at an agent, and in a measurement, on the wire.

use axum::http::Method;
use cheetah_control::ControlClient;
use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::{Address, NbdUri};
use cheetah_tls::{Credential, Expected, Role, Roles};

use serde_json::{Value, json};

use crate::support::lab::Lab;
use crate::support::service::PATIENCE;
use crate::support::{MIB, text};

/// The client that tries an operation. Only the first two may read drives.
const ACTORS: [&str; 7] = ["desk", "ann", "pc9", "suspect-2", "eve", "stranger", "nobody"];

/// A room with a file for each actor but `nobody`, who has no credential. `eve` is revoked.
fn with_actors(lab: &Lab) {
    lab.at("examiner", &["room", "init", "other"]).ok();
    let roles = ["examiner", "analyst", "node", "agent", "examiner", "examiner"];
    for (name, role) in ACTORS.into_iter().zip(roles) {
        let room = if name == "stranger" { "other" } else { "lab" };
        let args = ["room", "credential", "--room", room, "--role", role, "--name", name];
        lab.at("examiner", &[&args[..], &["--out", &file(lab, name)]].concat()).ok();
    }
}

fn file(lab: &Lab, actor: &str) -> String {
    lab.0.arg(&format!("{actor}.pem"))
}

fn credential(lab: &Lab, actor: &str) -> Option<Credential> {
    (actor != "nobody").then(|| Credential::from_pem(&std::fs::read(file(lab, actor)).unwrap()).unwrap())
}

/// Connects to the server of a URI, which an actor may know.
async fn open(lab: &Lab, actor: &str, uri: &str, writable: bool) -> Option<Client> {
    let (_, at) = uri.split_once("://").unwrap();
    let (address, export) = at.split_once('/').unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let address = Address::Tcp { host: host.to_owned(), port: port.parse().unwrap() };
    let config = ClientConfig {
        credentials: credential(lab, actor).into(),
        expected: Expected::roles(Roles::of(&[Role::Agent, Role::Examiner])),
        timeout: PATIENCE,
        writable,
        ..ClientConfig::new(NbdUri::new(address, export))
    };
    Client::connect(config).await.ok()
}

/// What an actor can do at a server: read, and write.
async fn can(lab: &Lab, actor: &str, uri: &str) -> (bool, bool) {
    let range = ByteRange::new(0, 4096);
    let reads = match open(lab, actor, uri, false).await {
        Some(client) => client.read(range).await.is_ok(),
        None => false,
    };
    // One that may not open it to write may still try over a connection for reading.
    let client = match open(lab, actor, uri, true).await {
        Some(client) => Some(client),
        None => open(lab, actor, uri, false).await,
    };
    let writes = match client {
        Some(client) => client.write(0, Data::from(vec![7; 4096]), false).await.is_ok(),
        None => false,
    };
    (reads, writes)
}

/// Whether an actor can ask an agent to take part in a measurement.
async fn measures(lab: &Lab, actor: &str, at: &str) -> bool {
    let client = ControlClient::new(at, credential(lab, actor).as_ref()).with_timeout(PATIENCE);
    let client = client.expecting(Expected::role(Role::Agent));
    let about = client.get::<Value>("/v1/probe").await.is_ok();
    let wanted = json!({ "packets_max": 10, "seconds_max": 1 });
    let receives = client.send::<Value>(Method::POST, "/v1/probe/receive", &wanted).await.is_ok();
    assert_eq!(about, receives, "{actor}");
    about
}

#[test]
fn an_export_and_an_agent_do_for_each_role_what_the_table_says_and_nothing_else() {
    let lab = Lab::new();
    with_actors(&lab);
    let _server = lab.serve("examiner", "lab");
    let (node, agent) =
        (lab.invite(&["--room", "lab", "--role", "node"]), lab.invite(&["--room", "lab", "--role", "agent"]));
    let pc1 = lab.node("pc1", "pc1", &["--room", &node]);
    let (image, content) = lab.0.image("disk.raw", MIB);
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", pc1.address(), "--from", &image, "--room", "lab"]).ok();
    let export = ["export", &drive, "--writable", "--listen", "127.0.0.1:0", "--room", "lab"];
    let export = lab.start("examiner", &export, "ready");
    let serve = ["serve", &image, "--listen", "127.0.0.1:0", "--room", &agent, "--name", "sda"];
    let agent = lab.start("suspect", &serve, "ready");
    lab.eventually("examiner", &["room", "list", "--room", "lab"], |ran| ran.out().contains("\"sda\""));
    lab.at("examiner", &["room", "revoke", "eve", "--room", "lab"]).ok();
    // The export reads the list of its own room, within seconds.
    let uri = text(&export.ready, "uri");
    let disk = text(&agent.ready, "uri");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = std::time::Instant::now();
    while runtime.block_on(open(&lab, "eve", uri, false)).is_some() {
        assert!(started.elapsed() < PATIENCE, "the export does not hear of a revocation");
    }

    // Examiners and analysts read; an examiner writes the drive; nobody writes a disk.
    let expected = |actor: &str, is_drive: bool| match actor {
        "desk" => (true, is_drive),
        "ann" => (true, false),
        _ => (false, false),
    };
    for actor in ACTORS {
        assert_eq!(runtime.block_on(can(&lab, actor, uri)), expected(actor, true), "{actor} at the export");
        assert_eq!(runtime.block_on(can(&lab, actor, disk)), expected(actor, false), "{actor} at the agent");
        let at = text(&agent.ready, "probe");
        assert_eq!(runtime.block_on(measures(&lab, actor, at)), expected(actor, true).0, "{actor} measures");

        // The same by the command, at the agent and at a node.
        let room = if actor == "nobody" { "none".to_owned() } else { file(&lab, actor) };
        for at in [at, &pc1.http] {
            let port = at.rsplit_once(':').unwrap().1;
            let probe = ["probe", "127.0.0.1", "--only", "far", "--far", port, "--packets-max", "500", "--room", &room];
            let ran = lab.at(actor, &probe);
            assert_eq!(ran.code == Some(0), expected(actor, true).0, "{actor} {at}: {} {}", ran.out(), ran.stderr);
            assert_eq!(!ran.json()["far"].is_null(), expected(actor, true).0, "{actor} {at}: {}", ran.out());
        }
    }
    assert!(std::fs::read(&image).unwrap() == content);
}
