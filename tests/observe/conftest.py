"""A real Prometheus for each test that asks for one.

Opt-in (`make test-observe`): GYMMESH_TEST_PROMETHEUS names the folder with prometheus and promtool.
Without it nothing is collected here; with it, a program that is not there is a failure, never a
skip.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = os.environ.get("GYMMESH_TEST_PROMETHEUS", "")

collect_ignore_glob = [] if FOLDER else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(600), append=False)


def program(name: str) -> str:
    """A program's path; fails where it is not."""
    found = shutil.which(str(Path(FOLDER) / name))
    if found is None:
        pytest.fail(
            f"there is no {name} in GYMMESH_TEST_PROMETHEUS={FOLDER}: tools/setup-prometheus.sh"
        )
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    """Its path."""
    return program("promtool")


@pytest.fixture(scope="session")
def prometheus_binary() -> str:
    """Its path."""
    return program("prometheus")
