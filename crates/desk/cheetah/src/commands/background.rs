//! Running a verb in the background, until another verb ends it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use crate::answers::Answer;
use crate::answers::failure::Failed;
use crate::failure::{Context, Failure, Result};
use crate::os;
use crate::ui::Ui;

/// Leaves the terminal, so that closing it does not end this process.
pub fn leave_terminal() -> Result<()> {
    os::leave_terminal().context("cannot detach from the terminal")
}

/// Closes stderr: its reader may be waiting for end of file, and this process may last for days.
pub fn leave_stderr() -> Result<()> {
    crate::ui::stderr::flush(crate::ui::stderr::FLUSH_TIMEOUT);
    os::leave_stderr().context("cannot redirect stderr")
}

/// Runs the same command again with `--detached` in place of `--background`, and waits until it is ready. `words` makes the
/// message for the user of what the command then printed.
pub fn start<Ready: Answer + DeserializeOwned>(words: impl FnOnce(&Ready) -> String, ui: Ui) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let args = std::env::args_os().skip(1).filter(|arg| arg != "--background" && arg != "--json");
    let mut command = Command::new(program);
    command.args(["--json"]).args(args).arg("--detached");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the process in the background")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the process in the background")?;
    }
    if let Ok(ready) = serde_json::from_str::<Ready>(&line) {
        ui.answer(format_args!("{} (process {})", words(&ready), child.id()), &ready);
        return Ok(());
    }
    let code = child.wait().context("cannot wait for the process in the background")?.code();
    let Ok(Failed { error: message, .. }) = serde_json::from_str(&line) else {
        return Err(Failure::failed(
            "the process in the background ended without a reason; run it without --background",
        ));
    };
    let failure = match code {
        Some(2) => Failure::misused(message),
        Some(3) => Failure::evidence(message),
        _ => Failure::failed(message),
    };
    // The child has written it to stderr, which both processes share.
    Err(failure.already_shown())
}
