//! Stderrs to which nothing can be written.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Write as _};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;

use super::run::{Ran, program, run_with_stderr};
use super::service::Service;

/// A defect of a process's stderr.
#[derive(Debug, Clone, Copy)]
pub enum Unwritable {
    /// `2>/dev/full`: each write fails with ENOSPC.
    FullDisk,
    /// The reader of the pipe has gone: each write fails with EPIPE.
    ClosedPipe,
    /// The reader of the pipe has stopped: each write blocks.
    StuckPipe,
    /// `2>&-`
    Closed,
}

impl Unwritable {
    pub const ALL: [Self; 4] = [Self::FullDisk, Self::ClosedPipe, Self::StuckPipe, Self::Closed];

    /// `cheetah --json ARGS…` with such a stderr. The other value must live as long as the process.
    fn command(self, args: &[&str]) -> (Command, Stdio, Option<PipeReader>) {
        let mut command = program();
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (stderr, reader) = match self {
            Self::FullDisk => (Stdio::from(full()), None),
            Self::ClosedPipe => (Stdio::from(std::io::pipe().unwrap().1), None),
            Self::StuckPipe => {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
                rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
                while writer.write(b"\n").is_ok() {}
                rustix::fs::fcntl_setfl(&writer, flags).unwrap();
                (Stdio::from(writer), Some(reader))
            }
            Self::Closed => {
                let ours = program();
                command = Command::new("sh");
                command.args(["-c", "exec \"$0\" \"$@\" 2>&-"]).arg(ours.get_program());
                command.envs(ours.get_envs().filter_map(|(key, value)| Some((key, value?))));
                (Stdio::from(File::open("/dev/null").unwrap()), None)
            }
        };
        command.arg("--json").args(args);
        (command, stderr, reader)
    }

    /// Starts a server, and waits until it is ready.
    #[track_caller]
    pub fn start(self, args: &[&str]) -> (Service, Option<PipeReader>) {
        let (command, stderr, reader) = self.command(args);
        let service = Service::spawn_with_stderr(command, "ready", stderr);
        (service.unwrap_or_else(|why| panic!("{self:?}: cheetah {}: {why}", args.join(" "))), reader)
    }

    /// Runs a command to its end.
    pub fn run(self, args: &[&str]) -> Ran {
        let (command, stderr, _reader) = self.command(args);
        run_with_stderr(command, stderr)
    }
}
