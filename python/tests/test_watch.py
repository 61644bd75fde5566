"""The page of `cheetah watch`, in a browser: its figures are those of the JSON, and nothing bad is averaged away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from conftest import MIB, PATIENCE_S, noise, run

MACHINES = 500


class Watch:
    """`cheetah watch`, and its page."""

    def __init__(self, binary: str, *argv: str, folder: Path | None = None) -> None:
        # A machine that is killed refuses at once. One that is only slow, because this machine is busy, does not count as silent.
        words = [binary, "--json", "watch", "--listen", "127.0.0.1:0", "--timeout", "60", *argv]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder)
        assert self.child.stdout
        self.url = str(json.loads(self.child.stdout.readline())["url"])

    def picture(self) -> dict[str, Any]:
        """The picture as JSON."""
        at, secret = self.url.split("/#")
        request = urllib.request.Request(f"{at}/picture", headers={"Authorization": f"Bearer {secret}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return dict(json.loads(answer.read()))

    def close(self) -> None:
        """Ends it."""
        self.child.send_signal(signal.SIGINT)
        self.child.wait(PATIENCE_S)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def keep_picture(browser: Browser, name: str) -> None:
    """Writes the page into the folder of pictures, if that is wanted: `CHEETAH_PICTURES=docs/images`."""
    if folder := os.environ.get("CHEETAH_PICTURES"):
        browser.size(1000, 900)
        browser.picture(Path(folder) / f"{name}.png")


def size(count: int | None) -> str:
    """Bytes as the page writes them."""
    if count is None:
        return "–"
    units, value = ["B", "KiB", "MiB", "GiB", "TiB"], float(count)
    while value >= 1024 and len(units) > 1:
        units.pop(0)
        value /= 1024
    whole = value >= 100 or units[0] == "B"
    shown = str(int(value)) if whole else f"{int(value * 10) / 10:.1f}".removesuffix(".0")
    return f"{shown} {units[0]}"


def rows(browser: Browser) -> dict[str, list[str]]:
    """The rows of machines, by address."""
    script = "[...document.querySelectorAll('#machines tr')].map(r => [r.cells[0].title, ...[...r.cells].map(c => c.innerText)])"
    return {row[0]: row[1:] for row in browser.value(script)}


def test_a_browser_shows_the_figures_of_the_json_and_a_node_that_is_killed(
    binary: str, tmp_path: Path, browser: Browser
) -> None:
    argv = [binary, "--json", "node", "--memory", "32MiB", "--listen", "127.0.0.1:0"]
    nodes = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        ready = [json.loads(node.stdout.readline()) for node in nodes if node.stdout]
        image, drive = tmp_path / "disk.raw", tmp_path / "case.drive"
        image.write_bytes(noise(6 * MIB, 1))
        listed = ",".join(node["nbd"] for node in ready)
        run(binary, "create", drive, "--nodes", listed, "--layout", "parity", "--from", image.name, cwd=tmp_path)
        watch = Watch(binary, drive.name, folder=tmp_path)
        try:
            browser.open(watch.url)
            browser.until(
                "document.body.dataset.state === 'good' && document.querySelectorAll('#machines tr').length === 3"
            )
            assert watch.url.split("#")[1] not in browser.value("location.href")
            picture, shown = watch.picture(), rows(browser)
            for machine in picture["machines"]:
                lends, row = machine["lends"], shown[machine["address"]]
                assert row[2:5] == [size(lends[key]) for key in ("lent_bytes", "used_bytes", "free_bytes")]
                assert row[6] == ("locked" if lends["locked"] else "NOT LOCKED")
            assert browser.value("document.getElementById('sentence').textContent") == picture["sentence"]
            drawn = browser.value(
                "[...document.querySelectorAll('svg.map[role=img]')].map(s => s.getAttribute('aria-label'))"
            )
            assert len(drawn) == 3 and all("of 64 slices 64 read" in row for row in drawn), drawn
            facts = "document.querySelector('.facts').innerText"
            assert "no verification is known" in browser.value(facts)
            run(binary, "verify", drive)
            browser.until(f"{facts}.includes('content verified 20')")

            nodes[1].kill()
            browser.until("document.querySelector('#machines tr').dataset.state === 'lost'")
            browser.until("document.querySelectorAll('svg.map.gone .l').length === 1")
            sentence = browser.value("document.getElementById('sentence').textContent")
            assert "1 of 3 machines runs no node any more" in sentence and "the loss of one more node" in sentence
            problem = browser.value("document.querySelector('#machines tr .problem').textContent")
            assert "Connection refused" in problem
            keep_picture(browser, "watch")
        finally:
            watch.close()
        browser.until("!document.getElementById('stale').hidden")
        assert "No news" in browser.value("document.getElementById('stale').textContent")
    finally:
        for node in nodes:
            node.kill()
            node.wait(PATIENCE_S)


def test_a_browser_shows_zeros_verified_slices_and_links_beside_their_measured_capacity(
    binary: str, tmp_path: Path, browser: Browser
) -> None:
    argv = [binary, "--json", "node", "--memory", "32MiB", "--listen", "127.0.0.1:0"]
    node = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout
        ready = json.loads(node.stdout.readline())
        image, drive, probed = tmp_path / "disk.raw", tmp_path / "case.drive", tmp_path / "path.json"
        image.write_bytes(bytes(2 * MIB) + noise(2 * MIB, 1))
        run(binary, "create", drive, "--nodes", ready["nbd"], "--from", image)
        run(binary, "verify", drive)
        report = {
            "format": 1,
            "host": "localhost",
            "address": "127.0.0.1",
            "started": "2026-11-28T07:40:00Z",
            "hops": [],
        }
        report |= {"far": {"name": "node", "from_bits_per_s": 8e6}, "problems": []}
        probed.write_text(json.dumps(report | {"trains": {"sent": 0, "spoiled": 0, "packets": 0}}))
        watch = Watch(binary, str(drive), "--probed", str(probed))
        try:
            browser.open(watch.url)
            label = "document.querySelector('svg.map[role=img]')?.getAttribute('aria-label')"
            assert "32 zeros, 32 verified" in browser.until(label)
            browser.until("document.querySelectorAll('svg.map[role=img] .v').length === 1")
            assert browser.value("document.querySelector('#links meter').max") == 1_000_000
            words = "document.querySelector('#links .link').innerText"
            assert "measured 2026-11-28T07:40:00Z by trains that it sent" in browser.value(words)
            run(binary, "verify", "--no-log", drive)
            browser.until(f"{words}.includes('most so far')")
            link = watch.picture()["links"][0]
            assert link["host"] == "127.0.0.1" and link["most"]["bytes_per_s"] > 0
        finally:
            watch.close()
    finally:
        node.kill()
        node.wait(PATIENCE_S)


def status(index: int) -> dict[str, Any]:
    """The status of a simulated node."""
    memory = {
        "lent_bytes": (8 + index % 9) << 30,
        "used_bytes": index << 24,
        "free_bytes": 4 << 30,
        "locked": index != 7,
    }
    memory |= {"usable_bytes": 7 << 30, "reserved_bytes": 0, "ready_bytes": 0, "wiped_bytes": 1 << 20}
    name = "<img src=x onerror=document.title='run'>" if index == 13 else f"pc-{index:03}"
    rest = {"version": "1", "instance": f"{index:032x}", "nbd_port": 1, "http_port": 2, "uptime_s": 60, "exports": []}
    return {"name": name, "memory": memory, "disks_visible": 0, "boot_image": index % 2 == 0} | rest


class Crowd:
    """Servers that answer as nodes do, at addresses of loopback."""

    def __init__(self, count: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._callers: dict[int, list[asyncio.StreamWriter]] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.names = [self._do(self._start(index)) for index in range(count)]

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self, index: int) -> str:
        host = f"127.1.{index // 250}.{index % 250 + 1}"
        body = json.dumps(status(index)).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._callers.setdefault(index, []).append(writer)
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(head + body)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(answer, host, 0)
        self._servers.append(server)
        return f"{host}:{server.sockets[0].getsockname()[1] - 1}"

    def stop(self, index: int) -> None:
        """Stops one of them, as if its process were killed."""

        async def end() -> None:
            self._servers[index].close()
            for writer in self._callers.pop(index, []):
                writer.transport.abort()

        self._do(end())

    def close(self) -> None:
        """Stops all of them."""
        for index in range(len(self._servers)):
            self.stop(index)
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    made = Crowd(MACHINES)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def watch(binary: str, crowd: Crowd) -> Iterator[Watch]:
    started = Watch(binary, "--nodes", ",".join(crowd.names))
    try:
        yield started
    finally:
        started.close()


ALL_SHOWN = f"document.querySelectorAll('#machines tr').length === {MACHINES}"


def test_of_500_machines_the_page_shows_each_and_the_one_that_ends_first(
    crowd: Crowd, watch: Watch, browser: Browser
) -> None:
    browser.open(watch.url)
    browser.until(ALL_SHOWN)
    # What a machine calls itself is text.
    assert "<img src=x" in browser.until(
        "[...document.querySelectorAll('#machines tr')].map(r => r.innerText).find(t => t.includes('onerror'))"
    )
    assert (
        browser.value("document.title") != "run"
        and browser.value("document.querySelectorAll('#machines img').length") == 0
    )
    sentence = browser.value("document.getElementById('sentence').textContent")
    assert re.search(r"pc-007( \(127.1.0.8:\d+\))? has memory that is NOT LOCKED", sentence)
    # A picture changes what differs: each row stays the one that it was.
    rows_now = "[...document.querySelectorAll('#machines tr')]"
    browser.value(f"{rows_now}.forEach(row => {{ row.kept = true; }})")
    pictures = int(browser.value("document.documentElement.dataset.pictures"))
    browser.until(f"Number(document.documentElement.dataset.pictures) > {pictures + 2}")
    assert browser.value(f"{rows_now}.every(row => row.kept)")

    browser.press("/", "Slash", 191)
    assert browser.value("document.activeElement.id") == "find"
    browser.call("Input.insertText", text="pc-499")
    assert browser.value("document.querySelectorAll('#machines tr:not(.hidden)').length") == 1
    assert browser.value("document.getElementById('count').textContent") == f"1 of {MACHINES} shown"
    browser.press("Escape", "Escape", 27)
    assert browser.value("document.querySelectorAll('#machines tr:not(.hidden)').length") == MACHINES
    browser.value("document.getElementById('only').click()")
    assert browser.value("document.querySelectorAll('#machines tr:not(.hidden)').length") == 1

    crowd.stop(250)
    browser.until(
        "document.querySelector('#machines tr').innerText.includes('127.1.1.1') || document.querySelector('#machines tr').cells[0].title.startsWith('127.1.1.1:')"
    )
    browser.until("document.querySelectorAll('#machines tr:not(.hidden)').length === 2")
    assert f"1 of {MACHINES} machines runs no node any more" in browser.value(
        "document.getElementById('sentence').textContent"
    )


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, `rgb(1, 2, 3)` each, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_in_light_and_dark_on_a_telephone_and_printed(
    watch: Watch, browser: Browser, scheme: str
) -> None:
    browser.scheme(scheme)
    browser.size(390, 844)
    browser.open(watch.url)
    browser.until(ALL_SHOWN)
    assert browser.value("document.documentElement.scrollWidth") <= 390
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    for selector in ("body", "#totals", "#machines .good", "#machines .attention", "#machines .bad", "th"):
        script = f"(e => e && getComputedStyle(e).color)(document.querySelector('{selector}'))"
        ink = browser.value(script)
        if ink is not None:
            assert contrast(ink, paper) >= 4.5, (selector, ink, paper)

    browser.scheme(scheme, "print")
    assert browser.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pages = browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
    assert len(pages) > 10_000
