"""Resource, model and discovery services through their suites, over every path that they have."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymmesh_conformance.cases import Case
from tests.conformance.conforming import Results, check, parameters, running

# One loop and one server for all cases of an implementation and path.
pytestmark = [pytest.mark.long(seconds=80), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def results(request: pytest.FixtureRequest) -> AsyncIterator[Results]:
    async with running(request) as found:
        yield found


@pytest.mark.parametrize(
    ("results", "case"),
    list(parameters("resource", "model", "discovery")),
    indirect=["results"],
    scope="module",
)
async def test_conforms(results: Results, case: Case) -> None:
    await check(results, case)
