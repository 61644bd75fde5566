//! Virtual disks (QCOW2, VMDK, VHD, VHDX), read through a `qemu-nbd` of our own.
//!
//! qemu-nbd opens the image read-only and serves it on a socket in a folder that only we can enter. Dropping the device
//! kills it. If we are killed, our connections close, and a qemu-nbd without `--persistent` ends with its last client.
//! A second, idle client stays connected all the time, so that qemu-nbd does not end while the first one reconnects.
//! Only in the tens of milliseconds before our first connection could qemu-nbd be left behind. It has a process group
//! of its own, so that Ctrl-C in a terminal reaches only us.
//!
//! Images are not trusted: [`check`] refuses those that would make qemu read other files, and those whose files are cut
//! short: qemu reads zeros beyond the end of a file.

mod check;
mod checked;
mod extent;
mod file;
mod qcow2;
mod vhdx;
mod vmdk;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::uri::{Address, NbdUri};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub use self::check::Virtual;

use self::checked::Checked;
use crate::note::ImageNote;
use crate::os;
use crate::source::{OpenOptions, SourceFile};
use cheetah_error::{Error, Result};

/// The program, found on the PATH.
const PROGRAM: &str = "qemu-nbd";

/// The minimum time-out for qemu-nbd to open an image.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which its socket is tried meanwhile.
const START_POLL: Duration = Duration::from_millis(10);

/// The maximum length of a line from qemu-nbd.
const SAID_LEN_MAX: u64 = 64 << 10;

/// A virtual disk, and the process that reads it.
pub struct Qemu {
    client: Client,
    // Never used, so it never times out: with it, qemu-nbd outlives the other client's connections.
    _stays: Client,
    // Dropped in this order: the clients before the process.
    _child: Child,
    _folder: TempDir,
    checked: Checked,
}

impl Qemu {
    /// Opens the image at `path`, whose format was detected.
    ///
    /// # Errors
    ///
    /// If the image refers to files that are not parts of it, is encrypted or damaged, or qemu-nbd is not installed; or if this
    /// system has no socket for it.
    pub async fn open(path: &Path, format: Virtual, options: &OpenOptions) -> Result<Self> {
        if !os::HAS_UNIX_SOCKETS {
            return Err(Error::failed(format!(
                "{}: {format} images are read through {PROGRAM}, which is not done on this system; convert it to a raw image",
                path.display()
            )));
        }
        let path = std::path::absolute(path)
            .map_err(|error| Error::io(format_args!("finding the folder of {}", path.display()), &error))?;
        let image = path.clone();
        let checked = tokio::task::spawn_blocking(move || check::check(&image, format))
            .await
            .map_err(|error| Error::failed(format!("checking {}: {error}", path.display())))??;
        let folder = tempfile::Builder::new()
            .prefix("cheetah-")
            .tempdir()
            .map_err(|error| Error::io("making a folder for a socket", &error))?;
        let socket = folder.path().join("nbd");
        let named = os::path_in_utf8(&path, folder.path())
            .map_err(|error| Error::io(format_args!("linking to {}", path.display()), &error))?;
        let mut child = start(&named, format, &socket, options.connections)?;
        let said = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(listen(stderr, path.display().to_string(), said.clone()));
        }
        let config = ClientConfig {
            name: path.display().to_string().into(),
            connections: options.connections,
            timeout: options.timeout,
            ..ClientConfig::new(NbdUri::new(Address::Unix(socket), ""))
        };
        let stays = connect(&mut child, ClientConfig { connections: 1, ..config.clone() }, &path, &said).await?;
        let client = connect(&mut child, config, &path, &said).await?;
        Ok(Self { client, _stays: stays, _child: child, _folder: folder, checked })
    }

    /// The files that the image consists of, the one that was named first.
    pub fn files(&self) -> &[SourceFile] {
        &self.checked.files
    }

    /// What is in doubt about the image although it can be read.
    pub fn notes(&self) -> &[ImageNote] {
        &self.checked.notes
    }
}

