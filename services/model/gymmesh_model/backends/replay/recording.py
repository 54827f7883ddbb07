"""Recorded conversations: reads them, and finds the answer to a call. Pure, except for the file.

A recording is a JSONL file (blank lines are skipped) with rows of two kinds, in any mixture.

1. A rollout row, of NeMo Gym or of gymmesh, unchanged:

       {"responses_create_params": {"input": …}, "response": {"output": […], …}, …}

   `response.output` is split into the model's answers at items that the model did not write
   (function_call_output, user messages); these are dropped. Every answer has the response's other
   keys, but only the last answer has usage, status and incomplete_details.

2. A scripted row:

       {"match": "What is 2 + 3?", "repeat": 0, "answers": [ANSWER, …]}

   match: text of the conversation's last user message before the model's first answer, or a
       list with the texts of its last user messages in order, or "*" for every conversation
       that no other row matches.
   repeat: optional; which repeat of the task the row is for, from 0. Rows without it are
       counted in the file's order, per conversation.
   ANSWER: {"text": "…"} for a message, or {"output": [items]}, the items of a Responses output
       (`type` alone is needed: what the API also requires is filled in, ids derived from
       the place in the recording); optionally with
       "status", "incomplete_details", "usage", "model": as in a Responses document;
       "delay_s": seconds that the answer takes;
       "error": {"reason": "MODEL_SERVER_ERROR", "message"?, "metadata"?, "retry_after_s"?,
       "times"?}: the call fails with that reason; with `times`, only so often per rollout,
       and answers afterwards.

Which answer a call gets depends on its conversation and its rollout's repeat alone, so neither
order nor concurrency matters:

- the row: among the user messages of the call's input, the last one that a row matches; of several
  rows the one that matches most messages; of rows for the same conversation the one whose repeat
  is the rollout's. The repeat is the number at the end of the rollout_id, behind a
  character that is no letter or digit (`run-1/task-7/2` is repeat 2), modulo the number of rows;
- the answer's number: how many of the row's answers the input has after that message. This is
  found by the number of items that the model wrote. If an agent left some items out, the
  uninterrupted runs of such items are counted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final

from gymmesh_responses import CodecError, loads, media_urls_in_json, with_images_in_json

Json = dict[str, Any]
Texts = tuple[str, ...]

ANY: Final = "*"
_REPEAT: Final = re.compile(r"(?:^|[^0-9A-Za-z])(\d{1,9})$")
_NOT_MODEL: Final = re.compile(r".*_output$")
_ROW_KEYS: Final = frozenset(("match", "repeat", "answers"))
_ERROR_KEYS: Final = frozenset(("reason", "message", "metadata", "retry_after_s", "times"))
_RESPONSE_KEYS: Final = ("status", "incomplete_details", "usage", "model")
_ANSWER_KEYS: Final = frozenset(("text", "output", "delay_s", "error", *_RESPONSE_KEYS))


class RecordingError(ValueError):
    """A recording that cannot be used; one sentence that names the file and the line."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer: a Responses document, or the failure that comes instead or first.

    failures: how often the failure comes, per rollout, before the document; None is always.
    """

    document: Json
    delay_s: float = 0.0
    error: Mapping[str, Any] | None = None
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One recorded conversation. `index` is its number in the file, from 0."""

    index: int
    texts: Texts
    repeat: int | None
    answers: tuple[RecordedAnswer, ...]
    any: bool = False


