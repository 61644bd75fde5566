"""Runs one command to its end or its limit, and measures it."""

import contextlib
import ctypes
import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

from cheetah.bench.system.ran import (
    KILL_S,
    PRINTED_BYTES_MAX,
    READ_BYTES,
    WATCH_S,
    StoppedByWatch,
    TimedOut,
    ToolRun,
)
from cheetah.bench.system.windows import programs
from cheetah.bench.system.windows.kernel32 import (
    KERNEL,
    NTDLL,
    Counted,
    ExtendedLimits,
    MemoryUse,
    failure,
    process_times,
)

__all__ = ["StoppedByWatch", "TimedOut", "Tool", "ToolRun", "run"]

SUSPENDED = 0x00000004
"""CREATE_SUSPENDED."""
LIMITS, KILL_ON_CLOSE = 9, 0x2000
"""JobObjectExtendedLimitInformation, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE."""
ALL_RIGHTS = 0x1FFFFF
"""PROCESS_ALL_ACCESS."""
READY = b"ready"
READY_S = 60.0
"""The longest wait for Python's start."""
ENDED = 1
"""The exit code of a process that was ended."""


def run(argv: Sequence[str], directory: Path, stdout: Path | None = None, limit_s: float = 3600.0) -> ToolRun:
    """Runs a program as `Tool` does. Raises OSError if it cannot be started, TimedOut at the limit."""
    with Tool(argv, directory, stdout) as tool:
        return tool.run(limit_s)


class Tool:
    """A program to be run once in `directory`, with empty input, and output to the file `stdout` or returned. Its process is made ahead:
    Windows' own work for it is not measured, nor is the start of Python for the tasks that it does.

    The tool is in a job of its own, with all processes that it starts, and the job is ended with it: at its limit, when this is left, and
    when this process ends. Only the tool's own process is measured. Raises OSError if there is no such program.
    """

    def __init__(self, argv: Sequence[str], directory: Path, stdout: Path | None = None):
        program = programs.found(argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such program", argv[0])
        self._waits_for_line = programs.is_own(tuple(argv))
        with contextlib.ExitStack() as stack:
            self._job = _job()
            stack.callback(KERNEL.CloseHandle, self._job)
            out: IO[bytes] | int = stack.enter_context(open(stdout, "wb")) if stdout else subprocess.PIPE
            self._child = subprocess.Popen(
                [program, *argv[1:]],
                cwd=directory,
                stdin=subprocess.PIPE if self._waits_for_line else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                # Ctrl-C is this process's alone, which then ends the tool.
                creationflags=SUSPENDED | subprocess.CREATE_NEW_PROCESS_GROUP,
            )
            stack.callback(self._end)
            self._handle = KERNEL.OpenProcess(ALL_RIGHTS, False, self._child.pid)
            stack.callback(KERNEL.CloseHandle, self._handle)
            if not KERNEL.AssignProcessToJobObject(self._job, self._handle):
                raise failure(argv[0])
            self._printed, self._complaint = _Reader(self._child.stdout), _Reader(self._child.stderr)
            if self._waits_for_line:
                self._resume()
            self._exits = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def await_ready(self) -> None:
        """Waits until Python is ready for its task. Raises OSError if it fails."""
        until_s = time.monotonic() + READY_S
        while self._waits_for_line and not self._complaint.holds(READY):
            if self._child.poll() is not None or time.monotonic() > until_s:
                raise OSError(f"Python could not be started: {self._complaint.text()}")
            time.sleep(0.01)

    def run(self, limit_s: float, watch: Callable[[], str] | None = None) -> ToolRun:
        """Runs it to its end. `watch` returns now and then why it must not continue, or "". Raises OSError if it
        cannot be started, TimedOut at the limit, StoppedByWatch if the watch ended it."""
        self.await_ready()
        harness_s, spent_s = time.process_time(), self._cpu_s()
        began_s = time.perf_counter()
        self._go()
        # In pieces: Python learns of Ctrl-C only between them.
        while self._child.poll() is None:
            left_s = began_s + limit_s - time.perf_counter()
            if left_s <= 0:
                raise TimedOut(limit_s, abandoned=not self._end())
            if watch and (why := watch()):
                raise StoppedByWatch(why, abandoned=not self._end())
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(min(left_s, WATCH_S))
        seconds = time.perf_counter() - began_s
        # Its remaining processes would disturb the next measurement.
        self._end()
        read_bytes, written_bytes = self._moved_bytes()
        return ToolRun(
            seconds=seconds,
            cpu_s=max(self._cpu_s() - spent_s, 0.0),
            memory_peak_bytes=self._memory_peak_bytes(),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            exit_code=self._child.returncode,
            harness_cpu_s=time.process_time() - harness_s,
            printed=self._printed.text(),
            complaint=self._complaint.text().removeprefix(READY.decode()).strip(),
        )

    def _go(self) -> None:
        if not self._waits_for_line:
            self._resume()
        elif self._child.stdin:
            with contextlib.suppress(OSError):
                self._child.stdin.write(b"\n")
                self._child.stdin.close()

    def _resume(self) -> None:
        NTDLL.NtResumeProcess(self._handle)

    def _end(self) -> bool:
        """Ends it and all that it has started; returns False if it cannot be ended."""
        KERNEL.TerminateJobObject(self._job, ENDED)
        if self._child.poll() is None:
            with contextlib.suppress(OSError):
                self._child.kill()
        try:
            self._child.wait(KILL_S)
        except subprocess.TimeoutExpired:
            return False
        if self._child.stdin:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        return True

    def _cpu_s(self) -> float:
        times = process_times(self._handle)
        return times[1] if times else 0.0

    def _moved_bytes(self) -> tuple[int | None, int | None]:
        """Returns the bytes that it asked Windows for. Every program makes requests, so none at all means that they are not counted."""
        counted = Counted()
        known = KERNEL.GetProcessIoCounters(self._handle, ctypes.byref(counted))
        if not known or not counted.reads + counted.writes + counted.others:
            return None, None
        return counted.read_bytes, counted.written_bytes

    def _memory_peak_bytes(self) -> int | None:
        use = MemoryUse(cb=ctypes.sizeof(MemoryUse))
        known = KERNEL.K32GetProcessMemoryInfo(self._handle, ctypes.byref(use), use.cb)
        return use.PeakWorkingSetSize if known and use.PeakWorkingSetSize else None


class _Reader:
    """Collects the end of what a pipe brings."""

    def __init__(self, pipe: IO[bytes] | None):
        self._kept = bytearray()
        self._pipe = pipe
        self._thread = threading.Thread(target=self._read, daemon=True)
        if pipe:
            self._thread.start()

    def _read(self) -> None:
        if self._pipe is None:
            return
        with self._pipe:
            while more := os.read(self._pipe.fileno(), READ_BYTES):
                self._kept += more
                if len(self._kept) > PRINTED_BYTES_MAX:
                    del self._kept[: -PRINTED_BYTES_MAX // 2]

    def holds(self, word: bytes) -> bool:
        """Returns whether a word was read."""
        return word in self._kept

    def text(self) -> str:
        """Returns what was read, once the pipe has ended."""
        if self._pipe:
            self._thread.join(KILL_S)
        return bytes(self._kept).decode(errors="replace")


def _job() -> int:
    """Makes a job whose processes end with this one."""
    job = KERNEL.CreateJobObjectW(None, None)
    if not job:
        raise failure()
    limits = ExtendedLimits(LimitFlags=KILL_ON_CLOSE)
    if not KERNEL.SetInformationJobObject(job, LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)):
        raise failure()
    return int(job)
