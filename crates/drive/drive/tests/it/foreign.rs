//! Foreign NBD servers as nodes. Tests of servers that are not installed print that they are skipped.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use cheetah_drive::create::{CreateRequest, create};
use cheetah_drive::destroy::{WipeOutcome, destroy};
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::load::load;
use cheetah_drive::status::{NodeState, status};
use cheetah_drive::{AvailableNode, DriveSize, Layout, NodeSpec};

/// A server process, killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `program` and waits for its socket; `None`, with a message, if it is not installed.
fn start(program: &str, args: &[&str], socket: &Path) -> Option<Server> {
    let mut command = Command::new(program);
    let child = match command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            cheetah_testing::skip(&format!("needs {program}"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let server = Server(child);
    let until = Instant::now() + Duration::from_secs(60);
    // The socket exists a little before it accepts connections.
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}

async fn found(socket: &Path) -> Vec<AvailableNode> {
    let spec: NodeSpec = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
    find(&[spec], &FindOptions::new(session())).await.unwrap()
}

/// Loads, verifies and destroys a drive over a foreign server and a Cheetah node.
async fn drive_over(socket: &Path, layout: Layout) {
    let lab = Lab::new(&[16 * MIB]);
    let mut nodes = found(socket).await;
    assert_eq!(nodes[0].free_bytes, 8 * MIB, "the size is learnt by connecting");
    nodes.extend(lab.found().await);
    let bytes = image(7 * MIB + 1);
    let size = DriveSize::Bytes(bytes.len() as u64);
    let request = CreateRequest { nodes, ..lab.request(layout, size).await };
    let mut file = create(request).await.unwrap();
    load(&mut file, device(&bytes), load_options(), |_| {}).await.unwrap();
    let report = verified(&file).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(status(&file, &session()).await.unwrap().nodes[0].state, NodeState::Foreign);
    let destroyed = destroy(&file, destroy_options(false)).await.unwrap();
    assert_eq!(destroyed.nodes[0].outcome, WipeOutcome::Foreign);
    assert_eq!(lab.exports(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdkit_can_be_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let args = ["--foreground", "--unix", socket.to_str().unwrap(), "memory", "size=8M"];
    let Some(_server) = start("nbdkit", &args, &socket) else { return };
    drive_over(&socket, STRIPE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_nbd_can_be_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, disk) = (dir.path().join("socket"), dir.path().join("disk.raw"));
    std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let args = ["--persistent", "--shared=8", "-f", "raw", "-k", socket.to_str().unwrap(), disk.to_str().unwrap()];
    let Some(_server) = start("qemu-nbd", &args, &socket) else { return };
    drive_over(&socket, Layout::Linear).await;
}
