"""The cases of a suite at our implementations: what the tests of conformance share.

The cases of one server run side by side, as its callers do: they share nothing, and many of them
wait. Those of sandboxes run one after another, because some take all that the machine has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from gymmesh_conformance.cases import Case, load_cases
from gymmesh_conformance.runner import CaseResult, run_case
from tests.conformance.implementations import MINIMAL, Implementation
from tests.conformance.ours import OURS

Server: TypeAlias = tuple[Implementation, str]
"""An implementation, and the path over which it is called."""

Results: TypeAlias = Mapping[str, asyncio.Task[CaseResult]]
"""What comes of each case, by its name."""

_AT_ONCE = 8


def parameters(*suites: str) -> Iterator[object]:
    """Each case of these suites at each server: `results`, which is the server, and `case`."""
    for implementation in (*MINIMAL, *OURS):
        if implementation.suite not in suites:
            continue
        for path in implementation.paths:
            server = (implementation, path)  # the same object each time: pytest goes by identity
            for case in load_cases(implementation.suite):
                if not implementation.only or case.name in implementation.only:
                    name = f"{implementation.name}-{path}-{case.name}"
                    yield pytest.param(server, case, id=name)


@asynccontextmanager
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Results]:
    """Opens the server that a fixture is asked for, and runs the cases that were chosen of it."""
    implementation, path = request.param
    chosen: list[Case] = []
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or "results" not in item.fixturenames:
            continue
        given = item.callspec.params
        if given["results"] is request.param:
            assert isinstance(given["case"], Case)
            chosen.append(given["case"])
    places = asyncio.Semaphore(1 if implementation.suite == "sandbox" else _AT_ONCE)
    async with implementation.open(path) as target:
        subject = await target.subject()

        async def result_of(case: Case) -> CaseResult:
            async with places:
                return await run_case(case, subject)

        tasks = {case.name: asyncio.create_task(result_of(case)) for case in chosen}
        try:
            yield tasks
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


async def check(results: Results, case: Case) -> None:
    """Waits for a case, which passes or is skipped."""
    result = await results[case.name]
    assert result.outcome in ("passed", "skipped"), "\n".join((result.rule, *result.problems))
