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

BRIDGE: Final = os.environ.get("GYMMESH_TEST_BRIDGE", "")

collect_ignore = [
    str(folder)
    for folder in Path(__file__).parent.iterdir()
    if folder.is_dir() and folder.name != BRIDGE
]


@pytest.fixture(scope="session")
def bridge_python() -> Path:
    """The interpreter that has the other side."""
    return Path(os.environ["GYMMESH_BRIDGE_PYTHON"])
