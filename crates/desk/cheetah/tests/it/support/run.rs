//! Running a program to its end.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::need;

/// The exit code and the output of a program.
pub struct Ran {
    what: String,
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// The program, signing with a key that is not the user's own, and with a ledger that is not, either.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cheetah"));
    command.env("CHEETAH_KEY", concat!(env!("CARGO_TARGET_TMPDIR"), "/custody.key"));
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

/// `cheetah --json ARGS…`
pub fn cheetah(args: &[&str]) -> Ran {
    let mut command = program();
    command.arg("--json").args(args);
    run(command)
}

/// `cheetah --json ARGS…`, signing with the key in a file.
pub fn cheetah_signing(key: &Path, args: &[&str]) -> Ran {
    let mut command = program();
    command.env("CHEETAH_KEY", key).arg("--json").args(args);
    run(command)
}

/// `cheetah ARGS…`, as people run it.
pub fn cheetah_plain(args: &[&str]) -> Ran {
    let mut command = program();
    command.args(args);
    run(command)
}

/// Another program.
pub fn tool(name: &str, args: &[&str]) -> Ran {
    tool_in(Path::new("/"), name, args)
}

/// Another program, in a directory.
pub fn tool_in(dir: &Path, name: &str, args: &[&str]) -> Ran {
    let path = need::find(name).unwrap_or_else(|| panic!("there is no {name}"));
    let mut command = Command::new(path);
    command.current_dir(dir).args(args);
    run(command)
}

pub fn run(command: Command) -> Ran {
    run_with_stderr(command, Stdio::piped())
}

/// With a stderr of the caller's.
pub fn run_with_stderr(mut command: Command, stderr: Stdio) -> Ran {
    let what = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(stderr).output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { what, code: output.status.code(), stdout: output.stdout, stderr }
}

/// Where grep finds a pattern in a file, and what. `how` says what kind of pattern it is, in options.
pub fn grep(how: &str, pattern: &str, file: &str) -> Vec<(u64, Vec<u8>)> {
    let mut command = Command::new("grep");
    command.env("LC_ALL", "C").args([how, "--", pattern, file]);
    let ran = run(command);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    let found = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let offset = std::str::from_utf8(&line[..colon]).unwrap().parse().unwrap();
        (offset, line[colon + 1..].to_vec())
    };
    ran.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(found).collect()
}

impl Ran {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Must have ended with 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.ended_with(0)
    }

    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\nstdout: {}\nstderr: {}", self.what, self.out(), self.stderr);
        self
    }

    /// Must have failed with this exit code, in one sentence on stderr that holds each of `words`.
    #[track_caller]
    pub fn says(self, code: i32, words: &[&str]) -> Self {
        let ran = self.ended_with(code);
        let errors: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "one sentence, not: {}", ran.stderr);
        let lower = ran.stderr.to_lowercase();
        for word in words {
            assert!(lower.contains(&word.to_lowercase()), "no '{word}' in: {}", ran.stderr);
        }
        assert!(!lower.contains("panicked"), "{}", ran.stderr);
        ran
    }

    /// The last JSON value it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        let out = self.out();
        if let Ok(value) = serde_json::from_str(&out) {
            return value;
        }
        let value = out.lines().rev().find_map(|line| serde_json::from_str(line).ok());
        value.unwrap_or_else(|| panic!("{} printed no JSON: {out}{}", self.what, self.stderr))
    }
}
