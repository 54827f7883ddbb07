"""Both ends of a link of the mux, each with a hand at the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gymmesh_runtime.wire.mux.link import Link
from tests.unit.runtime.link_ends import (
    Hand,
    Served,
    calling_end,
    serving_end,
)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving_end() as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[tuple[Hand, Link]]:
    async with calling_end() as one:
        yield one
