"""An examiner's work on an image with unmodified tools of The Sleuth Kit: list everything, extract and hash some
files."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Sequence

from bench.tools.bytes_read import bytes_read, strace
from bench.tools.limited import LimitedRun, run_limited
from cheetah.bench.failure import BenchError

LISTING = ("fls", "-r", "-m", "/")
# $1 is the image; the addresses come on stdin.
EXTRACTION = 'set -o pipefail; while read -r address; do icat "$1" "$address" | sha256sum; done'
UNLIMITED_S = 3600.0


def regular_files(listing: str) -> list[tuple[str, int]]:
    """Returns address and size of each named, existing file with content in a listing: main streams only, without
    files of the file system itself."""
    found = []
    for line in listing.splitlines():
        fields = line.split("|")
        if len(fields) < 11 or not fields[3].startswith("r/r"):
            continue
        path, address, size = fields[1], fields[2], int(fields[6])
        hidden = path.startswith(("/$", "/lost+found")) or "$OrphanFiles" in path
        if size and not hidden and not path.endswith(("(deleted)", "(deleted-realloc)", "($FILE_NAME)")):
            found.append((address, size))
    return found


def as_input(addresses: Iterable[str]) -> bytes:
    """Returns addresses, one per line."""
    return "".join(f"{address}\n" for address in addresses).encode()


def listing(path: str, limit_s: float, out: str) -> LimitedRun:
    """Lists every file of the image into the file `out`."""
    return run_limited([*LISTING, path], limit_s, out=out)


def extraction(path: str, addresses: Sequence[str], limit_s: float) -> LimitedRun:
    """Extracts files one after the other and hashes them; prints the hashes."""
    return run_limited(["bash", "-c", EXTRACTION, "extract", path], limit_s, as_input(addresses))


def hashes_of(outcome: LimitedRun) -> list[str]:
    """Returns the hashes printed by an extraction."""
    return [line.split()[0] for line in outcome.printed.decode().splitlines()]


def check_listing(contender: str, out: str, expected_sha256: str) -> None:
    """Raises BenchError unless the listing equals the local one, byte for byte."""
    with open(out, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected_sha256:
            raise BenchError(f"{contender}: the listing in {out} is not that of the local image")


def check_hashes(contender: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Raises BenchError unless the files equal the local ones."""
    if list(found) != list(expected):
        wrong = sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
        raise BenchError(f"{contender}: {wrong} of {len(expected)} files are not those of the local image")


def traced_listing(path: str, out: str) -> int:
    """Lists the image into `out`; returns the bytes read for it, each counted once."""
    with tempfile.TemporaryDirectory(prefix="cheetah-bench-") as directory:
        run_limited([*strace(directory), *LISTING, path], UNLIMITED_S, out=out)
        return bytes_read(directory, path)


def traced_extraction(path: str, addresses: Sequence[str]) -> tuple[list[str], int]:
    """Extracts files; returns their hashes, and the bytes of the image read for them, each counted once."""
    with tempfile.TemporaryDirectory(prefix="cheetah-bench-") as directory:
        argv = [*strace(directory), "bash", "-c", EXTRACTION, "extract", path]
        outcome = run_limited(argv, UNLIMITED_S, as_input(addresses))
        return hashes_of(outcome), bytes_read(directory, path)
