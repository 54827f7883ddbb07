"""Bridges, each with the other side's own code behind it.

Opt-in (`make test-bridges`), since the other sides live in environments of their own, made by
tools/setup-bridges.sh. The tests and the mesh run in this project's environment; the other side is
a process of the interpreter that GYMMESH_BRIDGE_PYTHON names. GYMMESH_TEST_BRIDGE says which
bridge's folder is collected; without it none is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
# Many processes start and import much, which takes a busy machine minutes.
_TEST_S: Final = 1_800
BRIDGE: Final = os.environ.get("GYMMESH_TEST_BRIDGE", "")

collect_ignore = [
    str(folder) for folder in _HERE.iterdir() if folder.is_dir() and folder.name != BRIDGE
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time of a bridge, unless it says its own."""
    for item in items:
        if item.path.is_relative_to(_HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_S))


@pytest.fixture(scope="session")
def bridge_python() -> Path:
    """The interpreter that has the other side."""
    return Path(os.environ["GYMMESH_BRIDGE_PYTHON"])
