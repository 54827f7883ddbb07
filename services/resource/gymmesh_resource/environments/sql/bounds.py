"""What bounds a query: where it runs, its limits, and the error that it may end with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

ResultRow: TypeAlias = "tuple[Any, ...]"


class QueryError(Exception):
    """A query that failed; `kind`: "sql" (its own fault), "time", "memory", "rows", "setup"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)  # both, so that the exception survives a pickle
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Database:
    """Where queries run: a file, or a script of statements that makes a database in memory."""

    path: str | None = None
    script: str = ""
    engine: Literal["sqlite", "duckdb"] = "sqlite"


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Of one query. seconds: of processor time. rows, size: of its result, in bytes of values."""

    seconds: float
    rows: int
    size: int = 16 * 1024**2


def quoted(name: str) -> str:
    """The name of a table, as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def any_rows(connection: Any, tables: Iterable[str]) -> bool:
    """Whether one of the tables, by their names as SQL has them, has a row."""
    return any(
        connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None
        for table in tables
    )


def fetch(
    rows_of: Iterable[ResultRow], limits: QueryLimits, cut: bool
) -> tuple[Sequence[ResultRow], bool]:
    """The rows, all of them or, where they are too many and `cut`, the first; QueryError else."""
    rows: list[ResultRow] = []
    size = 0
    for row in rows_of:
        size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if len(rows) == limits.rows or size > limits.size:
            if cut:
                return rows, False
            raise QueryError(
                "rows", f"The result is too large, or has more than {limits.rows:,} rows."
            )
        rows.append(row)
    return rows, True
