"""Calls of more than two minutes: what pings more often than servers allow is cut off by then.

A server of a gRPC library that was told nothing of pings (the scripted ones here) takes the third
ping within five minutes for abuse. These tests take minutes, and run when asked for:

    GYMMESH_TEST_SLOW=1 python -m pytest tests/conformance/test_slow_calls.py
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_conformance.collectors import (
    Collector,
    run_collector_case,
    select_collector_cases,
)
from gymmesh_conformance.runner import Subject, run_case
from gymmesh_conformance.suites import select
from tests.conformance.implementations import MINIMAL
from tests.conformance.ours import agent_of

_SLOW_S = 130.0


_MINIMAL = next(one for one in MINIMAL if one.name == "minimal")
# Its own limit of a model call is two minutes unless it is told otherwise.
_OURS = agent_of(AgentConfig(model_timeout_s=300))


@pytest.mark.parametrize("open_", [_OURS, _MINIMAL.open], ids=["tool_loop", "minimal"])
async def test_an_agent_waits_for_a_slow_model(open_: Any) -> None:
    async with open_("plain") as target:
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
