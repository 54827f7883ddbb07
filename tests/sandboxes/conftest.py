"""Daemons for the tests that ask for one.

Opt-in (`make test-sandboxes`): GYMMESH_TEST_SANDBOXES names them. Without it nothing is collected
here; with it, a daemon that does not answer is a failure, never a skip.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gymmesh_sandbox.backends.docker import DockerBackend
from tests.sandboxes.engines import Daemon, daemons

collect_ignore_glob = [] if daemons() else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "daemon" in metafunc.fixturenames:
        metafunc.parametrize("daemon", [pytest.param(one, id=one.name) for one in daemons()])


@pytest.fixture
async def backend(daemon: Daemon) -> AsyncIterator[DockerBackend]:
    backend = DockerBackend(daemon.options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()
