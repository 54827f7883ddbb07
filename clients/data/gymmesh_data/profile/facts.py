"""What a profile takes from one rollout's row. Pure.

Rows may come from other programs. Values of a kind that cannot be counted (a token count that is a
text) are left out, and `Unread` counts them by key, so that the report can say so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout, object_of, objects_of
from gymmesh_responses import CodecError, dumps, loads

Unread = Counter[str]
_STAGES: Final = {
    "all": "duration_us",
    "model": "model_us",
    "tools": "tools_us",
    "verify": "verify_us",
}
_OF_STAGES: Final = "verification.stages duration_us"
_MANY_TOOLS: Final = 3
# Squares of greater numbers, of which distributions are made, would be too large for a float.
_GREATEST: Final = 1e150
_UNANSWERED: Final = "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a row says what a profile asks for.

    Attributes:
        answer: the key of the answer that votes for majority@k, in the verifier's evidence or the
            row.
        difficulty: the key of a task's difficulty, in its tags or the row.
    """

    answer: str = "extracted_answer"
    difficulty: str = "difficulty"


@dataclass(slots=True)
class Facts:
    """One rollout, as far as it is counted.

    Attributes:
        labels: the groups that its task is in: pairs of a kind and a name.
        reward: None where it failed or was not judged.
        failure: boundary, reason and component; None for a completed one.
        tokens: by kind: input, cached, output, reasoning; those that the row has.
        latency_s: seconds by stage.
        calls: tool calls by name; invalid: those of no such tool, or whose arguments are no object.
        answered: tool calls by name and outcome, where the row says it; they have those of other
            actors, too, and not those that were not answered.
        prompt: 8 bytes of the input that its task gave.
        identity: 8 bytes of the rollout's id; empty where the row has none.
        content: 8 bytes of what the model and the tools said.
        empty: whether the model said and called nothing.
        all_at_once: whether one model call called every tool that there is, of three or more.
    """

    environment: str
    task_id: str
    labels: tuple[tuple[str, str], ...]
    reward: float | None
    failure: tuple[str, str, str] | None
    stop_reason: str
    status: str
    prompt: bytes
    identity: bytes
    content: bytes
    started_at: float | None
    steps: int | None
    turns: int
    answer: bytes | None
    empty: bool
    all_at_once: bool
    tokens: dict[str, int] = field(default_factory=dict)
    latency_s: dict[str, float] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
    components: list[tuple[str, float]] = field(default_factory=list)


def facts_of(rollout: StoredRollout, fields: Fields, unread: Unread) -> Facts:
    """What there is to count of a rollout. Raises UserError for a reward beyond all sense."""
    if abs(rollout.reward or 0.0) > _GREATEST:
        raise UserError(f"{rollout.where}: reward: is too large for statistics: {rollout.reward:g}")
    row, verdict = rollout.row, object_of(rollout.row, "verification")
    metadata, timings = rollout.metadata, object_of(rollout.metadata, "timings")
    told, name = _Output(rollout), rollout.rollout_id
    steps = _number(metadata, "steps_taken", "metadata.steps_taken", unread)
    started = _number(timings, "started_at", "metadata.timings.started_at", unread)
    return Facts(
        environment=rollout.text("environment"),
        task_id=rollout.task_id,
        labels=_labels(rollout, fields),
        reward=None if rollout.failed else rollout.reward,
        failure=_failure(object_of(row, "failure")) if rollout.failed else None,
        stop_reason=rollout.text("stop_reason"),
        status=str(verdict.get("status") or ""),
        prompt=_digest(dumps(row["responses_create_params"].get("input"))),
        identity=_digest(name.encode("utf-8", "surrogatepass")) if name else b"",
        content=_digest(dumps(told.said)),
        started_at=started,
        steps=told.steps if steps is None else int(steps),
        turns=told.turns,
        answer=_answer(row, verdict, fields.answer),
        empty=not told.calls and not told.spoke,
        all_at_once=told.all_at_once,
        tokens=_tokens(object_of(rollout.row["response"], "usage"), unread),
        latency_s=_latency(timings, verdict, unread),
        calls=told.calls,
        invalid=told.invalid,
        answered=_answered(metadata, unread),
        components=_components(verdict, unread),
    )


