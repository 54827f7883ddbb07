"""What a run's trace adds to a rollout: when each call was made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_client.traces import open_trace
from gymmesh_view.rows import Json, clean

_MOST_SPANS: Final = 2_000


def traced(rows: Path, rollout_id: str, attempt: int) -> list[Json]:
    """The calls of a rollout, each with name, kind, actor, start_us and duration_us from its start;
    none where there is no trace of it, or it is damaged.
    """
    try:
        with open_trace(rows) as trace:
            return spans_of(trace.events(rollout_id, attempt or None))
    except UserError:
        return []


def spans_of(events: Iterable[pb.RolloutEvent]) -> list[Json]:
    """The calls of a rollout in time. An event is recorded when its call has ended."""
    spans: list[Json] = []
    start = 0
    for event in events:
        if event.HasField("started"):
            start = event.record_time_unix_nano
        kind, name, actor, took = _span(event)
        if name and len(spans) < _MOST_SPANS:
            end = (event.record_time_unix_nano - start) // 1000
            told = {"name": clean(name), "kind": kind, "actor": clean(actor)}
            spans.append(told | {"start_us": max(0, end - took), "duration_us": took})
    return spans


def _span(event: pb.RolloutEvent) -> tuple[str, str, str, int]:
    """A call's kind, name, actor and microseconds; no name where an event is of no call."""
    match event.WhichOneof("event"):
        case "model_call_completed":
            call = event.model_call_completed
            return "model", call.model or call.call_id, call.actor, call.timings.total_us
        case "tool_call_completed":
            tool = event.tool_call_completed
            return "tools", tool.name, tool.actor, tool.timings.total_us
        case "verified":
            return "verify", "verify", "", event.verified.timings.total_us
    return "", "", "", 0
