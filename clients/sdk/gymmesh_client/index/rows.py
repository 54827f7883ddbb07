"""The columns of the index that come from a rollout's row. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

_MOST: Final = (1 << 63) - 1
_Whole = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]  # what SQLite keeps as an integer


# What a row says in the index.
COLUMNS: Final = (
    "rollout_id", "task_id", "repeat", "environment", "reason", "reward", "tokens", "program",
    "program_version",
)  # fmt: skip


class _TokenSums(msgspec.Struct):
    total_tokens: _Whole | None = None


class _Spender(msgspec.Struct):
    """The response of the main conversation, or another actor."""

    usage: _TokenSums | None = None


class _Status(msgspec.Struct):
    reason: str | None = None


class _Failure(msgspec.Struct):
    status: _Status | None = None


class _RowFacts(msgspec.Struct):
    rollout_id: str | None = None
    task_id: str | None = None
    repeat_index: _Whole | None = None
    environment: str | None = None
    reward: float | None = None
    stop_reason: str | None = None
    response: _Spender | None = None
    actors: list[_Spender] | None = None
    failure: _Failure | None = None
    program_name: str | None = None
    program_version: str | None = None


_DECODER: Final = msgspec.json.Decoder(_RowFacts)


def columns_of(row: bytes) -> tuple[str | int | float | None, ...]:
    """What COLUMNS are for a row, one line of JSON: None where it does not say it; all None where a
    key has another type than rows have, because the index must not keep a run from being read.
    """
    try:
        found = _DECODER.decode(row)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return (None,) * len(COLUMNS)
    reason = found.stop_reason
    if found.failure and found.failure.status:
        reason = found.failure.status.reason
    return (
        found.rollout_id,
        found.task_id,
        found.repeat_index,
        found.environment,
        reason,
        found.reward,
        _tokens(found),
        found.program_name,
        found.program_version,
    )


def _tokens(found: _RowFacts) -> int | None:
    """Of all model calls of the agent; None where the row does not say it."""
    spenders = [*([found.response] if found.response else ()), *(found.actors or ())]
    counts = [one.usage.total_tokens for one in spenders if one.usage]
    known = [count for count in counts if count is not None]
    return min(sum(known), _MOST) if known else None


def is_failure(row: bytes) -> bool:
    """Whether a row that can be read has the failure of a rollout."""
    try:
        return _DECODER.decode(row).failure is not None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
