"""The delay line between two interfaces, for kernels without netem: builds and starts `lab/relay`."""

import os
import signal
import subprocess
import time

from lab.namespace import LabError

HERE = os.path.dirname(os.path.abspath(__file__))
CRATE = os.path.join(HERE, "relay")
TARGET = os.path.join(os.path.dirname(HERE), "target", "lab-relay")
BINARY = os.path.join(TARGET, "release", "lab-relay")

# The cap on bytes waiting in each direction, so that a sender without congestion control cannot fill memory.
QUEUE_KIB = 65536


def build():
    """Builds the relay where it is missing or older than its source; returns its path."""
    sources = [os.path.join(CRATE, "src", name) for name in os.listdir(os.path.join(CRATE, "src"))]
    newest = max(os.path.getmtime(path) for path in sources)
    if not os.path.exists(BINARY) or os.path.getmtime(BINARY) < newest:
        argv = ["cargo", "build", "--release", "--locked", "--manifest-path", os.path.join(CRATE, "Cargo.toml")]
        argv += ["--target-dir", TARGET]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise LabError("cargo is not installed; the relay needs it once, to be built") from None
        if done.returncode != 0:
            raise LabError(f"building the relay failed:\n{done.stderr.strip()}")
        # Cargo leaves the binary's date alone when nothing that matters to it has changed.
        os.utime(BINARY)
    return BINARY


def real_time_prefix():
    """`chrt` where it is allowed: a relay that waits for the processor adds a delay nobody asked for."""
    allowed = subprocess.run(["chrt", "-f", "50", "true"], capture_output=True, check=False).returncode == 0
    return ["chrt", "-f", "50"] if allowed else []


def start(namespace, pairs, delay_us, log_path, die_with_parent=True):
    """Starts a relay in `namespace` between each pair of interfaces, `delay_us` one way; returns its pid. What it
    has to say (frames dropped) goes to `log_path`."""
    argv = [build(), "--delay-us", str(delay_us), "--queue-kib", str(QUEUE_KIB)]
    argv += [f"{left}:{right}" for left, right in pairs]
    prefix = ["setpriv", "--pdeathsig", "TERM"] if die_with_parent else ["setsid"]
    argv = prefix + namespace.command(real_time_prefix() + argv)
    with open(log_path, "w+", encoding="utf-8") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        ready = process.stdout.readline()
        process.stdout.close()
        if ready.strip() != "ready":
            process.kill()
            process.wait()
            log.seek(0)
            raise LabError(f"the relay did not start: {log.read().strip()}")
    return process.pid


def stop(pid):
    """Ends the relay `pid`, if that is still what it is."""
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", "")) != "lab-relay":
            return
        os.kill(pid, signal.SIGTERM)
        for _ in range(200):
            os.kill(pid, 0)
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    return
            except ChildProcessError:
                pass  # started by an earlier call of the command line: not ours to reap
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
