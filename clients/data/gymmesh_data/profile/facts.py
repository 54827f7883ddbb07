"""The facts that a profile reads from one rollout's row. Pure.

Rows may be written by other programs. Values of the wrong type (a token count that is a text) are
skipped. `Unread` counts them by key for the report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from gymmesh_client.summary import judge_of
from gymmesh_data.rollout import Json, StoredRollout, object_of, objects_of
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.text import shortened

Unread = Counter[str]
_STAGES: Final = {
    "all": "duration_us",
    "model": "model_us",
    "tools": "tools_us",
    "verify": "verify_us",
}
_OF_STAGES: Final = "verification.stages duration_us"
_MANY_TOOLS: Final = 3
_LONGEST_NAME: Final = 100
# Squares of greater numbers, of which distributions are made, would be too large for a float.
_GREATEST: Final = 1e150
_UNANSWERED: Final = "UNSPECIFIED"
_TOO_LARGE: Final = "reward too large for statistics"


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of a row that a profile reads.

    Attributes:
        answer: the key of the answer that votes for majority@k, in the verifier's evidence or the
            row.
        difficulty: the key of a task's difficulty, in its tags or the row.
    """

    answer: str = "extracted_answer"
    difficulty: str = "difficulty"


class Facts:
    """The counted values of one rollout. A reward too large for statistics is not counted."""

    def __init__(self, rollout: StoredRollout, fields: Fields, unread: Unread) -> None:
        metadata, rollout_id = rollout.metadata, rollout.rollout_id
        verdict, timings = rollout.verification, object_of(metadata, "timings")
        self.environment = rollout.environment
        self.task_id = rollout.task_id
        # The groups that its task is in: pairs of a kind and a name.
        self.labels = _labels(rollout, fields)
        # None where it failed, was not judged, or has a reward that is too large.
        self.reward = None if rollout.failed else rollout.reward
        # Boundary, reason and component; None for a completed one.
        self.failure = _failure(rollout.value("failure")) if rollout.failed else None
        self.stop_reason = rollout.stop_reason
        self.status = str(verdict.get("status") or "")
        self.judge = judge_of(self.environment, verdict)
        if self.reward is not None and abs(self.reward) > _GREATEST:
            unread["reward"] += 1
            self.reward, self.status = None, _TOO_LARGE
        # 8 bytes of the input that its task gave, and of its id; empty where the row has none.
        self.prompt = _digest(dumps(rollout.columns.params.get("input")))
        self.identity = _digest(rollout_id.encode("utf-8", "surrogatepass")) if rollout_id else b""
        self.started_at = _number(timings, "started_at", "metadata.timings.started_at", unread)
        evidence, key = object_of(verdict, "evidence"), fields.answer
        # A verifier that says null found no answer: then the row's key, the task's own, is none.
        answer = evidence[key] if key in evidence else rollout.value(key)
        self.answer = None if answer is None else _digest(dumps(answer))
        # Of all calls of the agent, by kind: input, cached, output, reasoning; those that the row
        # has.
        self.tokens = _tokens(rollout.total_usage, unread)
        self.latency_s = _latency(timings, verdict, unread)
        # Tool calls by name and by outcome, where the row says it; they have those of other actors,
        # too, and not those that were not answered.
        self.answered = _answered(metadata, unread)
        # Model calls that were sent again, by reason.
        self.model_retries = _model_retries(rollout, unread)
        self.components = _components(verdict, unread)
        self._read_output(rollout)
        steps = _number(metadata, "steps_taken", "metadata.steps_taken", unread)
        if steps is not None:
            self.steps = int(steps)

    def _read_output(self, rollout: StoredRollout) -> None:
        """What the items tell: calls, steps, turns, and what looks odd."""
        self.calls = Counter[str]()
        self.invalid = Counter[str]()  # of no such tool, or with arguments that are no object
        self.steps = self.turns = 0
        # Whether one model call called every tool that there is, of three or more.
        self.all_at_once = False
        offered = {str(tool.get("name")) for tool in rollout.tools if tool.get("name")}
        said, together = list[Any](), set[str]()
        answering = spoke = False
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
                name, arguments = str(item.get("name")), item.get("arguments")
                self.calls[name] += 1
                if (offered and name not in offered) or not _is_object(arguments):
                    self.invalid[name] += 1
                together.add(name)
                if len(offered) >= _MANY_TOOLS and together >= offered:
                    self.all_at_once = True
                said.append([item.get("name"), arguments])
            else:
                said.append(item.get("content", item.get("output")))
                spoke = spoke or (kind == "message" and not theirs and _speaks(item))
        self.empty = not self.calls and not spoke
        # 8 bytes of what the model and the tools said.
        self.content = _digest(dumps(said))


def _speaks(item: Json) -> bool:
    content = item.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    texts = (part.get("text") or part.get("refusal") for part in objects_of(item, "content"))
    return any(isinstance(text, str) and text.strip() for text in texts)


def _is_object(arguments: Any) -> bool:
    if arguments in ("", "{}"):
        return True
    try:
        return isinstance(arguments, str) and isinstance(loads(arguments), dict)
    except CodecError:
        return False


def _answered(metadata: Json, unread: Unread) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for part in objects_of(metadata, "tool_outcomes"):
        calls = _number(part, "calls", "metadata.tool_outcomes calls", unread)
        if calls is not None and part.get("outcome") != _UNANSWERED:
            outcomes = found.setdefault(str(part.get("name")), Counter())
            outcomes[str(part.get("outcome"))] += int(calls)
    return found


def _model_retries(rollout: StoredRollout, unread: Unread) -> Counter[str]:
    found = Counter[str]()
    if not rollout.columns.of_earlier_form:
        for each in rollout.columns.calls:
            found.update({one.reason: one.count for one in each.retries})
        return found
    for call in objects_of(rollout.metadata, "model_calls"):
        retries = object_of(call, "retries")
        for reason in retries:
            count = _number(retries, reason, "metadata.model_calls retries", unread)
            found[reason] += int(count or 0)
    return found


def _labels(rollout: StoredRollout, fields: Fields) -> tuple[tuple[str, str], ...]:
    found = rollout.value("tags")
    tags: Json = found if isinstance(found, dict) else {}
    labels = [("environment", rollout.environment or "(none)")]
    labels += [(f"tag {key}", str(tags[key])) for key in sorted(tags) if key != fields.difficulty]
    difficulty = tags.get(fields.difficulty, rollout.value(fields.difficulty))
    if isinstance(difficulty, str | int | float):
        labels.append(("difficulty", str(difficulty)))
    return tuple(labels)


def _failure(said: Any) -> tuple[str, str, str]:
    failure: Json = said if isinstance(said, dict) else {}
    status = object_of(failure, "status")
    told = (failure.get("boundary"), status.get("reason"), failure.get("component"))
    boundary, reason, component = (shortened(str(one or ""), _LONGEST_NAME) for one in told)
    return boundary or "(none)", reason, component


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
