//! Support for tests: stock servers as child processes on Unix sockets, and a model to compare with.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Zeroing};
use cheetah_nbd::client::ClientConfig;
use cheetah_nbd::{Address, NbdUri};
use tempfile::TempDir;

/// Nothing here takes this long, unless the machine stalls.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed when dropped.
pub struct Peer {
    child: Child,
    dir: TempDir,
}

impl Peer {
    /// Starts `program`; `{socket}` and `{dir}` in its arguments are replaced. `None`, with a message, if it is not
    /// installed.
    pub fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        Self::start_in(tempfile::tempdir().unwrap(), program, arguments)
    }

    /// The same with the files in `dir`.
    pub fn start_in(dir: TempDir, program: &str, arguments: &[&str]) -> Option<Self> {
        let socket = dir.path().join("nbd.sock");
        let fill = |text: &&str| {
            text.replace("{socket}", socket.to_str().unwrap()).replace("{dir}", dir.path().to_str().unwrap())
        };
        let spawned = Command::new(program).args(arguments.iter().map(fill)).stdin(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                cheetah_testing::skip(&format!("needs {program}"));
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
        let mut peer = Self { child, dir };
        peer.wait_until_it_listens(&socket);
        Some(peer)
    }

    fn wait_until_it_listens(&mut self, socket: &Path) {
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status} before it listened");
            }
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How to connect to its export.
    pub fn config(&self, export: &str) -> ClientConfig {
        config(&self.socket(), export)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How to connect to a server on a Unix socket: for writing, and with a longer time-out than any operation here needs.
pub fn config(socket: &Path, export: &str) -> ClientConfig {
    let uri = NbdUri::new(Address::Unix(socket.to_owned()), export);
    ClientConfig { name: "node1".into(), writable: true, timeout: PATIENCE, ..ClientConfig::new(uri) }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for word in bytes.chunks_mut(4) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        // The lower half of the state repeats soon.
        word.copy_from_slice(&state.to_be_bytes()[..word.len()]);
    }
    bytes
}

/// Does the same things to the device and to memory, and expects the same content.
pub async fn behaves_like_memory(device: &dyn Device, rounds: u64) {
    let size = device.geometry().size;
    let model = Memory::new(vec![0; size as usize]);
    device.zero(ByteRange::new(0, size), Zeroing::default()).await.unwrap();
    let random =
        |round: u64, what: u64, below: u64| (round * 7919 + what * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15) % below;
    for round in 0..rounds {
        let len = [1, 511, 4096, 5000, 70_000, 3 << 20][(round % 6) as usize].min(size);
        let range = ByteRange::new(random(round, 1, size - len + 1), len);
        let fua = round % 5 == 0;
        match round % 4 {
            0 => {
                let how = Zeroing { keep_allocated: round % 8 == 0, fua, fast_only: false };
                device.zero(range, how).await.unwrap();
                model.zero(range, how).await.unwrap();
            }
            1 => {
                let mut data = Data::from(pattern(len as usize / 2, round));
                data.append(Data::zeros(len - data.len()));
                device.write(range.offset, data.clone(), fua).await.unwrap();
                model.write(range.offset, data, fua).await.unwrap();
            }
            _ => {
                let data = Data::from(pattern(len as usize, round));
                device.write(range.offset, data.clone(), fua).await.unwrap();
                model.write(range.offset, data, fua).await.unwrap();
            }
        }
        device.cache(range).await.unwrap();
        let around = ByteRange::between(range.offset.saturating_sub(1000), (range.end() + 1000).min(size));
        let read = device.read(around).await.unwrap();
        assert!(read.into_bytes() == model.read(around).await.unwrap().into_bytes(), "round {round}: {around}");
    }
    device.flush().await.unwrap();
    let whole = device.read(ByteRange::new(0, size)).await.unwrap();
    assert!(whole.into_bytes() == model.snapshot(), "the whole content differs");
    check_extents(device, &model).await;
}

/// Checks that the extents cover the device, and that zero extents are zero.
async fn check_extents(device: &dyn Device, model: &Memory) {
    let size = device.geometry().size;
    let range = ByteRange::new(513, size - 1000);
    let extents = device.extents(range).await.unwrap();
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), range.len);
    let mut at = range.offset;
    for extent in extents {
        let data = model.read(ByteRange::new(at, extent.len)).await.unwrap();
        assert!(!extent.zero || data.is_zero(), "{extent:?} at {at} is not zero");
        at += extent.len;
    }
}
