"""What scorers answered, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai.log import EvalSample
from inspect_ai.scorer import INCORRECT, NOANSWER, Score, value_to_float

_to_float = value_to_float()


def scores_of(sample: EvalSample) -> dict[str, Any]:
    """`scores` in the scorers' order, and the `limit` that ended the sample, if one did.

    A score has `name`, `numbers` by key (the empty one: the value is one number), `unscored` where
    its scorer gave none, and `value`, `answer` and `explanation` as they are.
    """
    found = [_score(name, score) for name, score in (sample.scores or {}).items()]
    limit = None if sample.limit is None else {"type": sample.limit.type}
    return {"scores": found, "limit": limit}


def _score(name: str, score: Score) -> dict[str, Any]:
    value = score.value
    unscored = isinstance(value, float) and math.isnan(value)
    parts: dict[str, Any]
    if isinstance(value, Mapping):
        parts = dict(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = {str(position): one for position, one in enumerate(value)}
    else:
        parts = {} if unscored else {"": value}
    numbers = {key: _number(one) for key, one in parts.items()}
    return {
        "name": name,
        "numbers": {key: one for key, one in numbers.items() if one is not None},
        "unscored": unscored,
        "value": None if unscored else _shown(value),
        "answer": score.answer,
        "explanation": score.explanation,
    }


def _number(value: Any) -> float | None:
    """As Inspect's metrics read it; None for what they count as 0 with a warning."""
    if value is None or not isinstance(value, str | int | float | bool):
        return None
    number: float = _to_float(value)
    if not math.isfinite(number):
        return None
    if isinstance(value, str) and number == 0 and value not in (INCORRECT, NOANSWER):
        try:
            float(value)
        except ValueError:
            return 0.0 if value.lower() in ("no", "false") else None
    return number


def _shown(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_shown(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
