"""A remote site: an image behind a link, served over NBD and iSCSI, and the ways an examiner can attach it as a
file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence

from bench.images.examined import ExaminedImage
from bench.scratch import Scratch
from bench.tools import cheetah, peers
from bench.tools.endpoint import Endpoint
from bench.tools.limited import run_limited
from bench.tools.peers import ONE_CONNECTION, ONE_CONNECTION_OPTIONS
from cheetah.bench.process import Process, run
from cheetah.bench.units import KIB, MIB, iec
from lab.network import Lab

PORT, AGENT_PORT, ONE_PORT = 10809, 10810, 10820


@dataclasses.dataclass(frozen=True)
class Line:
    """The link between the examiner and the site."""

    rate: str
    delay_ms: float

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        rate = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}.get(self.rate, self.rate)
        return f"{rate}, {self.delay_ms:g} ms one way"

    @property
    def bytes_per_s(self) -> float:
        """Returns its capacity, headers included."""
        return {"100mbit": 100e6, "1gbit": 1e9}[self.rate] / 8

    def lab(self) -> Lab:
        """Returns a lab with one machine at the end of this link."""
        return Lab(1, self.rate, f"{2 * self.delay_ms:g}ms")


class Site:
    """A machine at the end of a link that serves an image for the lifetime of its scratch space and lab."""

    def __init__(self, scratch: Scratch, lab: Lab, image: ExaminedImage, iscsi: bool = False) -> None:
        self.image = image
        self._machine = lab.nodes[0]
        self._lab = lab
        self._scratch = scratch
        address = self._machine.address
        self._servers = {PORT: self._serve(PORT)}
        self.uri = f"nbd://{address}:{PORT}/"
        self.one_uri = ""
        self.iscsi_uri = peers.tgtd(scratch, image.path, address, self._machine.command) if iscsi else ""

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Returns `argv` to run on the examiner's machine."""
        return self._lab.examiner.command(argv)

    def _serve(self, port: int) -> Process:
        address = self._machine.address
        argv = ["nbdkit", "--foreground", "--exit-with-parent", "--readonly", f"--ipaddr={address}", f"--port={port}"]
        one = port == ONE_PORT
        argv += [f"--filter={name}" for name in ONE_CONNECTION] if one else []
        argv += ["file", self.image.path, *(ONE_CONNECTION_OPTIONS if one else ())]
        server = self._scratch.start("nbdkit file", self._machine.command(argv))
        listening = self._machine.command(["ss", "--no-header", "--listening", "--tcp", f"sport = :{port}"])
        server.wait_until(lambda: run(listening).strip(), "sign of listening")
        return server

    def allow_one(self) -> None:
        """Serves the image at `one_uri`, too, where a client may open one connection only."""
        self._servers[ONE_PORT] = self._serve(ONE_PORT)
        self.one_uri = f"nbd://{self._machine.address}:{ONE_PORT}/"

    def stand_by(self) -> None:
        """Makes sure the servers run for the next turn: nbdkit sometimes fails an assertion when a client is killed
        midway, such as a copy at its time limit."""
        for port, server in self._servers.items():
            if server.has_ended:
                self._servers[port] = self._serve(port)

    def agent(self, scratch: Scratch) -> str:
        """Lets an agent serve the image too, for the lifetime of the scratch space; returns its URI."""
        address = f"{self._machine.address}:{AGENT_PORT}"
        cheetah.agent(scratch, self.image.path, address, self._machine.command)
        return f"nbd://{address}/"

    def sent_bytes(self) -> int:
        """Returns the bytes the site has sent so far. A super-frame that its interface segments counts with one
        header, so this is nearly payload, retransmissions included."""
        shown = json.loads(run(self._machine.command(["ip", "-json", "-statistics", "link", "show", "dev", "eth0"])))
        return int(shown[0]["stats64"]["tx"]["bytes"])


