"""Starts one command, waits for it and reports the resources it used. Run as a program of its own, by `tool`, without
imports.
The kernel counts what a process had in memory before it became the tool as the tool's own peak. The launcher is
therefore as small as Python permits; still, no peak below about 9 MiB can be measured.

    launch.py GO REPORT WORD…

To the descriptor REPORT it writes a line when it is ready, and then waits for a byte from GO: its own start costs nothing
while something is measured. It writes another one with the tool's process id, and at the end one of JSON.
"""

import os
import signal
import sys
import time

_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGHUP, signal.SIGTERM, signal.SIGXFSZ)


def _counted(pid: int) -> str:
    """Returns the bytes that an ended process, and the children it waited for, asked the kernel for."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            lines = dict(line.split(": ") for line in file.read().splitlines())
        return f'"read_bytes": {int(lines["rchar"])}, "written_bytes": {int(lines["wchar"])}'
    except (OSError, KeyError, ValueError):
        # The kernel does not report them for another user's process, such as a setuid program's.
        return '"read_bytes": null, "written_bytes": null'


def main() -> None:
    """Runs the command. SIGTERM ends the tool as well."""
    go, report, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(go, False)
    os.set_inheritable(report, False)
    child = 0

    def end(*_: object) -> None:
        if not child:
            os._exit(1)
        _kill(child)

    signal.signal(signal.SIGTERM, end)
    os.write(report, b"ready\n")
    if not os.read(go, 1):
        # The parent closed the pipe: it has ended, or does not start the command after all.
        return
    # A signal between the tool's start and the record of its id would leave the tool behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    before_s = time.process_time()
    began_ns = time.monotonic_ns()
    child = os.posix_spawn(words[0], words, os.environ, setpgroup=0, setsigdef=_SIGNALS, setsigmask=())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    os.write(report, b"%d\n" % child)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    seconds = (time.monotonic_ns() - began_ns) / 1e9
    counted = _counted(child)
    # Its remaining processes would disturb the next measurement.
    _kill(child)
    _, status, usage = os.wait4(child, 0)
    cpu_s = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    os.write(
        report,
        f'{{"seconds": {seconds:.9f}, "cpu_s": {cpu_s:.6f}, "memory_peak_bytes": {usage.ru_maxrss * 1024}, {counted}, '
        f'"exit_code": {code}, "harness_cpu_s": {time.process_time() - before_s:.6f}}}\n'.encode(),
    )


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


if __name__ == "__main__":
    main()
