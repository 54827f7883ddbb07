"""What a run's trace adds to a rollout: when each call was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_client.traces import open_trace
from gymmesh_view.rows import Json, clean

_MOST_SPANS: Final = 2_000
_ERRORS: Final[dict[int, str]] = {
    pb.TOOL_OUTCOME_TOOL_ERROR: "tool error",
    pb.TOOL_OUTCOME_BAD_ARGUMENTS: "bad arguments",
    pb.TOOL_OUTCOME_UNKNOWN_TOOL: "unknown tool",
}


def traced(rows: Path, rollout_id: str, attempt: int) -> list[Json]:
    """The calls of a rollout, see `spans_of`. Empty if it has no trace, or a damaged one."""
    try:
        with open_trace(rows) as trace:
            return spans_of(trace.events(rollout_id, attempt or None))
    except UserError:
        return []


def spans_of(events: Iterable[pb.RolloutEvent]) -> list[Json]:
    """The calls of a rollout in time, each with `name`, `note`, `kind`, `actor`, `start_us` from
    the rollout's beginning, and `duration_us`. The calls of one actor have different names: model
    calls are numbered from 1, and so are the calls of a tool that was called several times.

    An event is recorded when its call has ended.
    """
    spans: list[Json] = []
    start = 0
    for event in events:
        if event.HasField("started"):
            start = event.record_time_unix_nano
        kind, name, note, actor, took = _span(event)
        if name and len(spans) < _MOST_SPANS:
            end = (event.record_time_unix_nano - start) // 1000
            told = {"name": clean(name), "note": clean(note), "kind": kind, "actor": clean(actor)}
            spans.append(told | {"start_us": max(0, end - took), "duration_us": took})
    spans.sort(key=lambda one: one["start_us"])
    _number(spans)
    return spans


def _number(spans: list[Json]) -> None:
    """Put a number behind the name of every model call and of what has the same name as another."""
    counts = Counter((one["actor"], one["kind"], one["name"]) for one in spans)
    seen: Counter[tuple[str, str, str]] = Counter()
    for one in spans:
        key = (one["actor"], one["kind"], one["name"])
        seen[key] += 1
        if one["kind"] == "model" or counts[key] > 1:
            one["name"] = f"{one['name']} {seen[key]}"


def _span(event: pb.RolloutEvent) -> tuple[str, str, str, str, int]:
    """A call's kind, name, note, actor and microseconds; no name where an event is of no call."""
    match event.WhichOneof("event"):
        case "model_call_completed":
            call = event.model_call_completed
            return "model", "model call", call.model, call.actor, call.timings.total_us
        case "tool_call_completed":
            tool = event.tool_call_completed
            return "tools", tool.name, _outcome(tool.outcome), tool.actor, tool.timings.total_us
        case "verified":
            return "verify", "verify", "", "", event.verified.timings.total_us
    return "", "", "", "", 0


def _outcome(outcome: int) -> str:
    """A tool call's error in words; empty where it has none."""
    if outcome in (pb.TOOL_OUTCOME_OK, pb.TOOL_OUTCOME_UNSPECIFIED):
        return ""
    return _ERRORS.get(outcome, "error")