def resident_share(path: str) -> float:
    """Returns the share of a file in memory, from 0 to 1."""
    shown = run(["fincore", "--bytes", "--noheadings", "--output", "RES", path]).split()
    return int(shown[0]) / os.path.getsize(path)


# Attaches a remote image as a file that tools can open; returns the file's path.
Attach = Callable[[Scratch, Site], str]


def by_cheetah(scratch: Scratch, site: Site) -> str:
    """Cheetah with its defaults."""
    return str(cheetah.mount(scratch, site.uri, enter=site.enter)[1])


def by_cheetah_over_one(scratch: Scratch, site: Site) -> str:
    """Cheetah with its defaults, over one connection."""
    return str(cheetah.mount(scratch, site.one_uri, enter=site.enter)[1])


def by_cheetah_over_iscsi(scratch: Scratch, site: Site) -> str:
    """Cheetah with its defaults and its own initiator."""
    return str(cheetah.mount(scratch, site.iscsi_uri, enter=site.enter)[1])


def by_agent(scratch: Scratch, site: Site) -> str:
    """Cheetah at both ends: an agent that compresses, without any history."""
    return str(cheetah.mount(scratch, site.agent(scratch), enter=site.enter)[1])


def by_nbdfuse(scratch: Scratch, site: Site) -> str:
    """libnbd's file system, without a cache."""
    return str(peers.nbdfuse(scratch, Endpoint("nbdkit file", site.uri, []), site.enter)[1])


def by_iscsi(scratch: Scratch, site: Site) -> str:
    """tgtd's iSCSI through qemu-nbd's initiator and nbdfuse, without a kernel initiator."""
    return str(peers.nbdfuse_on_qemu(scratch, site.iscsi_uri, site.enter))


def by_filters(*filters: str, **options: str) -> Attach:
    """nbdkit with filters on the examiner's machine, in front of the site's nbdkit, with nbdfuse on it."""

    def attach(scratch: Scratch, site: Site) -> str:
        socket = scratch.path("socket")
        argv = ["nbdkit", "--foreground", "--exit-with-parent", "--readonly", f"--unix={socket}"]
        argv += [f"--filter={name}" for name in filters]
        argv += ["nbd", f"uri={site.uri}", *(f"{key.replace('_', '-')}={value}" for key, value in options.items())]
        process = scratch.start("nbdkit with filters", site.enter(argv))
        process.wait_until(lambda: os.path.exists(socket), "socket")
        endpoint = Endpoint("nbdkit with filters", f"nbd+unix:///?socket={socket}", [process])
        return str(peers.nbdfuse(scratch, endpoint, site.enter)[1])

    return attach


def by_cache(block_bytes: int) -> Attach:
    """nbdkit's cache filter with blocks of that size."""
    return by_filters("cache", cache_min_block_size=iec(block_bytes).removesuffix("iB"), cache_on_read="true")


def by_readahead() -> Attach:
    """nbdkit's readahead filter, with the cache filter it needs."""
    return by_filters("readahead", "cache", cache_on_read="true")


OURS = "cheetah mount"
AGENT = "cheetah mount, our agent at the site"
COPY = "a full copy first"
LOCAL = "the local image"
FILTERS: dict[str, Attach] = {
    "nbdfuse": by_nbdfuse,
    "cache filter, 64 KiB": by_cache(64 * KIB),
    "cache filter, 1 MiB": by_cache(MIB),
    "readahead and cache filters": by_readahead(),
}
ISCSI = "tgtd, qemu-nbd, nbdfuse"


class CutOff(Exception):
    """A contender exceeded its time limit."""


def copied(scratch: Scratch, site: Site, limit_s: float) -> str:
    """Copies the whole image to this machine's disk with nbdcopy; returns the copy's path."""
    target = os.path.join(scratch.disk_dir, "copied.raw")
    if not run_limited(site.enter(["nbdcopy", site.uri, target]), limit_s).finished:
        raise CutOff(f"a full copy of {site.image.path}")
    return target
