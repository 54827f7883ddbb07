"""A real Consul agent for each test that asks for one.

Opt-in (`make test-consul`): GYMMESH_TEST_CONSUL names the program. Without it nothing is collected
here; with it, a program that is not there is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.clients.conftest import LANGUAGES
from tests.consul.agent import Agent, running

BINARY: Final = os.environ.get("GYMMESH_TEST_CONSUL", "")

collect_ignore_glob = [] if BINARY else ["test_*.py"]
#: Services in other languages need their programs, which `make test-consul` builds.
collect_ignore = [] if LANGUAGES else ["test_languages.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(300), append=False)


@pytest.fixture(scope="session")
def binary() -> str:
    """The program; fails where it is not."""
    found = shutil.which(BINARY)
    if found is None:
        pytest.fail(f"there is no Consul at GYMMESH_TEST_CONSUL={BINARY}: tools/setup-consul.sh")
    return found


@pytest.fixture
async def consul(binary: str) -> AsyncIterator[Agent]:
    """An agent that the test may kill and start again."""
    async with running(binary) as agent:
        yield agent
