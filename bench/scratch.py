"""Where a run keeps its files, and what it has to take down at its end."""

import contextlib
import os
import shutil
import tempfile

from bench.process import Process
from bench.units import MIB

RAM_DIR = "/dev/shm"
DISK_DIR = os.environ.get("BENCH_DISK_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "out"))


class Scratch:
    """Temporary files in RAM and on disk, and child processes; all of it gone when the `with` block is left."""

    def __enter__(self):
        self._exits = contextlib.ExitStack()
        self._count = 0
        try:
            self.dir = self._make_dir(tempfile.gettempdir())
            self.ram_dir = self._make_dir(RAM_DIR)
            os.makedirs(DISK_DIR, exist_ok=True)
            self.disk_dir = self._make_dir(DISK_DIR)
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(self, *problem):
        return self._exits.__exit__(*problem)

    def _make_dir(self, parent):
        path = tempfile.mkdtemp(prefix="cheetah-bench-", dir=parent)
        self._exits.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def at_exit(self, action, *arguments):
        """Does this at the end, last come first."""
        self._exits.callback(action, *arguments)

    def enter(self, context):
        """Enters a context manager that is left at the end."""
        return self._exits.enter_context(context)

    def unique(self, stem):
        """A name nobody else in this run has."""
        self._count += 1
        return f"{stem}-{self._count}"

    def path(self, stem):
        """A path of its own for a small file or a socket."""
        return os.path.join(self.dir, self.unique(stem))

    def make_dir(self, stem):
        """A new, empty directory."""
        path = self.path(stem)
        os.mkdir(path)
        return path

    def start(self, name, argv):
        """Starts a process that is ended when this is left."""
        process = Process(name, argv, self.path("log"))
        self.at_exit(process.stop)
        return process

    def child(self):
        """A scratch space within this one, for what lives through one round only; use with `with`."""
        return Scratch()


def write_random(path, size_bytes):
    """Fills a file with random bytes: no zero page, nothing to compress. Returns the path."""
    with open(path, "wb") as file:
        left = size_bytes
        while left > 0:
            left -= file.write(os.urandom(min(MIB, left)))
    return path


def drop_caches():
    """Makes the machine forget every file it has in memory."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
