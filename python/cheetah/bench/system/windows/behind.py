"""What a file system is on: Windows does not tell programs without an administrator's rights which virtual disk or image is behind a
volume."""

from pathlib import Path

from cheetah.bench.system.mount import Mount


def behind(_mount: Mount, _depth: int = 0) -> list[Path]:
    """Returns nothing: see above."""
    return []
