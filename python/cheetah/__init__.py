"""Reads anything Cheetah can open, as a Python file object.

    >>> import cheetah
    >>> with cheetah.open("case42.drive") as device:
    ...     boot_sector = device.pread(0, 512)

`open` takes a drive file, an image in any format, a disk, or an nbd://, nbd+unix://, iscsi://, https:// or s3:// URI, and
opens it for reading. `share` opens a source once and serves it to other processes of this machine.
"""

from cheetah._native import __version__
from cheetah.device import Device, Part, open
from cheetah.error import Error
from cheetah.rule_search import RuleHit, RuleHits
from cheetah.search import Coverage, Hits
from cheetah.sharing import Share, share

__all__ = [
    "Coverage",
    "Device",
    "Error",
    "Hits",
    "Part",
    "RuleHit",
    "RuleHits",
    "Share",
    "__version__",
    "open",
    "share",
]
