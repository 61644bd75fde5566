"""Builds small Rust programs that only the lab and the benchmarks need, each a crate of its own, on first use.

`python3 -m lab.crate` in the folder above builds all of them at once: tests would wait for it.
"""

from __future__ import annotations

import os
import subprocess

from lab.namespace import LabError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CRATES = {"lab-relay": "workshop/lab/relay", "lab-disk": "workshop/lab/disk", "bench-packets": "workshop/bench/packets"}
"""The folder of each program."""


def build(name: str) -> str:
    """Builds a program of `CRATES` if it is missing or older than its source; returns its path."""
    crate = os.path.join(ROOT, CRATES[name])
    target = os.path.join(ROOT, "target", name)
    binary = os.path.join(target, "release", name)
    sources = [os.path.join(crate, "src", file) for file in os.listdir(os.path.join(crate, "src"))]
    newest = max(os.path.getmtime(path) for path in sources)
    if not os.path.exists(binary) or os.path.getmtime(binary) < newest:
        argv = ["cargo", "build", "--release", "--locked", "--manifest-path", os.path.join(crate, "Cargo.toml")]
        try:
            done = subprocess.run([*argv, "--target-dir", target], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise LabError(f"cargo is not installed; it is needed once, to build {name}") from None
        if done.returncode != 0:
            raise LabError(f"building {name} failed:\n{done.stderr.strip()}")
        # Cargo leaves the binary's date unchanged if no change affects it.
        os.utime(binary)
    return binary


if __name__ == "__main__":
    for program in CRATES:
        build(program)
