"""A lab from its user's view: machines reach each other, and nothing is left behind. Needs root."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from lab import check, network, relay, state
from lab.link import BURST_MS, Link
from lab.namespace import LabError, Namespace
from lab.network import Lab

HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = os.path.join(os.path.dirname(HERE), "lab.py")

pytestmark = pytest.mark.usefixtures("root")

RECEIVE = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
    s.bind(("10.77.0.1", 9)); s.settimeout(60); print("ready", flush=True)
    n = 0
    while s.recv(100) != b"end": n += 1
    print(n)
"""
SEND = """
import socket, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for i in range(2000):
        s.sendto(b"x" * 50, ("10.77.0.1", 9))
        if i % 50 == 49: time.sleep(0.001)
    for _ in range(50): s.sendto(b"end", ("10.77.0.1", 9))
"""
# The kernel of a machine that is reached refuses the connection.
REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), float(sys.argv[2]))
except ConnectionRefusedError:
    print("yes")
except OSError:
    print("no")
"""
# The kernel's stamp of the last arrival, which a delayed reader does not affect.
LAST = """
import socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    s.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
    s.bind((sys.argv[1], 9)); print("ready", flush=True)
    s.settimeout(60)
    for _ in range(int(sys.argv[2])): control = s.recvmsg(2000, 100)[1][0]
    seconds, nanoseconds = struct.unpack("qq", control[2])
    print(seconds * 10**9 + nanoseconds)
"""
# The time before the first frame. The kernel holds the whole burst at once, so that a delayed sender does not space it.
BURST = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.SOL_SOCKET, 32, 1 << 23)  # SO_SNDBUFFORCE
    print(time.time_ns())
    for _ in range(int(sys.argv[2])): s.sendto(b"x" * 1472, (sys.argv[1], 9))
"""
FRAME_BITS = 8 * 1514


def traces(lab: Lab) -> list[str]:
    """The parts of a lab that exist: namespaces, files, processes."""
    found = [entry for entry in os.listdir("/run/netns") if entry.startswith(lab.name + "-")]
    return found + [entry for entry in os.listdir(state.STATE_DIR) if entry.startswith(lab.name + ".")]


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if its parent has not yet waited for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    """Runs `lab.py`."""
    return subprocess.run([sys.executable, COMMAND, *argv], capture_output=True, text=True, check=False, timeout=180)


@pytest.fixture
def delay_line() -> None:
    """Skips the test if the kernel has no netem and the relay cannot be built."""
    with Lab(1) as probe:
        has_netem = probe._has_netem()
    if not has_netem:
        try:
            relay.build()
        except LabError as error:
            pytest.skip(f"the kernel has no netem, and {error}")


def test_machines_reach_each_other_and_nothing_is_left_behind() -> None:
    with Lab(2, rate="100mbit") as lab:
        assert check.round_trip_ms(lab, 10) > 0
        assert check.rate_mbit(lab, 0.5) > 0
        assert traces(lab)
    assert traces(lab) == []


def test_a_parted_lab_lets_nothing_through_until_it_is_whole_again() -> None:
    def reaches(machine: Namespace, address: str, patience_s: int = 60) -> bool:
        return machine.run([sys.executable, "-c", REACH, address, str(patience_s)]).strip() == "yes"

    with Lab(nodes=3, rate=None) as lab:
        lab.part([2, 3])
        assert reaches(lab.examiner, "10.77.0.11") and reaches(lab.nodes[1].namespace, "10.77.0.13")
        assert not reaches(lab.examiner, "10.77.0.12", 1) and not reaches(lab.nodes[2].namespace, "10.77.0.11", 1)
        lab.rejoin()
        assert reaches(lab.examiner, "10.77.0.13") and reaches(lab.nodes[1].namespace, "10.77.0.11")


def test_a_delay_is_added(delay_line: None) -> None:
    with Lab(2, links={2: Link(delay_us=20_000)}, rtt="0ms") as lab:
        near = check.round_trip_ms(lab, 10)
        lab.nodes.reverse()
        far = check.round_trip_ms(lab, 10)
    assert far >= 40 and near < far


def test_a_lossy_link_loses_its_share(delay_line: None) -> None:
    with Lab(1, link=Link(rate_bits=None, loss_ppm=200_000)) as lab:
        with subprocess.Popen(
            lab.examiner.command([sys.executable, "-c", RECEIVE]), stdout=subprocess.PIPE, text=True
        ) as receiver:
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            lab.nodes[0].namespace.run([sys.executable, "-c", SEND])
            received = int(receiver.stdout.readline())
    assert 1450 <= received <= 1750


