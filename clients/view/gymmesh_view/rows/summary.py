"""The parts of a row in the index: the columns of the table, the labels and the words. Pure.

Rows may be written by any program. A key with the wrong type counts as missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from gymmesh_data import StoredRollout, actors_of
from gymmesh_data.rollout import list_of, object_of, rollout_of_line
from gymmesh_responses import dumps

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
    """A row of the table. A missing fact is empty, 0, or None for `started_at`."""

    def __init__(self, rollout: StoredRollout) -> None:
        metadata, failed = rollout.metadata, rollout.value("failure")
        failure: Json = failed if isinstance(failed, dict) else {}
        timings, usage = object_of(metadata, "timings"), rollout.total_usage
        status, turns = object_of(failure, "status"), metadata.get("steps_taken")
        calls = [one for one in rollout.output if one.get("type") == "function_call"]
        self.rollout_id = clean(rollout.rollout_id)
        self.task = clean(rollout.task_id)
        self.repeat = _whole(rollout.repeat_index)
        self.attempt = _whole(rollout.value("attempt"))
        self.outcome = FAILED if rollout.failed else COMPLETED
        self.environment = clean(rollout.environment)
        self.agent = clean(rollout.agent)
        self.model = clean(rollout.model)
        self.reward = rollout.reward if math.isfinite(rollout.reward or 0.0) else None
        self.verdict = text_of(rollout.verification, "status")
        self.stop = clean(rollout.stop_reason)
        self.boundary = text_of(failure, "boundary")
        self.cause = text_of(status, "reason")
        #: Model calls of the root agent.
        self.turns = _whole(turns)
        if type(turns) is not int:
            self.turns = sum(1 for _ in rollout.answers())
        self.tool_calls = len(calls)
        #: Of all model calls of the agent.
        self.input_tokens = _whole(usage.get("input_tokens"))
        self.output_tokens = _whole(usage.get("output_tokens"))
        self.duration_us = _whole(timings.get("duration_us"))
        started: Any = timings.get("started_at")
        known = type(started) in (int, float) and 0 < started < 1e12
        self.started_at = float(started) if known else None  # seconds since 1970
        self.flags = _flags(rollout)
        self.tags = _tags(rollout)  # `key=value` each
        self.tools = tuple(sorted({text_of(one, "name") for one in calls} - {""}))
        names = (clean(one.name) for one in rollout.columns.actors)
        self.actors = tuple(sorted(set(names) - {""}))
        self.title = _title(rollout.first_items)
        #: The text that a search looks in.
        self.words = _words(rollout, status)


def summary_of(line: bytes, where: str) -> Summary:
    """The summary of a line of a file. Raises UserError if the line is not a rollout's row; the
    message has `where` and the key.
    """
    return Summary(rollout_of_line(line, where))


def text_of(value: Json, key: str) -> str:
    """The value of a key if it is a text; else empty."""
    found = value.get(key)
    return clean(found) if isinstance(found, str) else ""


def clean(text: str) -> str:
    """Text that UTF-8 can carry: unpaired surrogates are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= _MOST_INT else 0


def _flags(rollout: StoredRollout) -> int:
    flags = HAS_TOKENS if rollout.has_tokens else 0
    for item in chain(rollout.first_items, rollout.output):
        for part in (*list_of(item, "content"), *list_of(item, "output")):
            if isinstance(part, dict) and part.get("type") == "input_image":
                flags |= HAS_IMAGES
    return flags


def _tags(rollout: StoredRollout) -> tuple[str, ...]:
    told = rollout.value("tags")
    tags: Json = told if isinstance(told, dict) else {}
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
    pieces = [rollout.task_id, rollout.rollout_id, rollout.instructions]
    pieces += [text_of(status, "message"), text_of(rollout.verification, "reason")]
    pieces += _tags(rollout)
    left = _WORDS_CHARS
    actors = actors_of(rollout)
    spoken = (one.output for actor in actors for one in actor.conversations)
    for item in chain(rollout.first_items, rollout.output, chain.from_iterable(spoken)):
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
