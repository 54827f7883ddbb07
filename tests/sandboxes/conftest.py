"""Daemons for the tests that ask for one, and a table of what conforms.

Opt-in (`make test-sandboxes`): GYMMESH_TEST_SANDBOXES names the daemons. Without it nothing is
collected here; with it, a daemon that does not answer is a failure, never a skip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from gymmesh_sandbox.backends.docker import DockerBackend
from tests.sandboxes.engines import Daemon, asked, daemons

collect_ignore_glob = [] if asked() else ["test_*.py"]

#: What the suite said of each backend: outcomes, and the lacks for which cases were skipped.
CONFORMANCE = pytest.StashKey[dict[str, tuple[Counter[str], Counter[str]]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CONFORMANCE] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "daemon" in metafunc.fixturenames:
        metafunc.parametrize("daemon", [pytest.param(one, id=one.name) for one in daemons()])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    found = config.stash[CONFORMANCE]
    if not found:
        return
    terminalreporter.section("conformance of sandbox services")
    width = max(map(len, found))
    for name, (outcomes, lacks) in found.items():
        counts = "  ".join(f"{one} {outcomes[one]}" for one in sorted(outcomes))
        why = ", ".join(f"{one} ({count})" for one, count in sorted(lacks.items()))
        terminalreporter.line(f"{name:{width}}  {counts}" + (f"; lacks {why}" if why else ""))


@pytest.fixture
async def backend(daemon: Daemon) -> AsyncIterator[DockerBackend]:
    backend = DockerBackend(daemon.options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()