def burst_s(sender: Namespace, receiver: Namespace, address: str, frames: int) -> float:
    """The seconds from the start of a burst of `frames` to the arrival of its last frame."""
    argv = [sys.executable, "-c", LAST, address, str(frames)]
    with subprocess.Popen(receiver.command(argv), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        began_ns = int(sender.run([sys.executable, "-c", BURST, address, str(frames)]))
        return (int(process.stdout.readline()) - began_ns) / 1e9


def test_a_spaced_link_keeps_frames_apart(delay_line: None) -> None:
    # A token bucket would pass some at once; ten frames of 1514 bytes at 1 Mbit/s take 109 ms from first to last.
    with Lab(1, link=Link(1_000_000, 1_000, spaced=True)) as lab:
        assert burst_s(lab.examiner, lab.nodes[0].namespace, lab.nodes[0].address, 10) >= 0.1


def test_a_full_queue_drops_frames() -> None:
    with Lab(1, link=Link(rate_bits=8_000, queue_bytes=2_000)) as lab:
        lab.nodes[0].namespace.run([sys.executable, "-c", SEND])
        shown = lab.nodes[0].namespace.run(["tc", "-s", "qdisc", "show", "dev", "eth0"])
    dropped = int(shown.split("dropped ")[1].split(",")[0])
    assert dropped > 1000


def test_nodes_share_the_queue_of_the_examiners_link_and_have_none_of_their_own() -> None:
    with Lab(2, rate=None, examiner_link=Link(rate_bits=8_000, queue_bytes=2_000)) as lab:
        # A sender drops what it has for an address that is not resolved yet, and a full queue drops the question.
        for node in lab.nodes:
            node.namespace.run([sys.executable, "-c", REACH, lab.examiner_address, "60"])
        for node in lab.nodes:
            node.namespace.run([sys.executable, "-c", SEND])
        shown = lab.switch.run(["tc", "-s", "qdisc", "show", "dev", "examiner"])
        own = lab.examiner.run(["tc", "qdisc", "show", "dev", "eth0"])
        others = [lab.switch.run(["tc", "qdisc", "show", "dev", f"port{node.number}"]) for node in lab.nodes]
        others += [node.namespace.run(["tc", "qdisc", "show", "dev", "eth0"]) for node in lab.nodes]
    dropped = int(shown.split("dropped ")[1].split(",")[0])
    assert dropped > 3000, "packets of both nodes"
    assert "tbf" in own and all("tbf" not in other for other in others)


def test_two_labs_are_up_at_once() -> None:
    with Lab(1) as first, Lab(1) as second:
        assert first.name != second.name
        assert check.round_trip_ms(first, 10) > 0
        assert check.round_trip_ms(second, 10) > 0
    assert traces(first) == traces(second) == []


def test_down_ends_the_processes_in_the_lab() -> None:
    with Lab(1) as lab:
        sleeper = subprocess.Popen(lab.nodes[0].command(["sleep", "600"]))
        while sleeper.pid not in lab.nodes[0].namespace.processes():
            time.sleep(0.01)
    assert sleeper.wait(60) == -signal.SIGTERM


OWNER = """
import subprocess, sys, time
from lab.network import Lab
lab = Lab(1, rtt="2ms", name=sys.argv[1])
lab.up()
sleeper = subprocess.Popen(lab.nodes[0].command(["sleep", "600"]))
while sleeper.pid not in lab.nodes[0].namespace.processes(): time.sleep(0.01)
relay = lab._relay.pid if lab._relay else sleeper.pid
print(lab.name, lab._guard.pid, sleeper.pid, relay, flush=True)
time.sleep(600)
"""


SWEEPER = """
from lab import network
while True: network.sweep()
"""


def environment() -> dict[str, str]:
    """The environment of a Python process that imports the lab."""
    return {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(HERE))}


def owner(name: str) -> subprocess.Popen[str]:
    """A process that owns a lab with a delay and a running process in it; it prints their names and ids."""
    argv = [sys.executable, "-c", OWNER, name]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment())


def is_gone(name: str) -> bool:
    """Whether there is neither a namespace nor a file of the lab with that full name."""
    files = [entry for entry in os.listdir(state.STATE_DIR) if entry.startswith(name + ".")]
    return not network.namespaces_of(name) and not files


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until a condition is true."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_lab_with_a_killed_owner_is_removed(delay_line: None) -> None:
    with owner(f"killed{os.getpid()}") as process:
        assert process.stdout is not None
        name, guard, *inside = process.stdout.readline().split()
        assert name not in network.sweep(), "a lab whose owner lives is left alone"
        process.kill()
    until(lambda: is_gone(name), "namespaces and files are left behind")
    until(lambda: all(has_ended(int(pid)) for pid in [*inside, guard]), "what runs in it is left behind")


def test_a_lab_with_a_killed_guard_is_swept_by_the_next(delay_line: None) -> None:
    with owner(f"unguarded{os.getpid()}") as process:
        assert process.stdout is not None
        name, guard, *inside = process.stdout.readline().split()
        os.kill(int(guard), signal.SIGKILL)
        process.kill()

    def is_gone_after_another() -> bool:
        # Another test's lab may sweep at this moment, so that this one need not.
        with Lab(1):
            return is_gone(name)

    until(is_gone_after_another, "the next lab that comes up sweeps")
    until(lambda: all(has_ended(int(pid)) for pid in inside), "what runs in it is left behind")