@dataclass(slots=True)
class Recording:
    """All rows, by the last user message's text."""

    rows: list[RecordedRow]
    _by_text: dict[str, list[RecordedRow]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            self._by_text.setdefault(ANY if row.any else row.texts[-1], []).append(row)

    def find(self, value: object, rollout_id: str) -> tuple[RecordedRow, int] | None:
        """The row for a call and the number of its answer, from 0; None when no row matches.

        value: the `input` of the call's parameters. The number may be past the last answer.
        """
        items = _items(value)
        users = [(place, _text(item)) for place, item in enumerate(items) if _is_user(item)]
        rows, after = [row for row in self._by_text.get(ANY, []) if row.any], 0
        if users:
            after = users[-1][0] + 1
        for last in range(len(users) - 1, -1, -1):
            texts = tuple(text for _, text in users[: last + 1])
            if matching := self._matching(texts):
                rows, after = matching, users[last][0] + 1
                break
        if not rows:
            return None
        row = _of_repeat(rows, repeat_of(rollout_id))
        return row, _answer_number(row, items[after:])

    def _matching(self, texts: Texts) -> list[RecordedRow]:
        rows = [
            row
            for row in self._by_text.get(texts[-1], [])
            if not row.any and texts[-len(row.texts) :] == row.texts
        ]
        longest = max((len(row.texts) for row in rows), default=0)
        return [row for row in rows if len(row.texts) == longest]


def repeat_of(rollout_id: str) -> int:
    """The repeat that a rollout's id ends with; 0 when it ends with no number of its own."""
    found = _REPEAT.search(rollout_id)
    return int(found.group(1)) if found else 0


def read_recording(path: Path) -> Recording:
    """Reads the file. Raises RecordingError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RecordingError(f"cannot read the recording {path}: {error.strerror}") from None
    rows: list[RecordedRow] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(read_row(loads(line), len(rows)))
        except (CodecError, RecordingError) as error:
            raise RecordingError(f"{path}, line {number}: {error}") from None
    if not rows:
        raise RecordingError(f"the recording {path} has no rows")
    return Recording(rows)


def read_row(row: object, index: int = 0) -> RecordedRow:
    """One row, parsed. Raises RecordingError without file and line."""
    if not isinstance(row, Mapping):
        raise RecordingError("a row must be a JSON object")
    if "responses_create_params" in row:
        return _rollout_row(row, index)
    _check_keys(row, _ROW_KEYS, "a scripted row")
    match, answers = row.get("match"), row.get("answers")
    texts: Any = (match,) if isinstance(match, str) else match
    is_list = isinstance(texts, list | tuple) and bool(texts)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise RecordingError("'match' must be text or a list of texts")
    if not isinstance(answers, list):
        raise RecordingError("'answers' must be a list")
    repeat = row.get("repeat")
    if repeat is not None and type(repeat) is not int:
        raise RecordingError("'repeat' must be a whole number of at least 0")
    made = tuple(_scripted(answer, index, k) for k, answer in enumerate(answers))
    return RecordedRow(index, tuple(texts), repeat, made, any=match == ANY)


def split_output(output: Sequence[Any]) -> list[list[Any]]:
    """A rollout's output items as the model's answers, one list for each."""
    return [list(run) for by_model, run in groupby(output, _by_model) if by_model]


def _rollout_row(row: Mapping[str, Any], index: int) -> RecordedRow:
    params, response = row["responses_create_params"], row.get("response")
    if not isinstance(params, Mapping) or not isinstance(response, Mapping):
        raise RecordingError("'responses_create_params' and 'response' must be objects")
    output = response.get("output")
    if not isinstance(output, list):
        raise RecordingError("'response.output' must be a list")
    images = media_urls_in_json(row.get("media"))
    given = _items(with_images_in_json(params.get("input"), images))
    texts = tuple(_text(item) for item in given if _is_user(item))
    if not texts:
        raise RecordingError("'responses_create_params.input' has no user message to match")
    parts = split_output(output)
    answers = tuple(
        RecordedAnswer(_recorded(response, part, k, last=k == len(parts) - 1))
        for k, part in enumerate(parts)
    )
    repeat = row.get("repeat_index")
    return RecordedRow(index, texts, repeat if type(repeat) is int else None, answers)


def _recorded(response: Mapping[str, Any], output: list[Any], k: int, *, last: bool) -> Json:
    document = {**response, "output": output}
    if last:
        document["status"] = response.get("status") or "completed"
        return document
    document |= {"status": "completed", "incomplete_details": None, "usage": None}
    if isinstance(response.get("id"), str):
        document["id"] = f"{response['id']}_{k}"
    return document


def _scripted(answer: object, index: int, k: int) -> RecordedAnswer:
    if not isinstance(answer, Mapping):
        raise RecordingError(f"answers[{k}] must be an object")
    _check_keys(answer, _ANSWER_KEYS, f"answers[{k}]")
    output = answer.get("output")
    if output is None:
        text = answer.get("text")
        if text is None and "error" not in answer:
            raise RecordingError(f"answers[{k}] needs 'text', 'output' or 'error'")
        if text is not None and not isinstance(text, str):
            raise RecordingError(f"answers[{k}].text must be a string")
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "role": "assistant", "content": [part]}
        output = [] if text is None else [message]
    if not isinstance(output, list) or not all(isinstance(item, Mapping) for item in output):
        raise RecordingError(f"answers[{k}].output must be a list of items")
    tag = f"{index}_{k}"
    document: Json = {
        "id": f"resp_{tag}",
        "object": "response",
        "created_at": 0,
        "model": "replay",
        "status": "incomplete" if answer.get("incomplete_details") else "completed",
        "error": None,
        "incomplete_details": None,
        "output": [_completed(item, f"{tag}_{place}") for place, item in enumerate(output)],
        "usage": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    document |= {key: answer[key] for key in _RESPONSE_KEYS if answer.get(key) is not None}
    error: Any = answer.get("error")
    times: Any = 0
    if error is not None:
        if not isinstance(error, Mapping) or not isinstance(error.get("reason"), str):
            raise RecordingError(f"answers[{k}].error needs a 'reason' such as MODEL_SERVER_ERROR")
        _check_keys(error, _ERROR_KEYS, f"answers[{k}].error")
        times = error.get("times")
    delay = answer.get("delay_s", 0)
    if type(delay) not in (int, float) or not 0 <= delay <= 3600:
        raise RecordingError(f"answers[{k}].delay_s must be a number of seconds from 0 to 3600")
    return RecordedAnswer(document, float(delay), error, times)


def _completed(item: Mapping[str, Any], tag: str) -> Json:
    """An item with the ids and the status that the API requires."""
    given: dict[object, Json] = {
        "function_call": {"id": f"fc_{tag}", "call_id": f"call_{tag}", "status": "completed"},
        "reasoning": {"id": f"rs_{tag}", "summary": []},
        "message": {"id": f"msg_{tag}", "role": "assistant", "status": "completed"},
    }
    return given.get(str(item.get("type")), {}) | dict(item)


def _check_keys(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    extra = sorted(set(given) - set(known))
    if extra:
        raise RecordingError(f"{where} has no key '{extra[0]}' (known: {', '.join(sorted(known))})")


def _of_repeat(rows: Sequence[RecordedRow], repeat: int) -> RecordedRow:
    """The row of a repeat: the one that claims it, else those that claim none in turn."""
    for row in rows:
        if row.repeat == repeat:
            return row
    pool = [row for row in rows if row.repeat is None] or rows
    return pool[repeat % len(pool)]


def _answer_number(row: RecordedRow, after: Sequence[Any]) -> int:
    written = sum(1 for item in after if _by_model(item))
    sizes = (len(answer.document["output"]) for answer in row.answers)
    totals = list(accumulate(sizes, initial=0))
    return totals.index(written) if written in totals else len(split_output(after))


def _items(value: object) -> list[Any]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) else []


def _by_model(item: object) -> bool:
    if not isinstance(item, Mapping):
        return False
    kind = item.get("type", "message")
    if kind == "message":
        return item.get("role") == "assistant"
    return not _NOT_MODEL.match(str(kind))


def _is_user(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("role") == "user"


def _text(item: Mapping[str, Any]) -> str:
    """A message's text; other parts count by their digest, so that images tell apart too."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "".join(
        part["text"]
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        else hashlib.sha256(repr(part).encode(errors="surrogatepass")).hexdigest()
        for part in parts
    )
