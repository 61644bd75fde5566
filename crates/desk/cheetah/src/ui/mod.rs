//! Output: tables and sentences for people, one JSON value per line for programs.

pub mod log;
pub mod pace;
mod plain_progress;
pub mod progress;
pub mod stderr;
pub mod stdout;
pub mod table;

use std::fmt::Display;
use std::io::IsTerminal;

use cheetah_device::visible::{self, OneLine, Visible};

use crate::answers::Answer;
use crate::answers::failure::Failed;
use crate::failure::Failure;
use crate::os::can_move_cursor;
pub use progress::Progress;
use stdout::print;

/// Writes a command's output: answers to stdout; progress, warnings and errors to stderr.
#[derive(Debug, Clone, Copy)]
pub struct Ui {
    json: bool,
    terminal: bool,
}

impl Ui {
    /// Writes for people, or with `json` for programs.
    pub fn new(json: bool) -> Self {
        Self { json, terminal: std::io::stderr().is_terminal() && can_move_cursor() }
    }

    /// Returns whether stdout is a terminal that can be drawn on.
    pub fn draws(self) -> bool {
        !self.json && std::io::stdout().is_terminal() && can_move_cursor()
    }

    /// Returns whether stdout is a terminal that shows colours.
    pub fn colours(self) -> bool {
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
    }

    /// Prints a line for people.
    pub fn say(self, line: impl Display) {
        if !self.json {
            answer(line);
        }
    }

    /// Prints a line for people whose control characters are our own; the caller escapes quoted text.
    pub fn say_styled(self, line: impl Display) {
        if !self.json {
            print(line);
        }
    }

    /// Prints the answer: `text` for people, `value` for programs.
    pub fn answer(self, text: impl Display, value: &impl Answer) {
        if !self.json {
            return answer(text);
        }
        print_json(value);
    }

    /// Prints an event that precedes the answer.
    pub fn event(self, text: impl Display, value: &impl Answer) {
        self.answer(text, value);
    }

    /// Prints a note to stderr, in both modes.
    pub fn note(self, line: impl Display) {
        stderr::line(line);
    }

    /// Prints a warning, on one line: it may quote a peer, which must not add lines of its own.
    pub fn warn(self, line: impl Display) {
        stderr::line(format_args!("warning: {}", OneLine(line)));
    }

    /// Prints the error that ended the command, on one line as warnings are.
    pub fn failure(self, failure: &Failure) {
        if self.json {
            print_json(&Failed {
                error: failure.message.as_str().into(),
                exit_code: failure.code as u8,
                kind: failure.kind_name().into(),
                next: failure.next.as_slice().into(),
            });
        }
        if !failure.shown {
            stderr::line(format_args!("error: {}", OneLine(failure)));
        }
    }

    /// Shows the progress of an operation over `total_bytes`.
    pub fn progress(self, what: impl Into<String>, total_bytes: u64) -> Progress {
        Progress::new(what.into(), total_bytes, self.terminal)
    }

    /// Returns whether the output is JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Shows a spinner for an operation of unknown length.
    pub fn spinner(self, what: impl Into<String>) -> Progress {
        Progress::spinner(what.into(), self.terminal)
    }
}

/// Prints an answer for programs to stdout, on one line.
fn print_json(value: &impl Answer) {
    match serde_json::to_string(value) {
        Ok(line) => print(visible::json(&line)),
        Err(error) => stderr::line(format_args!("error: cannot encode the answer as JSON: {error}")),
    }
}

/// Prints text to stdout with its control characters escaped: it may quote evidence or a peer.
fn answer(text: impl Display) {
    print(Visible(text));
}
