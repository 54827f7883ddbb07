"""A real Slurm, with three nodes that are all this machine.

Opt-in (`make test-slurm`): GYMMESH_TEST_SLURM is set. Without it nothing is collected here; with
it, a program that is not there is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.slurm.cluster import PROGRAMS, Cluster, running

WANTED: Final = bool(os.environ.get("GYMMESH_TEST_SLURM"))

collect_ignore_glob = [] if WANTED else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(600), append=False)


@pytest.fixture
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three nodes that are idle."""
    missing = [one for one in PROGRAMS if shutil.which(one) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} not found: install Debian's slurmctld, slurmd and munge")
    async with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found
