"""Chooses the rollouts of a tracker's table and their columns. Pure.

The table is a uniform sample of the rollouts that have ended (algorithm R, J. Vitter, 1985), so
that the table represents the whole run, not only its fastest rollouts.
"""

from __future__ import annotations

from random import Random
from typing import Final, Generic, TypeVar

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout, object_of, objects_of, rollout_of_line
from gymmesh_runtime.text import mask_secrets, shortened

T = TypeVar("T")
TableRow = list[str | int | float | None]

COLUMNS: Final = (
    *("rollout", "task", "environment", "repeat", "reward", "outcome", "output tokens"),
    *("prompt", "answer"),
)
_LONGEST: Final = 4000
_LONGEST_OUTCOME: Final = 200


class Reservoir(Generic[T]):
    """A uniform sample of the added elements, up to a maximum size."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self._most = most
        self._random = Random(seed)
        self.passed = 0
        self.kept: list[T] = []

    def place(self) -> int | None:
        """The place in the sample for a new element; None if it is not sampled."""
        self.passed += 1
        if len(self.kept) < self._most:
            return len(self.kept)
        place = self._random.randrange(self.passed)
        return place if place < self._most else None

    def put(self, place: int, one: T) -> None:
        """Put an element at this place."""
        self.kept[place : place + 1] = [one]


def sample_of(line: bytes) -> TableRow | None:
    """The columns of a rollout's row for the table, by `COLUMNS`, without secrets and with long
    texts cut. None if the row can't be read.
    """
    try:
        return sample_of_rollout(rollout_of_line(line, ""))
    except UserError:
        return None


def sample_of_rollout(rollout: StoredRollout) -> TableRow:
    """What the table shows of a rollout; see `sample_of`."""
    tokens = rollout.usage.get("output_tokens")
    return [
        rollout.rollout_id,
        _shown(rollout.task_id),
        _shown(rollout.environment),
        rollout.repeat_index,
        None if rollout.failed else rollout.reward,
        _shown(_outcome(rollout)),
        tokens if isinstance(tokens, int) else None,
        _shown(_prompt(rollout)),
        _shown(_answer(rollout)),
    ]


def _outcome(rollout: StoredRollout) -> str:
    failure = rollout.value("failure")
    if not isinstance(failure, dict):
        return rollout.stop_reason
    told = object_of(failure, "status")
    reason = told.get("reason") or told.get("message") or ""
    return shortened(f"failed: {failure.get('boundary')} {reason}".rstrip(), _LONGEST_OUTCOME)


def _prompt(rollout: StoredRollout) -> str:
    """What the user said last before the model did."""
    said = (item for item in reversed(rollout.first_items) if item.get("role") == "user")
    return _text(next(said, {}))


def _answer(rollout: StoredRollout) -> str:
    """What the model said last, or the tools that it called."""
    calls: list[str] = []
    for item in reversed(rollout.output):
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "assistant":
            return _text(item)
        if kind == "function_call":
            calls.append(f"{item.get('name')}({item.get('arguments')})")
        elif calls:
            break
    return "\n".join(reversed(calls))


def _text(item: Json) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") or part.get("refusal") for part in objects_of(item, "content")]
    return "\n".join(text for text in texts if isinstance(text, str))


def _shown(text: str) -> str:
    """A text that every tracker takes: no secrets, no control characters but line breaks, no lone
    surrogates, not too long.
    """
    text = mask_secrets(text)
    text = "".join(one if one.isprintable() or one in "\n\t" else "�" for one in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"
