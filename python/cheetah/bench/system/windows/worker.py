"""Does what Windows has no program for. Run as a program of its own, by `tool`: it says `ready` on stderr, and begins when it gets a line,
so that its own start is not measured.

    worker.py copy FROM TO        copies a file
    worker.py digest NAME FILE    prints the MD5 or SHA-256 of a file
    worker.py flush FOLDER SINCE  has each file stored that was changed after the file SINCE
"""

import hashlib
import os
import sys

BUFFER_BYTES = 1 << 20
TIMES_S = 2
"""The resolution of FAT's times."""


def copy(source: str, copied: str) -> None:
    """Copies a file, holes included."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with open(source, "rb", buffering=0) as reader, open(copied, "wb", buffering=0) as writer:
        while got := reader.readinto(buffer):
            left = buffer[:got]
            while left:
                left = left[writer.write(left) :]


def digest(name: str, path: str) -> None:
    """Prints the digest of a file."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    state = hashlib.new(name, usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            state.update(buffer[:got])
    print(f"{state.hexdigest()}  {os.path.basename(path)}", flush=True)


def flush(folder: str, since: str) -> None:
    """Has changed files stored. Warns of those that may not be opened: others use them, or they are read-only."""
    denied = 0
    after = os.stat(since).st_mtime - TIMES_S
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            # A tool may set the time of a file that it makes to an earlier one, but not when it was made, which this is here.
            if max(status.st_mtime, status.st_ctime) >= after and not os.path.islink(path):
                try:
                    with open(path, "r+b", buffering=0) as file:
                        os.fsync(file.fileno())
                except PermissionError:
                    denied += 1
    if denied:
        print(f"files that could not be opened to be flushed: {denied}", file=sys.stderr, flush=True)


def main() -> None:
    """Does a task."""
    task, *words = sys.argv[1:]
    work = {"copy": copy, "digest": digest, "flush": flush}[task]
    print("ready", file=sys.stderr, flush=True)
    if not sys.stdin.buffer.readline():
        # The parent has ended, or does not start the task after all.
        return
    try:
        work(*words)
    except OSError as error:
        print(f"{error.filename or words[-1]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(1)
    # Without the interpreter's own end.
    os._exit(0)


if __name__ == "__main__":
    main()
