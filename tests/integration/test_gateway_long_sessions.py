"""A long session of a program costs what its calls add: nothing is kept or sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_client.collector.row_maker import RowMaker
from gymmesh_client.rollout import Fold
from gymmesh_data import ExportOptions, export
from gymmesh_data.rollout import rollout_of_line
from gymmesh_view.rollout.detail import detail_of
from tests.integration.test_exact_tokens import CAPTURE, mesh_of
from tests.integration.test_gateway_tokens import turn
from tests.support.vllm_server import FakeVllm, calls
from tests.unit.agent.mesh import ask
from tests.unit.agent.streams import Events
from tests.unit.gateway.programs import ProgramAgent

CALLS = (16, 32, 64)
EXPORTS = ("messages", "sft", "tokens")
PARTS = ("events", "sent", "row", "page", *(f"export {one}" for one in EXPORTS))


async def session(count: int) -> tuple[Events, int]:
    """The events of a session of so many calls, and the bytes that the model service was sent."""

    async def program(gateway: Gateway) -> None:
        messages: list[Any] = [{"role": "user", "content": "2+3?"}]
        for number in range(count):
            message = await turn(gateway, messages)
            (made,) = message["tool_calls"]
            output = f"it is five, the {number:03}. time"
            done = {"role": "tool", "tool_call_id": made["id"], "content": output}
            messages += [message, done]

    ProgramAgent.main = staticmethod(program)
    agent = AgentConfig(use="tests.unit.gateway.programs:ProgramAgent", max_steps=None)
    server = FakeVllm(default=calls("add", '{"a": 2}', text="let me see"))
    async with mesh_of(server, agent=agent) as (mesh, model):
        events = await mesh.run(ask(capture=CAPTURE))
    return events, sum(request.ByteSize() for request in model.requests)


async def row_of(events: Sequence[rollout_pb2.RolloutEvent]) -> bytes:
    """The row of a rollout."""
    request = ask()
    fold = Fold(request.rollout_id, 1, "run-1", request.task.task_id)
    for event in events:
        fold.add(event)
    parts = fold.parts()
    parts.size = sum(event.ByteSize() for event in events)
    line, _ = await RowMaker().completed(request.task, parts)
    return line


async def sizes(count: int, folder: Path) -> dict[str, int]:
    """Bytes of what a session of so many calls leaves."""
    events, sent = await session(count)
    line = await row_of(events)
    source, target = folder / "rows.jsonl", folder / "out"
    source.write_bytes(line + b"\n")
    found = {
        "events": sum(event.ByteSize() for event in events),
        "sent": sent,
        "row": len(line),
        "page": len(json.dumps(detail_of(rollout_of_line(line, "rows.jsonl:1")))),
    }
    for name in EXPORTS:
        target.unlink(missing_ok=True)
        assert export([source], target, name, ExportOptions()).records == 1
        found[f"export {name}"] = target.stat().st_size
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    folder = tmp_path_factory.mktemp("sessions")
    return [asyncio.run(sizes(count, folder)) for count in CALLS]


@pytest.mark.parametrize("part", PARTS)
def test_what_a_session_leaves_grows_by_what_each_call_adds(
    part: str, found: list[dict[str, int]]
) -> None:
    few, some, many = (one[part] for one in found)
    # Twice as many further calls add twice as much, but for numbers with more digits.
    assert many - some < 2.1 * (some - few)
