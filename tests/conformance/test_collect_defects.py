"""The cases for Collect notice what is wrong: each defect of a good agent fails its case."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh_conformance.runner import run_case
from gymmesh_conformance.suites import select
from tests.conformance.implementations import MINIMAL
from tests.conformance.minimal import collecting
from tests.conformance.minimal.collecting import CollectingAgent, _Stream


class _Generous(_Stream):
    """Sends without credit."""

    def batch(self) -> agent_pb2.CollectResponse | None:
        self.credit = max(self.credit, 1)
        return super().batch()


class _Stuttering(_Stream):
    """Numbers batches from the start again and again."""

    def batch(self) -> agent_pb2.CollectResponse | None:
        batch = super().batch()
        if batch is not None:
            batch.events.cursor = 1
        return batch


def _from_the_start(agent: CollectingAgent, hello: Any) -> tuple[_Stream, bool]:
    """Sends everything again after a break."""
    stream = agent._streams.setdefault(hello.stream_id, _Stream(0))
    stream.sent, stream.credit = stream.first, hello.credit
    return stream, True


def _with_a_gap(agent: CollectingAgent, hello: Any) -> tuple[_Stream, bool]:
    """Goes on with what happens next, and loses what happened meanwhile."""
    stream = agent._streams.setdefault(hello.stream_id, _Stream(0))
    stream.sent, stream.credit = stream.first + len(stream.kept), hello.credit
    return stream, True


def _forgetful(agent: CollectingAgent, hello: Any) -> tuple[_Stream, bool]:
    """Has lost every stream, and does not say so."""
    stream = agent._streams[hello.stream_id] = _Stream(hello.last_cursor)
    stream.credit = hello.credit
    return stream, True


class _EveryStart(_Stream):
    """Takes a start that comes again for another one."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.known = _Nothing()


class _Nothing(set[tuple[str, int]]):
    """A set that remembers nothing."""

    def add(self, key: tuple[str, int]) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "change", "case"),
    [
        ("_Stream", _Generous, "collect_keeps_credit"),
        ("_Stream", _Stuttering, "collects_a_rollout"),
        ("_Stream", _EveryStart, "collect_takes_a_start_twice_for_one"),
        ("_open", _from_the_start, "collect_goes_on_after_a_break"),
        ("_open", _with_a_gap, "collect_goes_on_after_a_break"),
        ("_open", _forgetful, "collect_goes_on_after_a_break"),
        ("_open", _from_the_start, "collect_says_that_a_stream_is_lost"),
    ],
)
async def test_a_careless_collecting_agent_fails(
    name: str, change: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A minute, so that busy servers pass; an agent that never ends a stream fails sooner, too.
    monkeypatch.setattr("gymmesh_conformance.steps.talks._CONNECTION_S", 5.0)
    owner: Any = collecting if name == "_Stream" else CollectingAgent
    monkeypatch.setattr(owner, name, change)
    implementation = next(one for one in MINIMAL if one.name == "minimal_collect")
    async with implementation.open("plain") as target:
        result = await run_case(select("agent", [case])[0], await target.subject())
    assert result.outcome == "failed"
