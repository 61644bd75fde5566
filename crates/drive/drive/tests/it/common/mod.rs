//! A lab in one process: nodes on loopback, an image, and a directory for the drive file.

pub mod searches;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::DynDevice;
use cheetah_device::memory::Memory;
use cheetah_drive::create::{CreateRequest, create};
use cheetah_drive::destroy::DestroyOptions;
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::load::{LoadOptions, load};
use cheetah_drive::verify::{VerifyOptions, VerifyReport, verify};
use cheetah_drive::{AvailableNode, DriveFile, DriveSize, HashChoice, Hashes, Layout, NodeSpec, OpenOptions};
use cheetah_node::{Node, NodeConfig, Scan};

pub use super::session;

pub const MIB: u64 = 1 << 20;
pub const UNIT: u64 = 64 << 10;
pub const STRIPE: Layout = Layout::Stripe { unit: UNIT };
/// The time-out of every operation; never reached unless the machine stalls.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Lab {
    pub dir: tempfile::TempDir,
    pub nodes: Vec<Node>,
}

/// Starts a node on a free port, with its control API on the next one.
pub fn start_node(memory: u64) -> Node {
    start_node_with(memory, None)
}

/// The same, with this number of threads for jobs.
pub fn start_node_with(memory: u64, scan: Option<Scan>) -> Node {
    for _ in 0..100 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        if free.port() == u16::MAX {
            continue;
        }
        if let Ok(node) = Node::start(NodeConfig { scan, ..NodeConfig::new(memory, free) }) {
            return node;
        }
    }
    panic!("no two neighbouring ports are free");
}

/// Starts a node at the address of a previous one.
pub fn start_node_at(memory: u64, address: SocketAddr) -> Node {
    Node::start(NodeConfig::new(memory, address)).unwrap()
}

/// A node as it is named on the command line.
pub fn spec(node: &Node) -> NodeSpec {
    node.nbd_address().to_string().parse().unwrap()
}

/// A session without keys.
pub fn options(writable: bool) -> OpenOptions {
    OpenOptions { writable, prefetch_budget: 0, ..OpenOptions::new(session()) }
}

/// Returns `len` bytes, a third of them in runs of zeros; the others do not repeat within 8 MiB.
pub fn image(len: u64) -> Vec<u8> {
    let mut state = len | 1;
    let mut bytes = vec![0; len as usize];
    // A word at a time: without optimisation, a step for each byte is much of the time of these tests.
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    for run in bytes.chunks_mut(100_000).skip(1).step_by(3) {
        run.fill(0);
    }
    bytes
}

pub fn device(bytes: &[u8]) -> DynDevice {
    Arc::new(Memory::new(bytes.to_vec()))
}

pub fn destroy_options(force: bool) -> DestroyOptions {
    DestroyOptions { force, session: session() }
}

pub fn load_options() -> LoadOptions {
    LoadOptions {
        source_name: "image.raw".into(),
        sector_size: None,
        hashes: HashChoice::ALL,
        force_lease: false,
        session: session(),
    }
}

pub fn verify_options(at_nodes: bool) -> VerifyOptions {
    VerifyOptions { hashes: HashChoice::ALL, signed: Hashes::default(), session: session(), at_nodes, lend: None }
}

pub async fn verified(file: &DriveFile) -> VerifyReport {
    verify(file, verify_options(false), |_| {}).await.unwrap()
}

impl Lab {
    pub fn new(memories: &[u64]) -> Self {
        let nodes = memories.iter().map(|memory| start_node(*memory)).collect();
        Self { dir: tempfile::tempdir().unwrap(), nodes }
    }

    /// A lab whose nodes lend their processors, too: two threads each.
    pub fn lending(memories: &[u64]) -> Self {
        let nodes =
            memories.iter().map(|memory| start_node_with(*memory, NonZeroUsize::new(2).map(Scan::ordinary))).collect();
        Self { dir: tempfile::tempdir().unwrap(), nodes }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("case42.drive")
    }

    /// The names in the lab's directory, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub async fn found(&self) -> Vec<AvailableNode> {
        let specs: Vec<_> = self.nodes.iter().map(spec).collect();
        find(&specs, &FindOptions::new(session())).await.unwrap()
    }

    pub async fn found_at(&self, node: &Node) -> AvailableNode {
        find(&[spec(node)], &FindOptions::new(session())).await.unwrap().remove(0)
    }

    pub async fn request(&self, layout: Layout, size: DriveSize) -> CreateRequest {
        let nodes = self.found().await;
        CreateRequest {
            path: self.path(),
            nodes,
            layout,
            size,
            parts: 1,
            thin: false,
            spares: Vec::new(),
            seal: None,
            session: session(),
        }
    }

    pub async fn create(&self, layout: Layout, size: u64) -> DriveFile {
        create(self.request(layout, DriveSize::Bytes(size)).await).await.unwrap()
    }

    /// Creates a drive of the image's size, and loads the image.
    pub async fn loaded(&self, layout: Layout, bytes: &[u8]) -> DriveFile {
        let mut file = self.create(layout, bytes.len() as u64).await;
        load(&mut file, device(bytes), load_options(), |_| {}).await.unwrap();
        file
    }

    /// The number of exports on all nodes.
    pub fn exports(&self) -> usize {
        self.nodes.iter().map(|node| node.status().exports.len()).sum()
    }
}

/// The ranges of node `index` in a drive striped evenly over `nodes`.
pub fn stripe_ranges(index: u64, nodes: u64, size: u64) -> Vec<(u64, u64)> {
    let units = (0..size.div_ceil(UNIT)).filter(|unit| unit % nodes == index);
    units.map(|unit| (unit * UNIT, UNIT.min(size - unit * UNIT))).collect()
}
