"""Rollouts as rows of a table with typed columns; arrow.py makes files of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gymmesh_data.exports.arrow import EXTRA, PARQUET_SUFFIXES, pack_arrow, pack_parquet
from gymmesh_data.exports.format import Format, Taken, TokenPlace
from gymmesh_data.exports.formats.chat import as_text, metadata_of
from gymmesh_data.rollout import Json, list_of, object_of, objects_of, text_of
from gymmesh_data.tasks import task_of

MISFIT: Final = "values that are not of their column's type"


def table_row(taken: Taken) -> Iterator[Json]:
    """A rollout. Values without a typed column are JSON text in `task` and `verification`."""
    rollout, losses = taken.rollout, taken.said.losses
    told, usage = metadata_of(rollout, taken.said), rollout.total_usage
    timings, verification = object_of(rollout.metadata, "timings"), rollout.verification
    yield {
        "task_id": rollout.task_id,
        "rollout_id": rollout.rollout_id,
        "run_id": rollout.run_id,
        "repeat_index": rollout.repeat_index,
        "attempt": _whole({"attempt": rollout.value("attempt")}, "attempt", losses),
        "environment": told["environment"],
        "agent": rollout.agent,
        "model": rollout.model,
        "stop_reason": told["stop_reason"],
        "reward": rollout.reward,
        "verified": told["verified"],
        "explanation": text_of(verification, "explanation") or None,
        "verification": as_text(verification) if verification else None,
        "steps_taken": _whole(told, "steps_taken", losses),
        "tools_used": [one for one in list_of(told, "tools_used") if isinstance(one, str)],
        "tool_outcomes": [
            {"name": text_of(one, "name"), "outcome": text_of(one, "outcome")}
            | {"calls": _whole(one, "calls", losses)}
            for one in objects_of(told, "tool_outcomes")
        ],
        "weights_versions": [one for one in list_of(told, "weights_versions") if type(one) is int],
        "input_tokens": _whole(usage, "input_tokens", losses),
        "output_tokens": _whole(usage, "output_tokens", losses),
        "started_at": _number(timings, "started_at", losses),
        "duration_us": _whole(timings, "duration_us", losses),
        "prompt_length": taken.said.prompt_length,
        "messages": [_message(one) for one in taken.said.messages],
        "tools": as_text(taken.said.tools) if taken.said.tools else None,
        "task": as_text(task_of(rollout)),
        "samples": taken.samples(),
    }


def _message(message: Json) -> Json:
    """A message with a text for its content; parts (images) as JSON text beside it."""
    if isinstance(message["content"], list):
        return message | {"content": None, "parts": as_text(message["content"])}
    return message


def _whole(value: Json, key: str, losses: Counter[str]) -> int | None:
    found = value.get(key)
    if found is None or (type(found) is int and -(2**63) <= found < 2**63):
        return found
    losses[MISFIT] += 1
    return None


def _number(value: Json, key: str, losses: Counter[str]) -> float | None:
    found = value.get(key)
    if found is None or type(found) is float or type(found) is int:
        return found
    losses[MISFIT] += 1
    return None


MADE: Final = (
    Format(
        name="parquet",
        about="every rollout, as a Parquet table with typed columns",
        of_rollout=table_row,
        tokens=TokenPlace.SAMPLES,
        pack=pack_parquet,
        suffixes=PARQUET_SUFFIXES,
        needs=EXTRA,
    ),
    Format(
        name="arrow",
        about="every rollout, as an Arrow stream with typed columns",
        of_rollout=table_row,
        tokens=TokenPlace.SAMPLES,
        pack=pack_arrow,
        suffixes=(".arrow", ".arrows"),
        needs=EXTRA,
    ),
)
"""The formats of this module."""
