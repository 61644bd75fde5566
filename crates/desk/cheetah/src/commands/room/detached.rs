//! Starting an enrolment server that outlives the command.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_kit::file::of_its_owner_alone;
use cheetah_room::{Room, Serving};
use tokio::time::sleep;

use crate::failure::{Context, Failure, Result};
use crate::os;

/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts `cheetah room serve` in the background, and waits until it listens. If another process starts one at the same
/// time, that one is returned.
pub async fn start(room: &Room, listen: Option<SocketAddr>) -> Result<Serving> {
    let program = std::env::current_exe().context("cannot find the cheetah program")?;
    let log = room.log_path();
    let mut options = OpenOptions::new();
    let log_file = of_its_owner_alone(options.write(true).create(true).truncate(true))
        .open(&log)
        .context(format_args!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(["room", "serve", "--detached", "--room", room.name()]);
    if let Some(listen) = listen {
        command.args(["--listen", &listen.to_string()]);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
    os::start_apart(&mut command);
    let mut child = command.spawn().context("cannot start cheetah room serve")?;
    let started = Instant::now();
    let mut ended = false;
    loop {
        if let Some(serving) = room.serving()?
            && (ended || serving.pid == child.id())
        {
            return Ok(serving);
        }
        // Another process may have claimed the room without listening yet.
        if (ended && !room.is_claimed()?) || started.elapsed() > PATIENCE {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let why = said.lines().next_back().unwrap_or("no message").trim_start_matches("error: ").to_owned();
            return Err(Failure::failed(format!(
                "the process that lets machines in did not start ({why}); the invitation is registered: run cheetah room \
                 serve"
            )));
        }
        // It ends at once if another one serves already.
        ended = child.try_wait().is_ok_and(|status| status.is_some());
        sleep(PAUSE).await;
    }
}
