//! The processes of the demonstration: this program, run as a user would.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cheetah_device::Size;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::failure::{Context, Failure, Result};
use crate::os;

/// The longest time for a process to get ready or to end; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `cheetah --json` as a command. Its process ends with this one. Ctrl-C does not reach it, so that processes
/// are stopped in order.
fn cheetah(dir: &Path) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    // A key and a ledger of its own, since a demonstration leaves nothing behind.
    command.env("CHEETAH_KEY", dir.join("custody.key")).env("XDG_STATE_HOME", dir.join("state"));
    // And a room of its own.
    command.env("XDG_CONFIG_HOME", dir.join("config")).env_remove("CHEETAH_ROOM");
    command.current_dir(dir).arg("--json").stdin(Stdio::null()).kill_on_drop(true);
    os::keep_from_ctrl_c(&mut command);
    Ok(command)
}

/// Runs a verb to its end, and returns its answer.
pub async fn run(dir: &Path, args: &[&str]) -> Result<Value> {
    let output = cheetah(dir)?.args(args).output().await.context("cannot run this program again")?;
    let answer = last_value(&output.stdout);
    if output.status.success() {
        return Ok(answer);
    }
    let why = answer["error"].as_str().map(str::to_owned);
    let why = why.unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    let message = format!("cheetah {}: {why}", args.join(" "));
    Err(if output.status.code() == Some(3) { Failure::evidence(message) } else { Failure::failed(message) })
}

fn last_value(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null)
}

/// A verb that runs until it is stopped: `node`, `mount`.
pub struct Service {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its `ready` event.
    pub ready: Value,
}

impl Service {
    /// Starts the verb, and waits until it is ready.
    pub async fn start(dir: &Path, args: &[&str]) -> Result<Self> {
        let what = format!("cheetah {}", args.join(" "));
        let mut command = cheetah(dir)?;
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context(&what)?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::failed("a process without stdout"))?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let first = first.map_err(|_| Failure::failed(format!("{what}: not ready after a minute")))?.context(&what)?;
        let ready: Value = first.as_deref().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
        if let Some(why) = ready["error"].as_str() {
            return Err(Failure::failed(format!("{what}: {why}")));
        }
        if first.is_none() {
            let output = child.wait_with_output().await.context(&what)?;
            return Err(Failure::failed(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim())));
        }
        // Read to the end, so that the pipe never fills.
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stderr).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    tracing::info!("{line}");
                }
            });
        }
        Ok(Self { child, lines, ready })
    }

    /// Kills it (SIGKILL).
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill a process")
    }

    /// Stops it (SIGTERM), and returns its last event.
    pub async fn stop(mut self) -> Result<Value> {
        if let Some(pid) = self.child.id() {
            os::stop(pid).context("cannot stop a process")?;
        }
        let mut last = Value::Null;
        let end = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                if let Ok(value) = serde_json::from_str(&line) {
                    last = value;
                }
            }
            self.child.wait().await
        };
        tokio::time::timeout(PATIENCE, end)
            .await
            .map_err(|_| Failure::failed("a process does not stop"))?
            .context("cannot wait for a process")?;
        Ok(last)
    }
}

/// A free port of this machine.
pub const ANY_PORT: &str = "127.0.0.1:0";

/// Starts a node that listens at `address`.
pub async fn node(dir: &Path, name: &str, memory: Size, address: &str) -> Result<Service> {
    let memory = memory.0.to_string();
    Service::start(dir, &["node", "--name", name, "--memory", &memory, "--listen", address]).await
}