def test_a_lab_killed_while_coming_up_is_removed(delay_line: None) -> None:
    for number, after_s in enumerate((0.15, 0.3, 0.5)):
        name = network.full_name(f"early{os.getpid()}.{number}")
        with owner(name.removeprefix(f"{network.PREFIX}-")) as process:
            time.sleep(after_s)
            process.kill()

        def is_swept(name: str = name) -> bool:
            network.sweep()
            return is_gone(name)

        until(is_swept, "namespaces and files are left behind")


def test_labs_come_up_and_go_down_while_another_process_sweeps() -> None:
    with subprocess.Popen([sys.executable, "-c", SWEEPER], env=environment()) as sweeper:
        try:
            for number in range(5):
                with Lab(1):
                    name = f"swept{os.getpid()}.{number}"
                    assert command("--name", name, "up", "--nodes", "1").returncode == 0
                    assert command("--name", name, "down").returncode == 0
        finally:
            sweeper.kill()


def test_namespaces_without_a_state_file_are_swept() -> None:
    stray = Namespace(f"cheetah-lab-stray{os.getpid()}-n1")
    # Another test's lab may sweep at this moment.
    with contextlib.suppress(LabError):
        stray.create()
    network.sweep()
    assert not stray.exists()


def test_up_enter_and_down_from_the_command_line() -> None:
    name = f"test{os.getpid()}"
    assert command("--name", name, "up", "--nodes", "1", "--link", "1:queue=64KiB").returncode == 0
    try:
        assert command("sweep").stdout == "", "a lab that is to stay is left alone"
        again = command("--name", name, "up", "--nodes", "1")
        assert (again.returncode, again.stderr.count("\n")) == (1, 1) and "up already" in again.stderr
        entered = command("--name", name, "enter", "1", "ip", "-brief", "address")
        assert "10.77.0.11/24" in entered.stdout
    finally:
        assert command("--name", name, "down").returncode == 0
    gone = command("--name", name, "down")
    assert (gone.returncode, gone.stderr) == (1, f"lab.py: no lab named {name} is up\n")


@pytest.mark.parametrize(
    "argv",
    [
        ["up", "--nodes", "0"],
        ["up", "--nodes", "many"],
        ["up", "--rate", "fast"],
        ["up", "--delay", "10ms", "--rtt", "20ms"],
        ["up", "--nodes", "1", "--link", "2:loss=1%"],
        ["up", "--link", "delay=1ms"],
        ["up", "--examiner", "rate=1gbit,delay=1ms"],
        ["enter", "examiner", "true"],
        ["--name", "../x", "up"],
    ],
)
def test_bad_arguments_are_one_sentence(argv: list[str]) -> None:
    done = command("--name", f"none{os.getpid()}", *argv)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("lab.py: ") and done.stderr.count("\n") == 1


def test_a_failed_lab_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(2)
    monkeypatch.setattr(Link, "token_bucket", lambda self: ["no-such-qdisc"])
    with pytest.raises(LabError):
        lab.up()
    assert traces(lab) == []


# A busy machine makes what follows slower, and never faster. On an idle one, `lab.py check` measures how near a link comes to what was
# requested.


def test_a_round_trip_takes_at_least_the_requested_time(delay_line: None) -> None:
    with Lab(2, rate="100mbit", rtt="0.3ms", links={2: Link(100_000_000, 10_000)}) as lab:
        for rtt_ms in (0.3, 20):
            assert check.round_trip_ms(lab, 30) >= rtt_ms
            lab.nodes.reverse()


@pytest.mark.parametrize("delay_us", [0, 10_000])
def test_a_link_passes_a_queue_at_most_at_the_requested_rate(delay_line: None, delay_us: int) -> None:
    # A transfer by TCP needs both ends to run in time. A queue that the kernel holds needs its own timers only.
    frames, rate_bits = 600, 100_000_000
    at_once_bits = rate_bits * BURST_MS // 1000
    with Lab(1, link=Link(rate_bits, delay_us, queue_bytes=1 << 20)) as lab:
        # An address that is not resolved yet would hold back the burst, and drop most of it.
        check.round_trip_ms(lab, 1)
        taken_s = burst_s(lab.nodes[0].namespace, lab.examiner, lab.examiner_address, frames)
    least_s = (frames * FRAME_BITS - at_once_bits) / rate_bits + delay_us / 1e6
    # The kernel rounds a rate.
    assert taken_s >= least_s * 0.999


@pytest.mark.timing
def test_round_trips_and_rates_match_the_request(delay_line: None) -> None:
    missed = [finding.line() for finding in check.findings(3.0) if not finding.within()]
    assert missed == []
