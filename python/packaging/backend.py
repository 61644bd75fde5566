"""The build backend of the package: maturin, with a target directory of its own.

maturin would build into the target directory of the checkout, and replace the build there, with other settings or
by another user.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    """Builds a wheel into `directory`; returns its name."""
    return _apart(maturin.build_wheel, directory, settings, metadata)


def build_editable(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    """Builds a wheel that refers to the sources; returns its name."""
    return _apart(maturin.build_editable, directory, settings, metadata)


def build_sdist(directory: str, settings: Any = None) -> str:
    """Packs the sources; returns the archive's name."""
    return _apart(maturin.build_sdist, directory, settings)


def _apart(build: Callable[..., str], *arguments: Any) -> str:
    """Builds in $CARGO_TARGET_DIR where that is set, otherwise in a temporary directory."""
    if "CARGO_TARGET_DIR" in os.environ:
        return build(*arguments)
    with tempfile.TemporaryDirectory(prefix="cheetah-build-") as target:
        os.environ["CARGO_TARGET_DIR"] = target
        try:
            return build(*arguments)
        finally:
            del os.environ["CARGO_TARGET_DIR"]