class _Output:
    """What the items of a rollout's output tell."""

    def __init__(self, rollout: StoredRollout) -> None:
        self.calls: Counter[str] = Counter()
        self.invalid: Counter[str] = Counter()
        self.said: list[Any] = []
        self.steps = self.turns = 0
        self.spoke = self.all_at_once = False
        offered = {str(tool.get("name")) for tool in rollout.tools if tool.get("name")}
        together: set[str] = set()
        answering = False
        for item in rollout.output:
            kind = item.get("type", "message")
            theirs = kind == "function_call_output" or item.get("role") in ("user", "system")
            if theirs:
                together.clear()
                self.turns += kind == "message"
            elif not answering:
                self.steps += 1
            answering = not theirs
            if kind == "function_call":
                together.add(self._call(item, offered))
                if len(offered) >= _MANY_TOOLS and together >= offered:
                    self.all_at_once = True
                self.said.append([item.get("name"), item.get("arguments")])
            else:
                self.said.append(item.get("content", item.get("output")))
                self.spoke = self.spoke or (kind == "message" and not theirs and _speaks(item))

    def _call(self, item: Json, offered: set[str]) -> str:
        name = str(item.get("name"))
        self.calls[name] += 1
        if (offered and name not in offered) or not _is_object(item.get("arguments")):
            self.invalid[name] += 1
        return name


def _speaks(item: Json) -> bool:
    content = item.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return any(isinstance(text, str) and text.strip() for text in texts)


def _is_object(arguments: Any) -> bool:
    if arguments in ("", "{}"):
        return True
    try:
        return isinstance(arguments, str) and isinstance(loads(arguments), dict)
    except CodecError:
        return False


def _answered(metadata: Json, unread: Unread) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for part in objects_of(metadata, "tool_outcomes"):
        calls = _number(part, "calls", "metadata.tool_outcomes calls", unread)
        if calls is not None and part.get("outcome") != _UNANSWERED:
            found[str(part.get("name")), str(part.get("outcome"))] += int(calls)
    return found


def _labels(rollout: StoredRollout, fields: Fields) -> tuple[tuple[str, str], ...]:
    tags = object_of(rollout.row, "tags")
    labels = [("environment", rollout.text("environment") or "(none)")]
    labels += [(f"tag {key}", str(tags[key])) for key in sorted(tags) if key != fields.difficulty]
    difficulty = tags.get(fields.difficulty, rollout.row.get(fields.difficulty))
    if isinstance(difficulty, str | int | float):
        labels.append(("difficulty", str(difficulty)))
    return tuple(labels)


def _failure(failure: Json) -> tuple[str, str, str]:
    status = object_of(failure, "status")
    told = (failure.get("boundary"), status.get("reason"), failure.get("component"))
    boundary, reason, component = (str(one or "") for one in told)
    return boundary or "(none)", reason, component


def _answer(row: Json, verdict: Json, key: str) -> bytes | None:
    answer = object_of(verdict, "evidence").get(key, row.get(key))
    return None if answer is None else _digest(dumps(answer))


def _tokens(usage: Json, unread: Unread) -> dict[str, int]:
    places = {
        "input": (usage, "input_tokens"),
        "cached": (object_of(usage, "input_tokens_details"), "cached_tokens"),
        "output": (usage, "output_tokens"),
        "reasoning": (object_of(usage, "output_tokens_details"), "reasoning_tokens"),
    }
    numbers = (
        (name, _number(part, key, f"response.usage {key}", unread))
        for name, (part, key) in places.items()
    )
    return {name: int(value) for name, value in numbers if value is not None}


def _latency(timings: Json, verdict: Json, unread: Unread) -> dict[str, float]:
    numbers = [
        (name, _number(timings, key, f"metadata.timings.{key}", unread))
        for name, key in _STAGES.items()
    ]
    numbers += [
        (f"verify: {part.get('name')}", _number(part, "duration_us", _OF_STAGES, unread))
        for part in objects_of(verdict, "stages")
    ]
    found: dict[str, float] = {}
    for name, value in numbers:
        if value is not None:
            found[name] = found.get(name, 0.0) + value / 1e6
    return found


def _components(verdict: Json, unread: Unread) -> list[tuple[str, float]]:
    numbers = (
        (str(part.get("name")), _number(part, "value", "verification.components value", unread))
        for part in objects_of(verdict, "components")
    )
    return [(name, value) for name, value in numbers if value is not None]


def _number(part: Json, key: str, name: str, unread: Unread) -> float | None:
    value = part.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _GREATEST:
        unread[name] += 1
        return None
    return value


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()
