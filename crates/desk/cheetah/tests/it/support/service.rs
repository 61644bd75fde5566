//! A process that runs until it is asked to stop.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::run::program;

/// Nothing here takes this long; a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `cheetah --json VERB …` that has said it is ready.
pub struct Service {
    child: Option<Child>,
    lines: mpsc::Receiver<String>,
    scratch: TempDir,
    pub ready: Value,
}

impl Service {
    #[track_caller]
    pub fn start(args: &[&str]) -> Self {
        Self::start_on(args, "ready")
    }

    /// Starts it, and waits for its first line, which must be this event.
    #[track_caller]
    pub fn start_on(args: &[&str], event: &str) -> Self {
        let mut command = program();
        command.arg("--json").args(args);
        Self::spawn(command, event).unwrap_or_else(|why| panic!("cheetah {}: {why}", args.join(" ")))
    }

    /// Any command of ours.
    pub fn spawn(command: Command, event: &str) -> Result<Self, String> {
        let scratch = tempfile::tempdir().unwrap();
        let stderr = fs::File::create(scratch.path().join("stderr")).unwrap();
        Self::spawn_in(scratch, command, event, stderr.into())
    }

    /// The same, with the caller's stderr, which is not shown.
    pub fn spawn_with_stderr(command: Command, event: &str, stderr: Stdio) -> Result<Self, String> {
        Self::spawn_in(tempfile::tempdir().unwrap(), command, event, stderr)
    }

    fn spawn_in(scratch: TempDir, mut command: Command, event: &str, stderr: Stdio) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let lines = read_lines(child.stdout.take().unwrap());
        let mut service = Self { child: Some(child), lines, scratch, ready: Value::Null };
        let first = service.next_line();
        let ready = first.and_then(|line| serde_json::from_str(&line).ok()).unwrap_or(Value::Null);
        if ready["event"] != event {
            return Err(format!("{ready} {}", service.stderr()));
        }
        service.ready = ready;
        Ok(service)
    }

    /// The next line it prints; `None` when it has ended.
    pub fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("not a word for a minute; stderr: {}", self.stderr()),
        }
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.scratch.path().join("stderr")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends it a signal. After a signal that stops the process, this returns when all of its threads have stopped,
    /// which takes a while on a busy machine.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let started = Instant::now();
        while signal == Signal::STOP && !self.has_halted() {
            assert!(started.elapsed() < PATIENCE, "it does not halt");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_halted(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // The state comes behind the name, which is in brackets.
        let state = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        tasks
            .flatten()
            .all(|task| fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| state(&stat) == Some('T')))
    }

    /// Stops it, and returns its exit code and the last it said.
    pub fn stop(mut self, signal: Signal) -> (Option<i32>, Value) {
        self.signal(signal);
        self.wait()
    }

    /// Waits for it to end by itself.
    pub fn wait(&mut self) -> (Option<i32>, Value) {
        let mut last = Value::Null;
        while let Some(line) = self.next_line() {
            last = serde_json::from_str(&line).unwrap_or(last);
        }
        let code = self.child.take().unwrap().wait().unwrap().code();
        (code, last)
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.take().unwrap().wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read_lines(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// A mount, unmounted when dropped even if the test fails.
pub struct Mounted {
    service: Option<Service>,
    pub dir: PathBuf,
    pub file: PathBuf,
}

impl Mounted {
    /// `cheetah mount SOURCE DIR MORE…`
    #[track_caller]
    pub fn new(source: &str, dir: &str, more: &[&str]) -> Self {
        let mut args = vec!["mount", source, dir];
        args.extend(more);
        let service = Service::start(&args);
        let file = PathBuf::from(service.ready["file"].as_str().expect("the file's path"));
        Self { service: Some(service), dir: dir.into(), file }
    }

    /// Stops it with Ctrl-C's signal; it must unmount and end well.
    #[track_caller]
    pub fn unmount(mut self) {
        let (code, last) = self.service.take().unwrap().stop(Signal::INT);
        assert_eq!(code, Some(0), "{last}");
        assert!(!is_mounted(&self.dir), "{} is still mounted", self.dir.display());
    }

    /// The process that mounts it.
    pub fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    /// Reads all of the file.
    pub fn read(&self) -> Vec<u8> {
        let mut out = Vec::new();
        fs::File::open(&self.file).unwrap().read_to_end(&mut out).unwrap();
        out
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.signal(Signal::CONT);
            service.signal(Signal::INT);
            let started = Instant::now();
            while is_mounted(&self.dir) && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if is_mounted(&self.dir) {
            for name in ["fusermount3", "umount"] {
                if let Some(program) = super::need::find(name) {
                    let flags: &[&str] = if name == "umount" { &["-l"] } else { &["-u", "-z"] };
                    let _ = Command::new(program).args(flags).arg(&self.dir).output();
                }
            }
        }
    }
}

pub fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = dir.to_str().unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(dir))
}
