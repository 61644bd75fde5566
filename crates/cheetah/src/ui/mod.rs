//! How the program talks: people read tables and sentences, programs read one JSON value a line.

pub mod log;
pub mod progress;
pub mod stderr;
pub mod table;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Failure, Result};
pub use progress::Progress;

/// Where a command's words go. Answers go to stdout; progress, warnings and errors to stderr.
#[derive(Debug, Clone, Copy)]
pub struct Ui {
    json: bool,
    terminal: bool,
}

impl Ui {
    /// For people, or with `json` for programs.
    pub fn new(json: bool) -> Self {
        Self { json, terminal: std::io::stderr().is_terminal() }
    }

    /// Whether stdout is a terminal that shows colours.
    pub fn colours(self) -> bool {
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
    }

    /// One line for people.
    pub fn say(self, line: impl Display) {
        if !self.json {
            answer(line);
        }
    }

    /// The answer: `text` to people, `value` to programs.
    pub fn answer(self, text: impl Display, value: &impl Serialize) {
        if !self.json {
            return answer(text);
        }
        match serde_json::to_string(value) {
            Ok(line) => answer(line),
            Err(error) => stderr::line(format_args!("error: the answer cannot be put as JSON: {error}")),
        }
    }

    /// A step on the way to the answer, which programs may want to follow too.
    pub fn event(self, text: impl Display, value: &impl Serialize) {
        self.answer(text, value);
    }

    /// Something to know that is no answer, for people and beside a program's answer alike.
    pub fn note(self, line: impl Display) {
        stderr::line(line);
    }

    /// Something to know that stops nothing.
    pub fn warn(self, line: impl Display) {
        stderr::line(format_args!("warning: {line}"));
    }

    /// Why the command failed.
    pub fn failure(self, failure: &Failure) {
        if self.json {
            let value = serde_json::json!({ "error": failure.message, "exit_code": failure.code as u8 });
            answer(value);
        }
        if !failure.shown {
            stderr::line(format_args!("error: {failure}"));
        }
    }

    /// Shows how far long work has come.
    pub fn progress(self, what: impl Into<String>, total_bytes: u64) -> Progress {
        Progress::new(what.into(), total_bytes, self.terminal)
    }

    /// The same, for work that itself says how it goes ([`Progress::show`]).
    pub fn detailed(self, what: impl Into<String>, total_bytes: u64) -> Progress {
        Progress::detailed(what.into(), total_bytes, self.terminal)
    }

    /// Whether a program reads the answer.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Shows that something is under way whose length nobody knows.
    pub fn spinner(self, what: impl Into<String>) -> Progress {
        Progress::spinner(what.into(), self.terminal)
    }
}

/// How long to wait for stderr to take what was said, where something must come after it.
pub const STDERR_PATIENCE: Duration = Duration::from_secs(1);

/// The first error in writing to stdout.
static STDOUT_ERROR: OnceLock<std::io::Error> = OnceLock::new();

/// Writes a line to stdout, after all that was said on stderr before. A reader that has gone away
/// (`cheetah status | head -1`) is no error.
fn answer(line: impl Display) {
    stderr::flush(STDERR_PATIENCE);
    let mut stdout = std::io::stdout();
    if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = STDOUT_ERROR.set(error);
    }
}

/// Ends the output: fails if an answer could not be written, for a script must not take an empty file for one.
pub fn finish() -> Result<()> {
    match STDOUT_ERROR.get() {
        Some(error) => {
            Err(Failure::failed(format!("the work is done, but its answer cannot be written to stdout: {error}")))
        }
        None => Ok(()),
    }
}
