"""A mounted file system, as the modules `mounts` describe it."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Mount:
    """A mounted file system: on Linux a line of mountinfo."""

    number: int
    device: str
    """"major:minor"; 0:N without a block device."""
    root: Path
    """The directory of the file system that is mounted: not "/" for a bind mount."""
    point: Path
    options: str
    fs: str
    """Its type: "ext4", "fuse.cheetah"."""
    source: str
