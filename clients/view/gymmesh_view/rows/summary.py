"""What the index keeps of a row: the columns of the table, its labels and its words. Pure.

Rows may come from anybody: a key of another type than rows have counts as not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data import StoredRollout, stored_rollout
from gymmesh_data.rollout import is_answer, list_of, object_of, objects_of
from gymmesh_responses import dumps, loads

Json = dict[str, Any]

COMPLETED: Final = 0
FAILED: Final = 1
# Bits of `flags`.
HAS_TOKENS: Final = 1
HAS_IMAGES: Final = 2
_TITLE_CHARS: Final = 110
_WORDS_CHARS: Final = 64 * 1024
_MOST_TAGS: Final = 32
_MOST_INT: Final = (1 << 63) - 1


class Summary:
    """A row of the table; what the row does not say is empty, 0, or None for `started_at`."""

    def __init__(self, rollout: StoredRollout) -> None:
        row, metadata = rollout.row, rollout.metadata
        response, failure = row["response"], object_of(row, "failure")
        timings, usage = object_of(metadata, "timings"), object_of(response, "usage")
        status, turns = object_of(failure, "status"), metadata.get("steps_taken")
        calls = [one for one in rollout.output if one.get("type") == "function_call"]
        self.rollout_id = clean(rollout.rollout_id)
        self.task = clean(rollout.task_id)
        self.repeat = _whole(row.get("repeat_index"))
        self.attempt = _whole(row.get("attempt"))
        self.outcome = FAILED if rollout.failed else COMPLETED
        self.environment = text_of(row, "environment")
        self.agent = text_of(row, "agent")
        self.model = text_of(response, "model")
        self.reward = rollout.reward if math.isfinite(rollout.reward or 0.0) else None
        self.verdict = text_of(object_of(row, "verification"), "status")
        self.stop = text_of(row, "stop_reason")
        self.boundary = text_of(failure, "boundary")
        self.cause = text_of(status, "reason")
        #: Model calls of the root agent.
        self.turns = _whole(turns)
        if type(turns) is not int:
            self.turns = max(call_numbers(rollout.output), default=-1) + 1
        self.tool_calls = len(calls)
        self.input_tokens = _whole(usage.get("input_tokens"))
        self.output_tokens = _whole(usage.get("output_tokens"))
        self.duration_us = _whole(timings.get("duration_us"))
        started: Any = timings.get("started_at")
        known = type(started) in (int, float) and 0 < started < 1e12
        self.started_at = float(started) if known else None  # seconds since 1970
        self.flags = _flags(rollout.first_items, rollout.output)
        self.tags = _tags(row)  # `key=value` each
        self.tools = tuple(sorted({text_of(one, "name") for one in calls} - {""}))
        self.actors = tuple(sorted(actors_in(row)))
        self.title = _title(rollout.first_items)
        #: The text that a search looks in.
        self.words = _words(rollout, status)


def summary_of(row: Any, where: str) -> Summary:
    """The summary of a row, one JSON value. Raises UserError where it is no rollout's row; the text
    names `where` and the key.
    """
    return Summary(stored_rollout(row, where))


def text_of(value: Json, key: str) -> str:
    """A key that is a text; empty where it is anything else."""
    found = value.get(key)
    return clean(found) if isinstance(found, str) else ""


def clean(text: str) -> str:
    """Text that UTF-8 can carry: unpaired surrogates are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def actors_in(row: Json) -> dict[str, Json]:
    """A row's actors by name; see gymmesh_client.rows.actors."""
    return {name: one for one in objects_of(row, "actors") if (name := text_of(one, "name"))}


def conversations_of(actor: Json) -> list[Json]:
    """An actor's conversations, each with `first_items` and `items`."""
    return [
        one | {key: objects_of(one, key) for key in ("first_items", "items")}
        for one in objects_of(actor, "conversations")
    ]


def texts_of(content: Any) -> Iterator[str]:
    """The texts of a message's content or of a tool's output."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            said = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
            if isinstance(said, str):
                yield said
    elif content is not None:
        yield dumps(content).decode("utf-8", "replace")


def call_numbers(output: list[Json]) -> list[int]:
    """Of each item, the number of the last model call up to it, from 0; -1 before the first.

    The model's items in a row are one call, of which only the last item has tokens.
    """
    numbers: list[int] = []
    number, inside = -1, False
    for item in output:
        own = is_answer(item)
        number += own and not inside
        inside = own and "generation_token_ids" not in item
        numbers.append(number)
    return numbers


def row_of(line: bytes, where: str) -> Any:
    """The JSON value of a line. Raises UserError, which names `where`."""
    try:
        return loads(line)
    except ValueError as error:
        raise UserError(f"{where}: is not a line of JSON: {error}") from None


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= _MOST_INT else 0


def _flags(*lists: list[Json]) -> int:
    flags = 0
    for item in chain.from_iterable(lists):
        if "generation_token_ids" in item:
            flags |= HAS_TOKENS
        for part in (*list_of(item, "content"), *list_of(item, "output")):
            if isinstance(part, dict) and part.get("type") == "input_image":
                flags |= HAS_IMAGES
    return flags


def _tags(row: Json) -> tuple[str, ...]:
    tags = object_of(row, "tags")
    found = [clean(f"{key}={value}") for key, value in tags.items() if isinstance(value, str)]
    return tuple(sorted(found)[:_MOST_TAGS])


def _title(first_items: list[Json]) -> str:
    """The beginning of the first thing that a user said, on one line."""
    for item in first_items:
        if item.get("role") == "user":
            said = " ".join(texts_of(item.get("content")))[: 4 * _TITLE_CHARS]
            line = " ".join(clean(said).split())
            return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1] + "…"
    return ""


def _words(rollout: StoredRollout, status: Json) -> str:
    row = rollout.row
    pieces = [rollout.task_id, rollout.rollout_id, rollout.instructions]
    pieces += [text_of(status, "message"), text_of(object_of(row, "verification"), "reason")]
    pieces += _tags(row)
    left = _WORDS_CHARS
    params = row["responses_create_params"].get("input")
    first = row.get("first_items", params)
    if isinstance(first, str):
        pieces.append(first)
        first = []
    spoken = [
        conversation["items"]
        for actor in actors_in(row).values()
        for conversation in conversations_of(actor)
    ]
    for items in (first, rollout.output, *spoken):
        for item in items if isinstance(items, list) else []:
            if left <= 0:
                break
            for piece in _said(item):
                pieces.append(piece[:left])
                left -= len(piece)
    return clean("\n".join(piece for piece in pieces if piece))


def _said(item: Json) -> Iterator[str]:
    for key in ("name", "arguments"):
        if isinstance(item.get(key), str):
            yield item[key]
    for key in ("content", "output", "summary"):
        yield from texts_of(item.get(key))
