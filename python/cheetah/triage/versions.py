"""Versions of the programs and libraries that a result depends on."""

import platform
from importlib import metadata

import pyarrow as pa


def versions() -> dict[str, str]:
    """Returns all versions, by name."""
    import pytsk3

    import cheetah

    return {
        "cheetah": getattr(cheetah, "__version__", "unknown"),
        "sleuthkit": str(pytsk3.TSK_VERSION_STR),
        "pytsk3": str(pytsk3.get_version()),
        "pyarrow": pa.__version__,
        "yara-x": metadata.version("yara-x"),
        "python": platform.python_version(),
    }


def deciding() -> dict[str, str]:
    """Returns the versions that determine the findings."""
    return {name: version for name, version in versions().items() if name not in ("python", "pyarrow")}
