"""The path to the package, and the check for root."""

from __future__ import annotations

import os
import sys

import pytest

WORKSHOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, WORKSHOP)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark of tests that measure time."""
    config.addinivalue_line("markers", "timing: measures time, so it needs an otherwise idle machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests that measure time, unless marks are chosen: `-m timing`."""
    if config.getoption("markexpr"):
        return
    measuring = [item for item in items if item.get_closest_marker("timing")]
    config.hook.pytest_deselected(items=measuring)
    items[:] = [item for item in items if item not in measuring]


@pytest.fixture
def root() -> None:
    """Skips the test if network namespaces cannot be created."""
    from lab.namespace import LabError, Namespace

    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    # Not named like a lab's: another lab that starts removes those without a state file.
    probe = Namespace(f"lab-probe-{os.getpid()}")
    try:
        probe.create()
    except LabError as error:
        pytest.skip(f"no network namespaces here: {error}")
    finally:
        probe.remove()
