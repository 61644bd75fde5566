"""The programs of a run and their versions, for the report."""

import sys
from typing import Any

from bench.tools import cheetah
from cheetah.bench import machine

YARA_X_VERSION = """\
from importlib.metadata import distributions
print(next((found.version for found in distributions(name="yara-x")), "not installed"))"""
# A program, and the command that prints its version.
PROGRAMS = (
    ("nbdkit", ["nbdkit", "--version"]),
    ("qemu-nbd", ["qemu-nbd", "--version"]),
    ("nbdcopy, nbdfuse", ["nbdcopy", "--version"]),
    ("ewfacquire, ewfmount", ["ewfacquire", "-V"]),
    ("xmount", ["xmount", "--version"]),
    ("tgtd", ["tgtd", "--version"]),
    ("gzip", ["gzip", "--version"]),
    ("zstd", ["zstd", "--version"]),
    ("fio", ["fio", "--version"]),
    ("iperf3", ["iperf3", "--version"]),
    ("trafgen, mausezahn", ["trafgen", "--version"]),
    ("nping", ["nping", "--version"]),
    ("hping3", ["hping3", "--version"]),
    ("scamper", ["scamper", "-v"]),
    ("tcpdump", ["tcpdump", "--version"]),
    ("The Sleuth Kit", ["fls", "-V"]),
    ("scalpel", ["scalpel", "-V"]),
    ("foremost", ["foremost", "-V"]),
    ("ripgrep", ["rg", "--version"]),
    ("grep", ["grep", "--version"]),
    ("YARA-X", [sys.executable, "-c", YARA_X_VERSION]),
    ("bulk_extractor", ["bulk_extractor", "-V"]),
    ("cp, md5sum", ["md5sum", "--version"]),
    ("strings", ["strings", "--version"]),
    ("tar", ["tar", "--version"]),
)


def describe() -> Any:
    """Returns the machine and the programs as a dictionary of lines."""
    described = machine.describe(PROGRAMS)
    described["cheetah"] = f"{machine.first_line([cheetah.binary(), '--version'])}, tree at {cheetah.commit()}"
    return described
