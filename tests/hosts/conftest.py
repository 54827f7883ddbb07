"""Two hosts, as network namespaces, and a real Consul agent on one of them.

Opt-in (`make test-hosts`): GYMMESH_TEST_HOSTS names Consul's program. Without it nothing is
collected here. Where the machine or the user can have no namespaces, the tests are skipped and say
why; a Consul that is not there is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import pytest

from tests.hosts.network import Host, network
from tests.support.optional import require

CONSUL: Final = os.environ.get("GYMMESH_TEST_HOSTS", "")

collect_ignore_glob = [] if CONSUL else ["test_*.py"]


@pytest.fixture
async def hosts() -> AsyncIterator[Sequence[Host]]:
    """Two of them; the first runs Consul."""
    async with AsyncExitStack() as stack:
        found: Sequence[Host] = ()
        why = ""
        try:
            found = await stack.enter_async_context(network(2))
        except OSError as error:
            why = str(error)
        require(found, "network namespaces", why)
        yield found


@pytest.fixture(scope="session")
def consul() -> str:
    """Consul's program."""
    found = shutil.which(CONSUL)
    if found is None:
        pytest.fail(f"there is no Consul at GYMMESH_TEST_HOSTS={CONSUL}: tools/setup-consul.sh")
    return found
