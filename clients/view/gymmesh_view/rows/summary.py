"""What the index keeps of a row: the columns of the table, its labels and its words. Pure.

Rows may come from anybody: a key of another type than rows have counts as not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data import stored_rollout
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


@dataclass(frozen=True, slots=True)
class Summary:
    """A row of the table; what the row does not say is empty, 0, or None for `started_at`.

    Attributes:
        outcome: COMPLETED or FAILED.
        verdict: the verification's status.
        cause: the reason of a failure.
        turns: model calls of the root agent.
        started_at: seconds since 1970.
        flags: HAS_TOKENS, HAS_IMAGES.
        tags: `key=value` each.
        tools: the names of the tools that were called.
        actors: of the actors whose conversations the row has.
        title: the beginning of what the user asked.
        words: the text that a search looks in.
    """

    rollout_id: str
    task: str
    repeat: int
    attempt: int
    outcome: int
    environment: str
    agent: str
    model: str
    reward: float | None
    verdict: str
    stop: str
    boundary: str
    cause: str
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    duration_us: int
    started_at: float | None
    flags: int
    tags: tuple[str, ...]
    tools: tuple[str, ...]
    actors: tuple[str, ...]
    title: str
    words: str


def summary_of(row: Any, where: str) -> Summary:
    """The summary of a row, one JSON value.

    Raises:
        UserError: it is no rollout's row; the text names `where` and the key.
    """
    rollout = stored_rollout(row, where)
    row = rollout.row
    response = row["response"]
    metadata, failure = rollout.metadata, object_of(row, "failure")
    timings, usage = object_of(metadata, "timings"), object_of(response, "usage")
    status = object_of(failure, "status")
    calls = [one for one in rollout.output if one.get("type") == "function_call"]
    turns = metadata.get("steps_taken")
    return Summary(
        rollout_id=clean(rollout.rollout_id),
        task=clean(rollout.task_id),
        repeat=_whole(row.get("repeat_index")),
        attempt=_whole(row.get("attempt")),
        outcome=FAILED if rollout.failed else COMPLETED,
        environment=text_of(row, "environment"),
        agent=text_of(row, "agent"),
        model=text_of(response, "model"),
        reward=rollout.reward if math.isfinite(rollout.reward or 0.0) else None,
        verdict=text_of(object_of(row, "verification"), "status"),
        stop=text_of(row, "stop_reason"),
        boundary=text_of(failure, "boundary"),
        cause=text_of(status, "reason"),
        turns=_whole(turns)
        if type(turns) is int
        else max(call_numbers(rollout.output), default=-1) + 1,
        tool_calls=len(calls),
        input_tokens=_whole(usage.get("input_tokens")),
        output_tokens=_whole(usage.get("output_tokens")),
        duration_us=_whole(timings.get("duration_us")),
        started_at=_seconds(timings.get("started_at")),
        flags=_flags(rollout.first_items, rollout.output),
        tags=_tags(row),
        tools=tuple(sorted({text_of(one, "name") for one in calls} - {""})),
        actors=tuple(sorted(actors_in(row))),
        title=_title(rollout.first_items),
        words=_words(rollout.task_id, rollout.rollout_id, rollout.instructions, row, status),
    )


def text_of(value: Json, key: str) -> str:
    """A key that is a text; empty where it is anything else."""
    found = value.get(key)
    return clean(found) if isinstance(found, str) else ""


def clean(text: str) -> str:
    """Text that UTF-8 can carry: unpaired surrogates are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def actors_in(row: Json) -> dict[str, Json]:
    """A row's actors by name: `actors`, an object or a list of objects with a name."""
    said = row.get("actors")
    if isinstance(said, dict):
        return {clean(name): one for name, one in said.items() if isinstance(one, dict)}
    return {
        name: one
        for one in objects_of(row, "actors")
        if (name := text_of(one, "actor") or text_of(one, "name"))
    }


def conversations_of(actor: Json) -> list[Json]:
    """An actor's conversations, each with `first_items` and `items`: those that rows have, or the
    one that other writers put beside the actor's name.
    """
    said = actor.get("conversations")
    if isinstance(said, list):
        return [
            one | {key: objects_of(one, key) for key in ("first_items", "items")}
            for one in said
            if type(one) is dict
        ]
    first = objects_of(actor, "first_items")
    items = [item for key in ("items", "output", "messages") for item in objects_of(actor, key)]
    return [{"first_items": first, "items": items}] if first or items else []


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


def _seconds(value: Any) -> float | None:
    if type(value) not in (int, float) or not 0 < value < 1e12:
        return None
    return float(value)


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


def _words(task_id: str, rollout_id: str, instructions: str, row: Json, status: Json) -> str:
    pieces = [task_id, rollout_id, instructions, text_of(status, "message")]
    pieces += [text_of(object_of(row, "verification"), "reason")]
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
    for items in (first, row["response"].get("output"), *spoken):
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
