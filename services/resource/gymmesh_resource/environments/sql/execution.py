"""Runs queries, in a process of its own that can be killed (see `gymmesh_resource.workers`).

Invariant: whatever a query does, what comes back is a result of bounded size or an error in
words; nothing that it does stays, for every query starts on a fresh connection.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gymmesh_resource.environments.sql import duck
from gymmesh_resource.environments.sql.bounds import (
    Database,
    QueryError,
    QueryLimits,
    any_rows,
    fetch,
    quoted,
)
from gymmesh_resource.environments.sql.guard import guarded, open_file, open_setup
from gymmesh_resource.environments.sql.results import ComparisonRules, QueryResult, compare

# What SQLite says of a statement that would do more than read.
_REFUSALS = ("not authorized", "authorization denied", "prohibited", "readonly")
# Characters of a script whose database is kept for the next query; larger ones are made anew.
_KEPT = 200_000


_kept = lru_cache(maxsize=8)(open_setup)


@dataclass(frozen=True, slots=True)
class Judged:
    """A comparison of two results. reason: one line. Rows are counted, None if it failed."""

    match: bool
    reason: str
    expected_rows: int
    answer_rows: int | None


def warm_up() -> None:
    """Run a first query, so that later ones are quick."""
    run_query(
        Database(script="CREATE TABLE t (x)"), "SELECT count(*) FROM t", QueryLimits(5.0, 1), True
    )


def has_rows(database: Database, limits: QueryLimits) -> bool:
    """Whether any table has a row. Raises `QueryError` of kind "setup" for a database that cannot
    be had.
    """
    if database.engine == "duckdb":
        return duck.has_rows(database, limits)
    try:
        with _connected(database, limits) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite@_%' "
                "ESCAPE '@'"
            ).fetchall()
            return any_rows(connection, [quoted(name) for (name,) in tables])
    except (sqlite3.Error, MemoryError) as error:
        raise QueryError("setup", str(error) or "the database needs too much memory") from None


def run_query(database: Database, sql: str, limits: QueryLimits, cut: bool) -> QueryResult:
    """A query's result; `cut`: a longer one is cut, and says so. Raises `QueryError`."""
    if database.engine == "duckdb":
        return duck.run(database, sql, limits, cut)
    with _connected(database, limits) as connection:
        try:
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise QueryError("sql", "The statement is empty; write one SELECT statement.")
            columns = tuple(str(column[0]) for column in cursor.description)
            rows, complete = fetch(cursor, limits, cut)
            return QueryResult(columns, rows, complete)
        except MemoryError:
            raise QueryError("memory", "The query needs too much memory.") from None
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _query_error(error, limits) from None
        except (ValueError, OverflowError) as error:  # a null character, a lone surrogate
            raise QueryError("sql", f"The query cannot be read: {error}.") from None


def find_empty(
    database: Database, sql: str, limits: QueryLimits
) -> Literal["", "database", "query"]:
    """Names an empty result: that of a database without rows, or of a query that returns none; ""
    for neither.

    In one call, since reaching a process costs more than most queries. Raises `QueryError`, of kind
    "setup" for a database that cannot be had.
    """
    if not has_rows(database, limits):
        return "database"
    return "query" if gives_nothing(database, sql, limits) else ""


def gives_nothing(database: Database, sql: str, limits: QueryLimits) -> bool:
    """Whether a query gives no rows, or one of NULLs alone. Raises `QueryError`."""
    result = run_query(database, sql, QueryLimits(limits.seconds, 1), True)
    return result.complete and all(value is None for row in result.rows for value in row)


def check_query(database: Database, sql: str, limits: QueryLimits) -> None:
    """Raise `QueryError` for a query that cannot be run to its end."""
    run_query(database, sql, limits, False)


def judge(
    database: Database,
    expected_sql: str,
    answer_sql: str,
    how: ComparisonRules,
    limits: QueryLimits,
) -> Judged:
    """Compare what two queries give. Raises `QueryError` when the expected one fails."""
    expected = run_query(database, expected_sql, limits, False)
    try:
        answer = run_query(database, answer_sql, limits, False)
    except QueryError as error:
        return Judged(False, f"{error.kind}: {error.text}"[:300], len(expected.rows), None)
    reason = compare(expected, answer, how)
    return Judged(reason is None, reason or "equal", len(expected.rows), len(answer.rows))


def _connected(
    database: Database, limits: QueryLimits
) -> AbstractContextManager[sqlite3.Connection]:
    try:
        if database.path is not None:
            connection = open_file(Path(database.path))
        else:
            make = _kept if len(database.script) <= _KEPT else open_setup
            image = make(database.script, limits.seconds)
            connection = sqlite3.connect(":memory:")
            if image:
                connection.deserialize(image)
    except MemoryError:
        raise QueryError("setup", "the database needs too much memory") from None
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise QueryError("setup", str(error)) from None
    return guarded(connection, limits.seconds)


def _query_error(error: Exception, limits: QueryLimits) -> QueryError:
    text = str(error).rstrip(".")
    if text == "interrupted":
        return QueryError("time", f"The query took longer than {limits.seconds:g} seconds.")
    if any(sign in text for sign in _REFUSALS):
        return QueryError("sql", f"Only reading is allowed here ({text}).")
    return QueryError("sql", f"SQLite says: {text}.")
