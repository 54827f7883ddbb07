"""What a turn costs in rollouts of so many turns: python -m tests.scale.scale_bench.turns TURNS N.

The embedded mesh and the collector, with a model inside the model service that answers at once
and resends nothing: what an endpoint is sent by HTTP is its API's affair (Responses wants the whole
conversation each time). Prints, for each turn of N rollouts: `cpu_us`, and the bytes of the
messages that go between agent and model (`model_bytes`) and from the agent to the collector
(`event_bytes`), as they would travel, and of the row (`row_bytes`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_mesh import embedded
from gymmesh_model import ModelConfig, service
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_responses import response_from_json
from gymmesh_runtime.serving.loop import run
from tests.scale.report import table
from tests.scale.rollout_bench.ours import configuration, task

TURNS: Final = (2, 8, 32, 128, 512)
MOST_GROWTH: Final = 1.3  # of a turn's cost, from 8 turns to the most
_THOUGHT: Final = "Let me add these two numbers with the tool, and look at the sum. " * 6
_bytes = {"calls": 0, "model": 0, "events": 0}
_turns = 2


class Scripted(Backend):
    """A backend that calls the tool until the last turn."""

    endpoint_model = "scripted"
    calls_endpoint = False
    features = Features(takes_items=True)
    capabilities = model_pb2.ModelCapabilities(tools=True, abort=True)

    def __init__(self, name: str, config: Any) -> None:
        pass

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The next answer: the call's items say which turn it is."""
        items = call.items if call.items is not None else call.params["input"]
        turn = (len(items) - 1) // 3
        output: list[dict[str, Any]] = [_message(f"{_THOUGHT}{turn}")]
        if turn + 1 < _turns:
            output.append(_tool_call(turn))
        document = {"id": f"resp_{turn}", "object": "response", "status": "completed"}
        usage = {"input_tokens": 40, "output_tokens": 12, "total_tokens": 52}
        return response_from_json({**document, "output": output, "usage": usage})


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": f"{text} 5", "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def _tool_call(turn: int) -> dict[str, Any]:
    given = '{"left": 2, "right": 3}'
    return {"type": "function_call", "call_id": f"call_{turn}", "name": "add", "arguments": given}


class _Counted:
    """An agent's peer whose events are counted on their way."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer

    def run_rollout(self, request: Any, *, sink: Callable[[Any], Any], **kept: Any) -> Any:
        """Counts each event."""

        def counted(event: Any) -> Any:
            _bytes["events"] += event.ByteSize()
            return sink(event)

        return self._peer.run_rollout(request, sink=counted, **kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)


def _count_model_calls() -> None:
    plain = service.ModelService.CreateResponse

    async def counted(self: Any, request: Any, context: Any) -> Any:
        reply = await plain(self, request, context)
        _bytes["calls"] += 1
        _bytes["model"] += request.ByteSize() + reply.ByteSize()
        return reply

    service.ModelService.CreateResponse = counted  # type: ignore[method-assign]


async def main(turns: int, rollouts: int) -> None:
    """Prints the figures."""
    global _turns
    _turns = turns
    _count_model_calls()
    agents = {"tool_loop": AgentConfig(max_steps=turns)}
    plain = configuration("http://127.0.0.1:9", "embedded")
    models = {name: ModelConfig(backend=f"{__name__}:Scripted") for name in plain.models}
    async with embedded(msgspec.structs.replace(plain, agents=agents, models=models)) as mesh:

        async def connect(name: str) -> Any:
            return _Counted(await mesh.agents.connect(name, held=True))

        with tempfile.TemporaryDirectory() as folder:
            for number in (0, 1):  # the first run warms up
                rows = Path(folder) / f"{number}.jsonl"
                output = RunOutput.open(OutputFiles(rows), RunIdentity("", ""))
                options = CollectOptions(repeats=rollouts if number else 4, concurrency=64)
                _bytes.update(calls=0, model=0, events=0)
                before = time.process_time()
                collector = Collector(connect, output, options, stored=mesh.agents.stored)
                tally = await collector.run([task()])
                used = time.process_time() - before
                assert tally.completed == options.repeats, tally
            each = rollouts * turns
            assert _bytes["calls"] == each, _bytes
            found = {
                "cpu_us": used / each * 1e6,
                "model_bytes": _bytes["model"] / each,
                "event_bytes": _bytes["events"] / each,
                "row_bytes": rows.stat().st_size / each,
            }
    print(json.dumps(found))


def report(found: dict[int, dict[str, float]]) -> str:
    """Part of the page's section."""
    rows = [
        [
            str(turns),
            f"{one['cpu_us']:.0f}",
            f"{one['model_bytes']:.0f}",
            f"{one['event_bytes']:.0f}",
            f"{one['row_bytes']:.0f}",
        ]
        for turns, one in found.items()
    ]
    heads = [
        "turns in the rollout",
        "CPU per turn, µs",
        "bytes per turn between agent and model service",
        "bytes per turn of events",
        "bytes per turn in the row",
    ]
    return (
        "Part `turns`: the cost of one turn in rollouts with different numbers of turns. In this "
        "part the model service keeps the conversation. The row of a rollout of "
        f"{TURNS[-1]} turns has {TURNS[-1]} times the bytes in the last line:"
        f"\n\n{table(heads, rows)}"
    )


def misses(found: dict[int, dict[str, float]]) -> Sequence[str]:
    """One sentence for each figure of a turn that grows with the number of turns."""
    lines = []
    few, many = TURNS[1], TURNS[-1]
    for key in ("cpu_us", "model_bytes", "event_bytes", "row_bytes"):
        growth = found[many][key] / found[few][key]
        if growth > MOST_GROWTH:
            lines.append(
                f"{key} of one turn: {growth:.2f} times as high with {many} turns as with {few}, "
                f"limit {MOST_GROWTH:g} times"
            )
    return lines


if __name__ == "__main__":
    # As a module of its own name: the backend is found by it.
    from tests.scale.scale_bench import turns as here

    run(here.main(int(sys.argv[1]), int(sys.argv[2])))
