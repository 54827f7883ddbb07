"""The first cases of every target, against meshes that run; the long runs are `make fuzz`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.fuzz.campaign import Plan, afterwards, fuzzed
from tests.fuzz.choose import PLAIN, SECURED, opened, spare_registry
from tests.fuzz.mesh import FEW, running
from tests.fuzz.stock import Stock

_CASES = 10


@pytest.mark.parametrize("secured", [False, True])
async def test_the_first_cases(tmp_path: Path, secured: bool) -> None:
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(running(tmp_path, FEW, secured=secured))
        stock = await stack.enter_async_context(Stock(mesh))
        if not secured:
            await stack.enter_async_context(spare_registry(mesh))
        targets = [
            await stack.enter_async_context(opened(name, mesh, stock))
            for name in (SECURED if secured else PLAIN)
        ]
        plan = Plan(cases=_CASES)
        reports = await asyncio.gather(*(fuzzed(target, mesh, plan) for target in targets))
        found = await afterwards(mesh)
    wrong = [line for one in reports if one.problems for line in one.lines()] + found
    assert wrong == [], "\n".join(wrong)
    assert [one.cases for one in reports] == [_CASES] * len(targets)
