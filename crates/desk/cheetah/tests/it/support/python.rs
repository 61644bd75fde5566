//! Verbs that hand over to Python.

use std::os::unix::fs::PermissionsExt as _;

use super::Desk;
use super::run::{Ran, program, run};

/// `cheetah ARGS…` with this Python.
pub fn with_python(python: &str, args: &[&str]) -> Ran {
    let mut command = program();
    command.env("CHEETAH_PYTHON", python).args(args);
    run(command)
}

/// A stand-in for Python that has all packages, prints its process id, $CHEETAH_BINARY and its arguments, and ends with 3.
pub fn pretended(desk: &Desk) -> String {
    let path = desk.file(
        "python",
        b"#!/bin/sh\n[ \"$2\" = -c ] && exit 0\necho \"$$\"\necho \"$CHEETAH_BINARY\"\nprintf '[%s]' \"$@\"\nexit 3\n",
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}
