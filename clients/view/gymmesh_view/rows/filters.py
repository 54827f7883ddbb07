"""The filters and the order of the shown rollouts: parsed from a URL, and as SQL. Pure."""

from __future__ import annotations

import math
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
    "repeat": "repeat",
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
    """The conditions for showing a rollout. A value that is empty, None or false is no condition.

    Attributes:
        text: words that the rollout's text has, in any order; the last may be the beginning of a
            word.
        outcome: `completed` or `failed`.
        no_reward: whether to show only rollouts without a reward.
        run: the rollout is from one of these runs and files, by their names in `labels`.
        stop, environment, agent, model, cause, boundary, verdict: the rollout has one of these.
        tag, tool, actor: the rollout has all of these.
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
    """The order: one of SORTS. Rows without a value come last."""

    by: str = "order"
    descending: bool = False


ONE_OF: Final = ("environment", "agent", "model", "stop", "boundary", "cause", "verdict")
"""Columns that hold a name, which are called like the kind of the name."""
SETS: Final = {"tag": "tags", "tool": "tools", "actor": "actors"}
"""Columns that hold a set of names, by their kind."""


def parse_filters(query: Mapping[str, Sequence[str]]) -> Filters:
    """The filters of a query. `query`: each key with its values.

    Raises:
        UserError: a key has a value that it may not have.
    """
    said: dict[str, Any] = {}
    for field in fields(Filters):
        values = query.get(field.name, ())
        if not values:
            continue
        if len(values) > _MOST_NAMES:
            raise UserError(f"{field.name}: has more than {_MOST_NAMES} values")
        if isinstance(field.default, tuple):
            said[field.name] = tuple(values)
        elif isinstance(field.default, bool):
            said[field.name] = values[-1] == "1"
        elif field.default is None:
            said[field.name] = _number(field.name, values[-1])
        else:
            said[field.name] = values[-1]
    if said.get("outcome", "") not in ("", *_OUTCOMES):
        raise UserError("outcome: must be 'completed' or 'failed'")
    return Filters(**said)


def parse_sort(text: str) -> Sort:
    """An order: a name of SORTS, with a minus in front for descending. Raises UserError."""
    name = text.removeprefix("-")
    if name not in SORTS:
        raise UserError(f"sort: {name!r} is not a column to sort by; use one of {', '.join(SORTS)}")
    return Sort(name, text.startswith("-"))


def where_of(filters: Filters) -> tuple[str, list[Any]]:
    """The condition on the table `rollouts`, and its values."""
    parts: list[str] = []
    values: list[Any] = []

    def add(condition: str, *more: Any) -> None:
        parts.append(condition)
        values.extend(more)

    for name in ONE_OF:
        if wanted := getattr(filters, name):
            marks = ", ".join("?" * len(wanted))
            named = f"kind = '{name}' AND name IN ({marks})"
            add(f"{name} IN (SELECT id FROM names WHERE {named})", *wanted)
    if filters.run:
        marks = ", ".join("?" * len(filters.run))
        add(f"source IN (SELECT id FROM sources WHERE label IN ({marks}))", *filters.run)
    for kind, column in SETS.items():
        named = f"SELECT id FROM names WHERE kind = '{kind}' AND name = ?"
        for name in getattr(filters, kind):
            add(f"{column} IN (SELECT id FROM sets WHERE name = ({named}))", name)
    if filters.task:
        add("task = (SELECT id FROM names WHERE kind = 'task' AND name = ?)", filters.task)
    if filters.outcome:
        add("outcome = ?", _OUTCOMES[filters.outcome])
    for condition, bound in (
        ("reward >= ?", filters.min_reward),
        ("reward <= ?", filters.max_reward),
        ("turns >= ?", filters.min_turns),
        ("turns <= ?", filters.max_turns),
    ):
        if bound is not None:
            add(condition, bound)
    if filters.no_reward:
        add("reward IS NULL")
    if filters.tokens:
        add(f"flags & {HAS_TOKENS}")
    if words := match_of(filters.text):
        add("id IN (SELECT rowid FROM words WHERE words MATCH ?)", words)
    elif filters.text.strip():
        add("0")  # signs alone are in no index
    return " AND ".join(parts) or "1", values


def order_of(sort: Sort, *, backward: bool = False) -> str:
    """The ORDER BY of the table `rollouts`; `backward`: from the last row to the first."""
    column = SORTS[sort.by]
    direction = " DESC" if sort.descending != backward else ""
    if column == "id":
        return f"id{direction}"
    return f"{column}{direction} NULLS {'FIRST' if backward else 'LAST'}, id{direction}"


def match_of(text: str) -> str:
    """A query of the table of words. Empty for a text without words."""
    quoted = " ".join(f'"{word}"' for word in words_of(text)[:_MOST_WORDS])
    return quoted if not quoted or text[-1:].isspace() else f"{quoted}*"


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def _number(key: str, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"{key}: must be a number, not {text[:40]!r}") from None
    if not math.isfinite(number):
        raise UserError(f"{key}: must be a finite number")
    return number
