"""What a mesh adds to a model call and a tool call.

    python -m tests.scale.scale_bench.latency URL LAYOUT IN_FLIGHT ROLLOUTS

Collects rollouts of two model calls and a tool call from a model that takes its time, so that the
processors are not busy all the time, and prints milliseconds: of a model call what it took the
agent less what it took from sending the HTTP request to its answer; of a tool call all of it. The
first half of the rollouts, which begin together, does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_runtime.serving.loop import run
from tests.scale.report import table
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.model import endpoint
from tests.scale.rollout_bench.ours import configuration, opened, task

LAYOUTS: Final = ("cell", "mesh")
#: Seconds that a model call takes on average, by what is in flight: some 200 rollouts a second.
MODEL_S: Final = {64: 0.16, 512: 1.3, 10_000: 25.0}
#: At most so many milliseconds at the 99th percentile, by what is in flight.
MOST_MS: Final = {512: 5.0, 10_000: 10.0}
_ROUNDS: Final = 4  # rollouts for each in flight
_BOUND_S: Final = 900


class Added:
    """Milliseconds that calls took, of the rollouts that ended after the first `skipped`."""

    def __init__(self, skipped: int) -> None:
        self.model: list[float] = []
        self.tool: list[float] = []
        self._skipped = skipped
        self._ended = 0
        self._began = 0.0

    @property
    def per_s(self) -> float:
        """Rollouts a second that count."""
        return (self._ended - self._skipped) / (time.perf_counter() - self._began)

    def take(self, event: Any) -> None:
        """Looks at an event."""
        kind = event.WhichOneof("event")
        if kind == "completed":
            self._ended += 1
            if self._ended == self._skipped:
                self._began = time.perf_counter()
        elif self._ended < self._skipped:
            return
        elif kind == "model_call_completed":
            timings = event.model_call_completed.timings
            self.model.append((timings.total_us - timings.endpoint_us) / 1e3)
        elif kind == "tool_call_completed":
            self.tool.append(event.tool_call_completed.timings.total_us / 1e3)


class _Watched:
    """An agent's peer whose events are looked at on their way."""

    def __init__(self, peer: Any, added: Added) -> None:
        self._peer = peer
        self._added = added

    def run_rollout(self, request: Any, *, sink: Callable[[Any], Any], **kept: Any) -> Any:
        """Looks at each event."""

        def watched(event: Any) -> Any:
            self._added.take(event)
            return sink(event)

        return self._peer.run_rollout(request, sink=watched, **kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main(url: str, layout: str, in_flight: int, rollouts: int) -> None:
    """Prints the figures."""
    added = Added(rollouts // 2)
    async with opened(configuration(url, layout)) as mesh:

        async def connect(name: str) -> Any:
            return _Watched(await mesh.agents.connect(name, held=True), added)

        with tempfile.TemporaryDirectory() as folder:
            rows = OutputFiles(Path(folder) / "rows.jsonl")
            output = RunOutput.open(rows, RunIdentity("", ""))
            options = CollectOptions(repeats=rollouts, concurrency=in_flight)
            collector = Collector(connect, output, options, stored=mesh.agents.stored)
            tally = await collector.run([task()])
            assert tally.completed == rollouts, tally
    found = {"per_s": added.per_s}
    for name, values in (("model", added.model), ("tool", added.tool)):
        found[f"{name}_p50"] = percentile(values, 0.5)
        found[f"{name}_p99"] = percentile(values, 0.99)
    print(json.dumps(found))


def measure(layout: str, in_flight: int, share: float = 1.0) -> dict[str, float]:
    """The figures of a layout. share: of the usual rollouts."""
    usual = MODEL_S[in_flight]
    rollouts = max(2 * in_flight, int(max(_ROUNDS * in_flight, 2048) * share))
    with endpoint() as model:
        model.answer_within(0.5 * usual, 1.5 * usual)
        command = [sys.executable, "-m", "tests.scale.scale_bench.latency", model.url, layout]
        done = subprocess.run(
            [*command, str(in_flight), str(rollouts)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=_BOUND_S,
            check=True,
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(found: dict[tuple[str, int], dict[str, float]]) -> str:
    """Part of the page's section."""
    rows = [
        [
            layout,
            f"{in_flight:,}",
            f"{MODEL_S[in_flight]:g} s",
            f"{one['per_s']:.0f}",
            *(f"{one[f'{call}_{at}']:.1f}" for call in ("model", "tool") for at in ("p50", "p99")),
        ]
        for (layout, in_flight), one in found.items()
    ]
    heads = ["layout", "rollouts in flight", "model's latency", "rollouts per second"]
    heads += [f"time added to a model call, {at}, ms" for at in ("p50", "p99")]
    heads += [f"time of a tool call, {at}, ms" for at in ("p50", "p99")]
    return (
        "Part `latency`: the time that gymmesh adds to a model call, and the time of a tool call:"
        f"\n\n{table(heads, rows)}"
    )


def misses(found: dict[tuple[str, int], dict[str, float]]) -> Sequence[str]:
    """One sentence for each limit that was not kept."""
    return [
        f"{layout}, {in_flight} rollouts in flight: the p99 of a {call} call is "
        f"{one[f'{call}_p99']:.1f} ms, limit {MOST_MS[in_flight]:g} ms"
        for (layout, in_flight), one in found.items()
        for call in ("model", "tool")
        if one[f"{call}_p99"] > MOST_MS.get(in_flight, float("inf"))
    ]


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
