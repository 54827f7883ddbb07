"""Calls of more than two minutes: what pings more often than servers allow is cut off by then.

A server of a gRPC library that was told nothing of pings (the scripted ones here) takes the third
ping within five minutes for abuse. These tests take minutes, and run when asked for:

    GYMMESH_TEST_SLOW=1 python -m pytest tests/conformance/test_slow_calls.py
"""

from __future__ import annotations

import sys

import pytest

from gymmesh_conformance.collectors import (
    Collector,
    run_collector_case,
    select_collector_cases,
)
from gymmesh_conformance.runner import Subject, run_case
from gymmesh_conformance.suites import select
from tests.conformance.implementations import MINIMAL
from tests.conformance.ours import OURS

_SLOW_S = 130.0

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(("name", "path"), [("tool_loop", "plain"), ("minimal", "plain")])
async def test_an_agent_waits_for_a_slow_model(name: str, path: str) -> None:
    implementation = next(one for one in (*MINIMAL, *OURS) if one.name == name)
    async with implementation.open(path) as target:
        good = await target.subject()
        subject = Subject(good.path, {**good.variables, "slow_s": _SLOW_S}, good.world)
        result = await run_case(select("agent", ["waits_for_a_slow_model"])[0], subject)
    assert result.outcome == "passed", result.problems
    assert result.seconds > _SLOW_S


async def test_gym_cli_waits_for_a_slow_agent() -> None:
    command = (
        f"{sys.executable} -m gymmesh_cli collect --agent {{agent}} -i {{input}} -o {{output}}"
    )
    collector = Collector(command, timeout_s=500, slow_s=_SLOW_S)
    result = await run_collector_case(
        select_collector_cases(["waits_for_a_slow_agent"])[0], collector
    )
    assert result.outcome == "passed", result.problems
    assert result.seconds > 2 * _SLOW_S
