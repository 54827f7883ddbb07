"""One long session of a program: python -m tests.scale.gateway_bench.session CALLS.

The embedded mesh, with a model that gives tokens and answers at once: each call reads 100 new token
ids and samples 100, with log probabilities. Prints the bytes and the milliseconds of CPU of its
row, of what the page shows of it, and of its exports; and how long the program's last calls took.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_data import export
from gymmesh_data.rollout import rollout_of_line
from gymmesh_mesh import embedded
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.tokens import count
from gymmesh_responses import response_from_json
from gymmesh_runtime.serving.loop import run
from gymmesh_view.rollout.detail import detail_of
from tests.scale.bench_export import CASES
from tests.scale.bench_rows import recorded
from tests.scale.gateway_bench.driver import Work, listening, play
from tests.scale.gateway_bench.ours import AGENT, driven, task
from tests.scale.gateway_bench.speech import ARGUMENTS, TEXT
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT

CALLS: Final = (125, 250, 500)
EXPORTS: Final = ("messages", "sft", "tokens")
#: Of the bytes and the CPU for each call, from the fewest calls to the most.
MOST_GROWTH: Final = {"bytes": 1.1, "ms": 2.0}
_TOKENS: Final = 100
_RUNS: Final = 3
_LAST: Final = 20  # calls
_BOUND_S: Final = 300
_NUMBERS: Final = itertools.count(1)


class Sampled(Backend):
    """A backend that calls a tool each time, and gives tokens."""

    endpoint_model = "scripted"
    calls_endpoint = False
    features = Features(takes_items=True)
    capabilities = model_pb2.ModelCapabilities(tools=True, token_ids=True, logprobs=True)

    def __init__(self, name: str, config: Any) -> None:
        pass

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The next answer."""
        number = next(_NUMBERS)
        if (record := call.record) is not None:
            if call.prefix is not None and not call.prefix.rewritten:
                record.prefix_tokens = count(call.prefix.tokens)
            ids = struct.pack(f"<{_TOKENS}i", *range(number, number + _TOKENS))
            record.known, record.closed, record.prompt = True, True, ids
            record.output.append(ids)
            record.logprobs.append(struct.pack(f"<{_TOKENS}f", *[-0.51234] * _TOKENS))
        content = [{"type": "output_text", "text": TEXT, "annotations": []}]
        message = {"type": "message", "role": "assistant", "status": "completed"}
        tool = {"type": "function_call", "name": "shell", "arguments": ARGUMENTS}
        output = [{**message, "content": content}, {**tool, "call_id": f"call_{number}"}]
        usage = {"input_tokens": 100, "output_tokens": 100, "total_tokens": 200}
        about = {"id": f"resp_{number}", "object": "response", "status": "completed"}
        return response_from_json({**about, "output": output, "usage": usage})


class _Watched:
    """An agent's peer whose events are kept."""

    def __init__(self, peer: Any, events: list[Any]) -> None:
        self._peer = peer
        self._events = events

    def run_rollout(self, request: Any, *, sink: Callable[[Any], Any], **kept: Any) -> Any:
        """Keeps each event."""

        def kept_event(event: Any) -> Any:
            self._events.append(event)
            return sink(event)

        return self._peer.run_rollout(request, sink=kept_event, **kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)


async def _collected(calls: int, folder: Path) -> tuple[list[Any], bytes, float]:
    """The events and the row of a session, and the median milliseconds of its last calls."""
    events: list[Any] = []
    async with listening() as opened:
        plain = driven("http://127.0.0.1:9", opened.address, "embedded")
        agent = msgspec.structs.replace(plain.agents[AGENT], capture_tokens=True)
        model = ModelConfig(backend=f"{Sampled.__module__}:Sampled")
        config = msgspec.structs.replace(plain, agents={AGENT: agent}, models={"policy": model})
        async with embedded(config) as mesh:

            async def connect(name: str) -> Any:
                return _Watched(await mesh.agents.connect(name, held=True), events)

            rows = OutputFiles(folder / "rows.jsonl")
            output = RunOutput.open(rows, RunIdentity("", ""))
            collector = Collector(connect, output, CollectOptions(), stored=mesh.agents.stored)
            running = asyncio.create_task(collector.run([task()]))
            work = Work("chat", stream=False, programs=1, calls=calls, model_s=0.0, pause_s=0.0)
            played = await play(work, await opened.places(1), time.process_time)
            tally = await running
            assert tally.completed == 1, tally
    line = (folder / "rows.jsonl").read_bytes().splitlines()[0]
    return events, line, statistics.median(played.ms[-_LAST:])


