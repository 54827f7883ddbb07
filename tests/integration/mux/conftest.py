"""The directory that a test calls through."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gymmesh_runtime.peers import PeerDirectory


@pytest.fixture
async def directory() -> AsyncIterator[PeerDirectory]:
    one = PeerDirectory()
    yield one
    await one.close()
