"""The two builds: their programs, and what runs with each."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
from collections.abc import Iterator

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.verbs import binary

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
KEPT = os.path.join(ROOT, "target", "guard")


@dataclasses.dataclass(frozen=True)
class Build:
    """A program, and its name in tables."""

    name: str
    path: str

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Makes every command of the harness run this program."""
        before = os.environ.get("CHEETAH")
        os.environ["CHEETAH"] = self.path
        try:
            yield
        finally:
            if before is None:
                del os.environ["CHEETAH"]
            else:
                os.environ["CHEETAH"] = before


def present() -> Build:
    """Returns the build to judge."""
    return Build("this build", binary())


def earlier(named: str | None) -> Build:
    """Returns the build to compare with: a program, a commit, or by default the newest release, which is the newest tag.

    The program of a commit is built once, and kept in `target/guard`.
    """
    if named and os.access(named, os.X_OK) and os.path.isfile(named):
        return Build("earlier", os.path.abspath(named))
    revision = named or _newest_release()
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        raise BenchError(f"--before {revision}: neither a program nor a commit of this repository")
    path = os.path.join(KEPT, commit, "cheetah")
    if not os.path.exists(path):
        _build(commit, path)
    return Build("earlier", path)


def _newest_release() -> str:
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v*")
    if not tag:
        raise BenchError("there is no release to compare with yet: name a program or a commit with --before")
    return tag


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _build(commit: str, path: str) -> None:
    """Builds a commit in a work tree of its own. The target directory is kept, for the next commit."""
    print(f"guard: building {commit[:12]}, once", flush=True)
    tree = os.path.join(KEPT, "tree")
    if not os.path.isdir(tree):
        run(["git", "-C", ROOT, "worktree", "add", "--detach", "--force", tree, commit])
    run(["git", "-C", tree, "checkout", "--quiet", "--detach", "--force", commit])
    run([os.path.join(tree, "scripts/build-static")], timeout_s=7200)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(os.path.join(tree, "target/static/cheetah"), path)


def version(build: Build) -> str:
    """Returns what the program says of itself."""
    printed = run([build.path, "--version"])
    found = re.search(r"\S+$", printed.strip())
    return found.group(0) if found else "unknown"
