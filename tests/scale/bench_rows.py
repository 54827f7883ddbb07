"""Measures rows: their size, the CPU to build and read a row, and how long the loop is blocked.

    python tests/scale/bench_rows.py [--calls 8 32 128 512] [--events 337000]

A rollout has `calls` model calls, with a tool call between two model calls. Each model call reads
100 new token ids and samples 100 token ids with log probabilities. The bench builds the row like a
collector. A ticker in the same event loop measures how long the loop is blocked.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.row_maker import RowMaker
from gymmesh_client.rollout import Fold
from gymmesh_responses import function_call_output, new_message
from gymmesh_rows import read_row
from tests.support.rollouts import completed, make_events, make_task, verdict

TOKENS = 100
RUNS = 5


def ids(first: int) -> bytes:
    return struct.pack(f"<{TOKENS}i", *range(first, first + TOKENS))


def events_of(calls: int) -> list[pb.RolloutEvent]:
    """The events of a rollout of so many model calls."""
    logprobs = struct.pack(f"<{TOKENS}f", *[-0.51234] * TOKENS)
    bodies: list[pb.RolloutEvent] = []
    for number in range(calls):
        event = pb.RolloutEvent()
        call = event.model_call_completed
        call.call_id, call.model, call.trainable = f"c{number}", "policy", True
        if number:
            call.parent_call_id = f"c{number - 1}"
        call.response.id, call.response.status = f"resp_{number}", "completed"
        item = call.response.output.add()
        item.function_call.call_id, item.function_call.name = f"f{number}", "look"
        item.function_call.arguments = b'{"at": "the next page"}'
        call.response.usage.input_tokens = 2 * number * TOKENS + TOKENS
        call.response.usage.output_tokens = TOKENS
        call.tokens.prompt_token_ids = ids(10_000)
        call.tokens.output_token_ids = ids(50_000)
        call.tokens.logprobs = logprobs
        call.tokens.prompt_prefix_tokens = 2 * number * TOKENS
        call.tokens.weights.add(version=3)
        call.timings.total_us, call.timings.endpoint_us = 900, 800
        bodies.append(event)
        done = pb.RolloutEvent()
        tool = done.tool_call_completed
        tool.call_id, tool.name, tool.model_call_id = f"f{number}", "look", f"c{number}"
        tool.outcome = pb.TOOL_OUTCOME_OK
        tool.output.CopyFrom(function_call_output(f"f{number}", "a page of text " * 8))
        bodies.append(done)
    return make_events("ro-1", 1, *bodies, verdict(1.0), completed(), task=make_task())


def notes_of(events: int) -> list[pb.RolloutEvent]:
    """A rollout of so many events, most of them annotations."""
    bodies: list[pb.RolloutEvent] = []
    for number in range(events // 3):
        event = pb.RolloutEvent(ignorable=True)
        event.annotation.key, event.annotation.value_json = "bench.note", b'{"step":%d}' % number
        bodies.append(event)
        call = pb.RolloutEvent()
        call.model_call_completed.call_id = f"c{number}"
        call.model_call_completed.parent_call_id = f"c{number - 1}" if number else ""
        call.model_call_completed.model, call.model_call_completed.trainable = "policy", True
        call.model_call_completed.response.output.append(new_message("assistant", "on"))
        bodies.append(call)
        turn = pb.RolloutEvent()
        turn.turn_completed.turn, turn.turn_completed.model_call_id = number + 1, f"c{number}"
        turn.turn_completed.items.append(new_message("user", "and then?"))
        bodies.append(turn)
    return make_events("ro-1", 1, *bodies, verdict(1.0), completed(), task=make_task())


async def recorded(events: Sequence[pb.RolloutEvent]) -> tuple[bytes, float, float, float]:
    """The row; the CPU seconds of the fold and of the row, and the loop's longest stop in seconds,
    which counts what other programs take of a busy machine, too.
    """
    begun = time.process_time()
    fold = Fold(events[0].rollout_id, events[0].attempt, "run-1", "t-1")
    for event in events:
        fold.add(event)
    parts = fold.parts()
    parts.size = sum(event.ByteSize() for event in events)
    folded = time.process_time() - begun
    longest, ended = 0.0, False

    async def tick() -> None:
        nonlocal longest
        while not ended:
            at = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - at - 0.001)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    begun = time.process_time()
    line, _ = await RowMaker().completed(make_task(), parts)
    ended = True
    await ticker
    return line, folded, time.process_time() - begun, longest


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--calls",
        type=int,
        nargs="*",
        default=[2, 8, 32, 128, 512],
        help="numbers of model calls in a rollout (default: 2 8 32 128 512)",
    )
    parser.add_argument(
        "--events", type=int, default=0, help="also measure a rollout of this many events"
    )
    options = parser.parse_args()
    print(
        "row: size of the row. fold: CPU to collect the events. row ms: CPU to build the row. "
        "stop: longest time for which the event loop was blocked. read: CPU to read the row."
    )
    print(
        f"{'rollout':>16} {'row KB':>9} {'fold ms':>9} {'row ms':>9} {'stop ms':>9} {'read ms':>9}"
    )
    named = [(f"{calls} calls", events_of(calls)) for calls in options.calls]
    if options.events:
        named.append((f"{options.events} events", notes_of(options.events)))
    for name, events in named:
        best = [float("inf")] * 4
        for _ in range(RUNS):
            line, *figures = asyncio.run(recorded(events))
            begun = time.process_time()
            read_row(line)
            figures.append(time.process_time() - begun)
            best = [min(pair) for pair in zip(best, figures, strict=True)]
        shown = " ".join(f"{1000 * one:9.2f}" for one in best)
        print(f"{name:>16} {len(line) / 1000:9.1f} {shown}")


if __name__ == "__main__":
    main()
