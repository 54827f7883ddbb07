"""What a rollout that waits for its model takes: memory over all processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tests.scale.report import table
from tests.scale.rollout_bench.contender import Contender
from tests.scale.rollout_bench.model import Endpoint, endpoint

NAMES: Final = ("floor", "embedded", "cell", "mesh")
LIMIT_KB: Final = 60.0  # per parked rollout, over all our processes
BLOCK_MS: Final = 200.0
_MODEL_S: Final = 30.0
_SOON_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Parked:
    """KB of 1e3 bytes (PSS) for each parked rollout; the longest block of the
    collector's loop, without and with its waits for a processor.
    """

    kb: float
    block_ms: float
    late_ms: float
    processes: int


def park(name: str, rollouts: int) -> Parked:
    """Runs so many at once against a model that takes 30 s; every one must complete."""
    room = "floor" if name == "floor" else "ours"
    command = [sys.executable, "-m", f"tests.scale.rollout_bench.{room}"]
    with ExitStack() as stack:
        model = stack.enter_context(endpoint())
        ours = [] if name == "floor" else [name]
        contender = Contender.start(name, [*command, model.url, *ours], stack)
        contender.run(200, 64)
        before_mb = contender.mb
        model.answer_within(_MODEL_S, _MODEL_S)
        contender.ask(rollouts, rollouts)
        _wait_for(model, rollouts * 99 // 100)
        parked_mb = contender.mb
        model.answer_within(0.0, 0.0)  # the second call of each
        done = contender.wait()
        kb = (parked_mb - before_mb) * 1e3 / rollouts
        return Parked(kb, done["block_ms"], done["late_ms"], contender.processes)


def _wait_for(model: Endpoint, calls: int) -> None:
    deadline = time.monotonic() + _SOON_S
    while (waiting := model.waiting()) < calls:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{waiting} model calls were in flight after {_SOON_S:.0f} s, expected {calls}"
            )
        time.sleep(0.1)


def report(found: dict[str, Parked], rollouts: int) -> str:
    """Part of the page's section."""
    floor = found["floor"]
    rows = [
        [
            "bare aiohttp" if name == "floor" else name,
            f"{one.kb:.1f}",
            "" if name == "floor" else f"{one.kb - floor.kb:.1f}",
            f"{one.block_ms:.0f}",
            f"{one.late_ms:.0f}",
        ]
        for name, one in found.items()
    ]
    heads = [
        "contender",
        "memory per rollout, KB",
        "memory per rollout minus the memory per rollout of bare aiohttp, KB",
        "longest time for which the event loop was blocked, without waits for a processor, ms",
        "longest time for which the event loop was blocked, with waits for a processor, ms",
    ]
    return (
        f"Part `parked`: {rollouts:,} rollouts were in flight. Each rollout waited for a model "
        f"call of {_MODEL_S:.0f} s, and no rollout failed:\n\n{table(heads, rows)}"
    )


def misses(found: dict[str, Parked]) -> Sequence[str]:
    """One sentence for each limit that was not kept."""
    lines = []
    for name, one in found.items():
        if name == "floor":
            continue
        if one.kb > LIMIT_KB:
            lines.append(
                f"{name}: {one.kb:.1f} KB of memory per waiting rollout, limit {LIMIT_KB:.0f} KB"
            )
        if one.block_ms > BLOCK_MS:
            lines.append(
                f"{name}: the event loop was blocked for {one.block_ms:.0f} ms, "
                f"limit {BLOCK_MS:.0f} ms"
            )
    return lines
