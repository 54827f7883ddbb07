"""Which rollouts are shown, and in which order: what a URL says, and the SQL for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_view.rows.summary import COMPLETED, FAILED, HAS_TOKENS

SORTS: Final = {
    "order": "id",
    "reward": "reward",
    "task": "task",
    "turns": "turns",
    "tools": "tool_calls",
    "tokens": "output_tokens",
    "duration": "duration_us",
    "started": "started_at",
}
_OUTCOMES: Final = {"completed": COMPLETED, "failed": FAILED}
# How SQLite's tokenizer takes a text apart.
_WORD: Final = re.compile(r"[^\W_]+")
_MOST_WORDS: Final = 16
_MOST_NAMES: Final = 100


@dataclass(frozen=True, slots=True)
class Filters:
    """What a rollout must be; whatever is empty or None is not asked for.

    Attributes:
        text: words that all stand in it, in any order; the last may be the beginning of one.
        outcome: `completed` or `failed`.
        no_reward: whether only rollouts without a reward are wanted.
        run: one of these runs and files, as `labels` calls them.
        stop, environment, agent, model, cause, boundary, verdict: one of these.
        tag, tool, actor: all of these.
        tokens: whether token ids were captured.
    """

    text: str = ""
    run: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    task: str = ""
    outcome: str = ""
    stop: tuple[str, ...] = ()
    boundary: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    actor: tuple[str, ...] = ()
    min_reward: float | None = None
    max_reward: float | None = None
    no_reward: bool = False
    min_turns: int | None = None
    max_turns: int | None = None
    tokens: bool = False


@dataclass(frozen=True, slots=True)
class Sort:
    """The order: one of SORTS; rows that have no such value come last."""

    by: str = "order"
    descending: bool = False


_ONE_OF: Final = ("environment", "agent", "model", "stop", "boundary", "cause", "verdict")
_SETS: Final = {"tag": "tags", "tool": "tools", "actor": "actors"}


def parse_filters(query: Mapping[str, Sequence[str]]) -> Filters:
    """The filters of a query: each key with its values.

    Raises:
        UserError: a value is none that the key may have.
    """
    said: dict[str, Any] = {}
    for field in fields(Filters):
        values = query.get(field.name, ())
        if not values:
            continue
        if len(values) > _MOST_NAMES:
            raise UserError(f"{field.name}: has more than {_MOST_NAMES} values")
        if field.name in _ONE_OF or field.name in _SETS or field.name == "run":
            said[field.name] = tuple(values)
        elif field.name in ("no_reward", "tokens"):
            said[field.name] = values[-1] == "1"
        elif field.name in ("min_reward", "max_reward", "min_turns", "max_turns"):
            said[field.name] = _number(field.name, values[-1])
        else:
            said[field.name] = values[-1]
    if said.get("outcome", "") not in ("", *_OUTCOMES):
        raise UserError("outcome: must be completed or failed")
    return Filters(**said)


def parse_sort(text: str) -> Sort:
    """An order: a name of SORTS, behind a minus for the largest first. Raises UserError."""
    name = text.removeprefix("-")
    if name not in SORTS:
        raise UserError(f"sort: there is no {name!r}; there are: {', '.join(SORTS)}")
    return Sort(name, text.startswith("-"))


def where_of(filters: Filters) -> tuple[str, list[Any]]:
    """The condition on the table `rollouts`, and its values."""
    parts: list[str] = []
    values: list[Any] = []
    for name in _ONE_OF:
        wanted = getattr(filters, name)
        if wanted:
            marks = ", ".join("?" * len(wanted))
            parts.append(
                f"{name} IN (SELECT id FROM names WHERE kind = '{name}' AND name IN ({marks}))"
            )
            values += wanted
    if filters.run:
        marks = ", ".join("?" * len(filters.run))
        parts.append(f"file IN (SELECT id FROM files WHERE run IN ({marks}))")
        values += filters.run
    for kind, column in _SETS.items():
        for name in getattr(filters, kind):
            parts.append(
                f"{column} IN (SELECT id FROM sets WHERE name = "
                f"(SELECT id FROM names WHERE kind = '{kind}' AND name = ?))"
            )
            values.append(name)
    if filters.task:
        parts.append("task = (SELECT id FROM names WHERE kind = 'task' AND name = ?)")
        values.append(filters.task)
    if filters.outcome:
        parts.append("outcome = ?")
        values.append(_OUTCOMES[filters.outcome])
    for column, least, most in (
        ("reward", filters.min_reward, filters.max_reward),
        ("turns", filters.min_turns, filters.max_turns),
    ):
        if least is not None:
            parts.append(f"{column} >= ?")
            values.append(least)
        if most is not None:
            parts.append(f"{column} <= ?")
            values.append(most)
    if filters.no_reward:
        parts.append("reward IS NULL")
    if filters.tokens:
        parts.append(f"flags & {HAS_TOKENS}")
    words = match_of(filters.text)
    if words:
        parts.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(words)
    elif filters.text.strip():
        parts.append("0")  # signs alone are in no index
    return " AND ".join(parts) or "1", values


def order_of(sort: Sort, *, backward: bool = False) -> str:
    """The ORDER BY of the table `rollouts`; `backward`: from the last row to the first."""
    column = SORTS[sort.by]
    direction = " DESC" if sort.descending != backward else ""
    if column == "id":
        return f"id{direction}"
    return f"{column}{direction} NULLS {'FIRST' if backward else 'LAST'}, id{direction}"


def match_of(text: str) -> str:
    """A query of the table of words; empty for a text without any."""
    words = words_of(text)[:_MOST_WORDS]
    if not words:
        return ""
    ends_whole = text[-1:].isspace()
    quoted = [f'"{word}"' for word in words]
    return " ".join(quoted) + ("" if ends_whole else "*")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def _number(key: str, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"{key}: must be a number, not {text[:40]!r}") from None
    if number != number or abs(number) == float("inf"):
        raise UserError(f"{key}: must be a finite number")
    return number
