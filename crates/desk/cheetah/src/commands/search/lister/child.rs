//! The process that lists files. It reads the source through its pipes, so it needs neither keys nor the network.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use cheetah_device::around::{is_local, reason};
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::message::Message;
use crate::commands::python::SAFE_PATH;
use crate::failure::{Context as _, Failure, Result};
use crate::os;

/// The module that it runs.
pub const MODULE: &str = "cheetah.places";
/// How long it may neither read nor say anything: a hostile file system can keep The Sleuth Kit busy without an end.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);
/// The longest line that it says.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// The most bytes that it reads at once.
const READ_BYTES_MAX: u64 = 16 << 20;

/// The variables of the environment that it gets: others may hold secrets, and what it reads is hostile.
const KEPT: [&str; 10] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "TMPDIR",
    "VIRTUAL_ENV",
];

/// How it ended before it had listed everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// A signal ended it.
    Killed {
        /// The number of the signal.
        signal: i32,
    },
    /// It ended by itself, with this exit code.
    Exited {
        /// The code.
        code: i32,
    },
    /// It said something that is not understood, and was stopped.
    Malformed,
    /// It neither read nor said anything for too long, and was stopped.
    Silent,
}

/// What it said next.
pub enum Said {
    /// A message.
    Message(Message),
    /// Nothing more.
    Died(Death),
}

/// The process.
pub struct Lister {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    line: Vec<u8>,
    silence_max: Duration,
}

impl Lister {
    /// Starts it with the first line that it is told. It ends with this value, and may be silent for a while.
    pub async fn start(python: &OsStr, begin: &[u8], silence_max: Duration) -> Result<Self> {
        let mut command = Command::new(python);
        command.args([SAFE_PATH, "-m", MODULE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let kept = KEPT.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value)));
        // NumPy's library for matrices would start a thread for each processor, and is not used.
        command.env_clear().envs(kept).env("OPENBLAS_NUM_THREADS", "1").kill_on_drop(true);
        os::keep_from_ctrl_c(&mut command);
        let starting = "cannot start what lists files";
        let mut child = command.spawn().context(starting)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else { return Err(Failure::failed(starting)) };
        let mut lister = Self { child, to, from: BufReader::new(from), line: Vec::new(), silence_max };
        // If it has died, that is noticed when it says nothing.
        let _ = lister.tell(&[begin, b"\n"]).await;
        Ok(lister)
    }

    /// Waits for its next message. Answers what it reads.
    pub async fn next(&mut self, device: &DynDevice) -> Result<Said> {
        loop {
            match self.message().await? {
                Said::Message(Message::Read(offset, len)) if len <= READ_BYTES_MAX => {
                    self.answer(ByteRange::new(offset, len), device).await?;
                }
                Said::Message(Message::Read(..)) => return Ok(Said::Died(self.malformed().await?)),
                said => return Ok(said),
            }
        }
    }

    /// Waits for its next message, if there is no source that it could read.
    pub async fn next_alone(&mut self) -> Result<Said> {
        match self.message().await? {
            Said::Message(Message::Read(..)) => Ok(Said::Died(self.malformed().await?)),
            said => Ok(said),
        }
    }

    async fn message(&mut self) -> Result<Said> {
        self.line.clear();
        let mut limited = (&mut self.from).take(LINE_BYTES_MAX);
        let Ok(read) = timeout(self.silence_max, limited.read_until(b'\n', &mut self.line)).await else {
            self.stop().await?;
            return Ok(Said::Died(Death::Silent));
        };
        if read.is_err() || !self.line.ends_with(b"\n") {
            return Ok(Said::Died(match self.line.len() as u64 {
                LINE_BYTES_MAX => self.malformed().await?,
                _ => death(self.child.wait().await.context("waiting for what lists files")?),
            }));
        }
        match serde_json::from_slice(&self.line) {
            Ok(message) => Ok(Said::Message(message)),
            Err(_) => Ok(Said::Died(self.malformed().await?)),
        }
    }

    /// Stops it: what it says is not understood.
    pub async fn malformed(&mut self) -> Result<Death> {
        self.stop().await?;
        Ok(Death::Malformed)
    }

    async fn stop(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot stop what lists files")
    }

    /// Reads for it. What cannot be read is no failure of the listing, which says what is missing.
    async fn answer(&mut self, range: ByteRange, device: &DynDevice) -> Result<()> {
        let (state, content) = match device.read(range).await {
            Ok(data) => (0u8, data.into_bytes()),
            Err(error) if is_local(&error) || !range.fits(device.geometry().size) => {
                (1, reason(&error).as_bytes().to_vec().into())
            }
            Err(error) => return Err(Error::device("listing files")(error).into()),
        };
        let len = u32::try_from(content.len()).unwrap_or(0).to_le_bytes();
        // If it has died, that is noticed when it says nothing.
        let _ = self.tell(&[&[state], &len, &content]).await;
        Ok(())
    }

    async fn tell(&mut self, parts: &[&[u8]]) -> std::io::Result<()> {
        for part in parts {
            self.to.write_all(part).await?;
        }
        self.to.flush().await
    }
}

fn death(status: ExitStatus) -> Death {
    match os::killed_by(status) {
        Some(signal) => Death::Killed { signal },
        None => Death::Exited { code: status.code().unwrap_or(-1) },
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_lister_that_says_nothing_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lister");
        std::fs::write(&path, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut lister = Lister::start(path.as_os_str(), b"{}", Duration::ZERO).await.unwrap();
        assert!(matches!(lister.message().await.unwrap(), Said::Died(Death::Silent)));
        assert!(lister.child.try_wait().unwrap().is_some(), "it is gone");
    }
}
