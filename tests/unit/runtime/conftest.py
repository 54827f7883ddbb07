"""Both ends of a exchange of the mux, each with a hand at the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gymmesh_runtime.wire.mux.exchange import Exchange
from tests.unit.runtime.exchange_ends import (
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
async def client() -> AsyncIterator[tuple[Hand, Exchange]]:
    async with calling_end() as one:
        yield one