def _least_ms(do: Callable[[], object]) -> float:
    """Milliseconds of CPU, the least of some runs."""
    found = []
    for _ in range(_RUNS):
        begun = time.process_time()
        do()
        found.append((time.process_time() - begun) * 1e3)
    return min(found)


def _exported(line: bytes, folder: Path) -> dict[str, Any]:
    source, target, found = folder / "one.jsonl", folder / "out", dict[str, Any]()
    source.write_bytes(line + b"\n")
    for name in EXPORTS:

        def write(name: str = name) -> None:
            target.unlink(missing_ok=True)
            assert export([source], target, name, CASES[name]).records

        ms = _least_ms(write)
        found[f"export {name}"] = {"bytes": target.stat().st_size, "ms": ms}
    return found


def _shown(line: bytes) -> bytes:
    return orjson.dumps(detail_of(rollout_of_line(line, "one.jsonl:1")))


async def main(calls: int) -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        events, line, call_ms = await _collected(calls, folder / "rows")
        row_ms = min([sum((await recorded(events))[1:3]) for _ in range(_RUNS)]) * 1e3
        found: dict[str, Any] = {
            "row made": {"bytes": len(line), "ms": row_ms},
            "row read": {"ms": _least_ms(lambda: rollout_of_line(line, "one.jsonl:1"))},
            "page": {"bytes": len(_shown(line)), "ms": _least_ms(lambda: _shown(line))},
            **_exported(line, folder),
            "call": {"ms": call_ms},
        }
    print(json.dumps(found))


def measure(calls: int) -> dict[str, dict[str, float]]:
    """Bytes and milliseconds of CPU of each part."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale.gateway_bench.session", str(calls)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=_BOUND_S,
        check=True,
    )
    figures: dict[str, dict[str, float]] = json.loads(done.stdout)
    return figures


_DONE: Final = {
    "row made": "build the row",
    "row read": "read the row",
    "page": "show the rollout on the page of `gym-cli view`",
    **{f"export {name}": f"export `{name}`" for name in CASES},
}


def report(found: dict[int, dict[str, dict[str, float]]]) -> str:
    """Part of the page's section."""
    parts = [name for name in next(iter(found.values())) if name != "call"]
    rows = [
        [
            _DONE.get(name, name),
            *(f"{one[name]['bytes'] / 1e3:,.0f}" if "bytes" in one[name] else ""
              for one in found.values()),
            *(f"{one[name]['ms']:.1f}" for one in found.values()),
        ]
        for name in parts
    ]  # fmt: skip
    heads = ["operation", *(f"{calls} calls, KB" for calls in found)]
    heads += [f"{calls} calls, CPU ms" for calls in found]
    *most, last = (f"{one['call']['ms']:.1f}" for one in found.values())
    *fewer, many = map(str, found)
    return (
        'Part "A session": one session, in which each call reads 100 new tokens and samples 100:'
        f"\n\n{table(heads, rows)}\n\n"
        f"The last call of a session takes {', '.join(most)} and {last} ms from the request to "
        f"the answer, in sessions of {', '.join(fewer)} and {many} calls. The body of this "
        "request contains the whole conversation."
    )


def misses(found: dict[int, dict[str, dict[str, float]]]) -> Sequence[str]:
    """One sentence for each figure that grows by more than its calls."""
    few, many = min(found), max(found)
    lines = []
    for name, figures in found[many].items():
        for key, most in MOST_GROWTH.items() if name != "call" else ():
            if key not in figures:
                continue
            growth = figures[key] / found[few][name][key] / (many / few)
            if growth > most:
                lines.append(
                    f"{name}: with {many} calls, the {key} per call are {growth:.2f} times as "
                    f"high as with {few} calls, limit {most} times"
                )
    return lines


if __name__ == "__main__":
    # As a module of its own name: the backend is found by it.
    from tests.scale.gateway_bench import session as here

    run(here.main(int(sys.argv[1])))
