"""The processes and machines that perform tasks."""

import importlib
from types import ModuleType


def of_clusters() -> ModuleType:
    """Returns the module of Dask's workers. Raises OSError if Dask is not installed: only --scheduler needs it."""
    try:
        return importlib.import_module("cheetah.triage.workers.cluster")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("cheetah"):
            raise
        raise OSError(
            f"--scheduler needs Dask, and this Python has no {error.name}; install it beside Cheetah: pip install 'distributed'"
        ) from error