fn start(path: &Path, format: Virtual, socket: &Path, connections: usize) -> Result<Child> {
    let mut command = Command::new(PROGRAM);
    // One for the idle client; and a broken connection may still count while its replacement arrives.
    let shared = (connections.clamp(1, 16) + 1) * 2;
    command.args(["--read-only", "--shared", &shared.to_string(), "--socket"]).arg(socket);
    command.arg("--").arg(format.node(path)?);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("LC_ALL", "C").kill_on_drop(true);
    os::apart_from_terminal(&mut command).spawn().map_err(|error| match cheetah_device::program::find(PROGRAM) {
        // Whatever the system says: that permission is denied, if a folder of PATH cannot be read.
        None => Error::failed(format!(
            "{}: {format} images are read through {PROGRAM}, which is not installed; install qemu-utils (Debian, Ubuntu), \
             qemu-img (Fedora) or qemu-tools (openSUSE)",
            path.display()
        )),
        Some(_) => Error::io(format_args!("starting {PROGRAM}"), &error),
    })
}

/// Connects as soon as the process listens.
async fn connect(child: &mut Child, config: ClientConfig, path: &Path, said: &Mutex<String>) -> Result<Client> {
    let started = Instant::now();
    let patience = config.timeout.max(START_TIMEOUT);
    loop {
        let error = match Client::connect(config.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if child.try_wait().map_err(|error| Error::io(format_args!("waiting for {PROGRAM}"), &error))?.is_some() {
            // Its last line may still be in the pipe.
            tokio::time::sleep(START_POLL).await;
            let said = said.lock();
            let why = if said.is_empty() { "it ended without a message" } else { &said };
            return Err(Error::failed(format!("{}: {PROGRAM} cannot open it: {why}", path.display())));
        }
        if started.elapsed() > patience {
            let waited_s = patience.as_secs();
            return Err(Error::failed(format!(
                "{}: {PROGRAM} did not open it in {waited_s} s: {error}",
                path.display()
            )));
        }
        tokio::time::sleep(START_POLL).await;
    }
}

/// Logs qemu-nbd's lines and keeps the last one. Reads to the end, so that qemu-nbd never blocks on the pipe.
async fn listen(stderr: impl AsyncRead + Unpin, name: String, last: Arc<Mutex<String>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stderr).take(SAID_LEN_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim();
                tracing::warn!("{PROGRAM} for {name}: {text}");
                if !text.is_empty() {
                    *last.lock() = text.trim_start_matches("qemu-nbd: ").to_owned();
                }
            }
        }
    }
}

impl Layer for Qemu {
    type Below = Client;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &Client {
        &self.client
    }
}

#[cfg(test)]
mod tests {
    use cheetah_device::{ByteRange, Device as _};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_process_outlives_connections_and_ends_with_the_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.vhdx");
        let made = Command::new("qemu-img").args(["create", "-q", "-f", "vhdx"]).arg(&path).arg("8M").status().await;
        if !made.is_ok_and(|status| status.success()) {
            cheetah_testing::skip("needs qemu-img (make test installs it)");
            return;
        }
        let opened = Qemu::open(&path, Virtual::Vhdx, &OpenOptions::default()).await.unwrap();
        let Qemu { client, _stays, mut _child, _folder, .. } = opened;
        drop(client);
        assert!(tokio::time::timeout(Duration::from_millis(500), _child.wait()).await.is_err(), "it ended");
        let uri = NbdUri::new(Address::Unix(_folder.path().join("nbd")), "");
        let client = Client::connect(ClientConfig::new(uri)).await.unwrap();
        assert!(client.read(ByteRange::new(0, 512)).await.unwrap().is_zero());
        // Simulates that this process is killed: qemu-nbd gets no signal.
        drop((client, _stays));
        assert!(tokio::time::timeout(START_TIMEOUT, _child.wait()).await.unwrap().is_ok());
    }
}
