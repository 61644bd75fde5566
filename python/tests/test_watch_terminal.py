"""`cheetah watch --terminal` on a terminal: keys, its size, and the terminal as it was afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
from conftest import PATIENCE_S

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
COLOUR = b"\x1b[38;5;"
# A sequence of control characters, or text.
TOKEN = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|([^\x1b]+)")
WELL = "The only machine answers"


class Terminal:
    """A terminal on which `cheetah watch --terminal` runs."""

    def __init__(self, binary: str, node: str, **environment: str) -> None:
        self._ours, self._theirs = os.openpty()
        termios.tcsetwinsize(self._theirs, (24, 80))
        self._mode = termios.tcgetattr(self._theirs)
        argv = [binary, "watch", "--terminal", "--timeout", "60", "--nodes", node]
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.child = subprocess.Popen(
            argv,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=subprocess.PIPE,
            env=inherited | {"TERM": "xterm-256color"} | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.written = b""

    def press(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._ours, keys)

    def size(self, rows: int, columns: int) -> None:
        """Gives the terminal another size; what was drawn before is forgotten."""
        self.written = b""
        termios.tcsetwinsize(self._theirs, (rows, columns))

    def screen(self) -> str:
        """What a person sees."""
        cells: dict[tuple[int, int], str] = {}
        row = column = 1
        for values, command, text in TOKEN.findall(self.written):
            if command == b"H":
                row, column = map(int, values.split(b";"))
            elif command == b"J":
                cells.clear()
            for letter in text.decode("utf-8", "ignore"):
                cells[row, column] = letter
                column += 1
        bottom, right = (max([at[axis] for at in cells], default=0) for axis in (0, 1))
        return "\n".join(
            "".join(cells.get((row, column), " ") for column in range(1, right + 1)) for row in range(1, bottom + 1)
        )

    def until(self, *wanted: str | bytes) -> None:
        """Waits until one of these is on the screen (text), or was written (bytes)."""
        begun = time.monotonic()
        while not any(one in (self.screen() if isinstance(one, str) else self.written) for one in wanted):
            assert time.monotonic() < begun + PATIENCE_S, f"never: {wanted!r} in\n{self.screen()}"
            self._read(1)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], seconds)
        if ready:
            self.written += os.read(self._ours, 65536)
        return bool(ready)

    def ended(self) -> tuple[int, str]:
        """Waits for its end, with the terminal as it was. Returns its exit code and its stderr."""
        _, stderr = self.child.communicate(timeout=PATIENCE_S)
        while self._read(0):
            pass
        assert self.written.count(LEAVE) == 1
        assert self.written.rfind(LEAVE) > self.written.rfind(ENTER)
        assert self.written.rfind(SHOW_CURSOR) > self.written.rfind(HIDE_CURSOR)
        assert termios.tcgetattr(self._theirs) == self._mode
        return self.child.returncode, stderr.decode()

    def close(self) -> None:
        """Ends it, whatever has become of it."""
        self.child.kill()
        self.child.wait(PATIENCE_S)
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def node(binary: str) -> Iterator[str]:
    argv = [binary, "--json", "node", "--memory", "16MiB", "--listen", "127.0.0.1:0"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        yield json.loads(child.stdout.readline())["nbd"]
    finally:
        child.kill()
        child.wait(PATIENCE_S)


def opened(binary: str, node: str, **environment: str) -> Terminal:
    """A terminal on which the machine is shown."""
    terminal = Terminal(binary, node, **environment)
    terminal.until(WELL)
    return terminal


@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_a_key_ends_the_view_and_the_terminal_is_as_before(binary: str, node: str, keys: bytes) -> None:
    terminal = opened(binary, node)
    try:
        terminal.press(keys)
        assert terminal.ended() == (0, "")
    finally:
        terminal.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_view_and_the_terminal_is_as_before(binary: str, node: str, number: int) -> None:
    terminal = opened(binary, node)
    try:
        terminal.child.send_signal(number)
        assert terminal.ended() == (0, "")
    finally:
        terminal.close()


def test_a_panic_gives_the_terminal_back_and_is_reported_after_that(binary: str, node: str) -> None:
    terminal = Terminal(binary, node, CHEETAH_TEST_PANIC="watch-terminal")
    try:
        # The first frame is drawn before any machine has answered.
        terminal.until(LEAVE, WELL)
        if LEAVE not in terminal.written:
            pytest.skip("a release build does not panic when it is asked to")
        code, stderr = terminal.ended()
        assert code == 1 and "CHEETAH_TEST_PANIC" in stderr and "defect" in stderr
    finally:
        terminal.close()


def test_a_terminal_of_another_size_is_drawn_anew(binary: str, node: str) -> None:
    terminal = opened(binary, node)
    try:
        terminal.size(50, 40)
        terminal.until("quit")
        assert all(len(line) <= 40 for line in terminal.screen().splitlines())
        for rows, columns in [(1, 1), (3, 10), (2, 200)]:
            terminal.size(rows, columns)
        terminal.size(30, 100)
        terminal.until(WELL)
        terminal.press(b"\t\x1b[B\x1b[Aq")
        assert terminal.ended()[0] == 0
    finally:
        terminal.close()


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_used_unless_no_color_is_set(binary: str, node: str, no_color: bool) -> None:
    terminal = opened(binary, node, **({"NO_COLOR": "1"} if no_color else {}))
    try:
        terminal.press(b"q")
        terminal.ended()
        assert (COLOUR in terminal.written) != no_color
    finally:
        terminal.close()


def test_where_nothing_can_be_drawn_the_room_is_printed(binary: str, node: str) -> None:
    argv = [binary, "watch", "--terminal", "--nodes", node]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        assert any(WELL in line for line in child.stdout)
        child.send_signal(signal.SIGTERM)
        rest = child.stdout.read()
        assert "\x1b" not in rest and child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait(PATIENCE_S)
