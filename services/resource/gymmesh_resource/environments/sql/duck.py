"""Runs queries on DuckDB, where its package is installed; as bounded as those on SQLite.

A connection has no access to files (but for its own, which is only read), loads no extensions,
and its configuration is locked before a foreign query runs. One SELECT statement is run.
"""

from __future__ import annotations

import datetime
import decimal
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gymmesh_resource.environments.sql.bounds import (
    Database,
    QueryError,
    QueryLimits,
    any_rows,
    fetch,
    quoted,
)
from gymmesh_resource.environments.sql.results import QueryResult

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "256MB",
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
_PAGE = 1_000
# Seconds between two looks at a clock that is about to run out.
_LOOK_S = 0.05
# One object for all: it is equal to itself, as NULL is, where another one would not be.
_NAN = float("nan")


def has_rows(database: Database, limits: QueryLimits) -> bool:
    """Whether any table has a row. Raises `QueryError` of kind "setup" for a database that cannot
    be had.
    """
    import duckdb

    with _connected(database, limits) as connection:
        try:
            tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables()")
            names = [f"{quoted(schema)}.{quoted(table)}" for schema, table in tables.fetchall()]
            return any_rows(connection, names)
        except (duckdb.Error, RuntimeError) as error:
            raise QueryError("setup", str(error)[:300]) from None


def run(database: Database, sql: str, limits: QueryLimits, cut: bool) -> QueryResult:
    """A query's result. Raises `QueryError`."""
    import duckdb

    with _connected(database, limits) as connection:
        try:
            _one_select(sql)
            with _clock(connection, limits.seconds):
                cursor = connection.execute(sql)
                columns = tuple(str(column[0]) for column in cursor.description or ())
                rows, complete = fetch(_rows(cursor), limits, cut)
            return QueryResult(columns, rows, complete)
        except duckdb.InterruptException:
            text = f"The query took longer than {limits.seconds:g} seconds."
            raise QueryError("time", text) from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise QueryError("memory", "The query needs too much memory.") from None
        except (duckdb.Error, UnicodeError, RuntimeError, ValueError) as error:
            raise QueryError("sql", f"DuckDB says: {str(error)[:300]}") from None


def _one_select(sql: str) -> None:
    import duckdb

    sql.encode()  # a lone surrogate is refused here, with a ValueError
    kinds = [statement.type for statement in duckdb.extract_statements(sql)]
    if kinds != [duckdb.StatementType.SELECT]:
        raise QueryError("sql", "Only reading is allowed. Write one SELECT statement.")


@contextmanager
def _connected(database: Database, limits: QueryLimits) -> Iterator[Any]:
    import duckdb

    try:
        connection = duckdb.connect(
            database.path or ":memory:", read_only=database.path is not None, config=_SETTINGS
        )
    except (duckdb.Error, RuntimeError) as error:
        raise QueryError("setup", str(error)[:300]) from None
    with connection:
        try:
            with _clock(connection, limits.seconds):
                connection.execute(database.script or "SELECT 1")
            connection.execute("SET lock_configuration = true")
        except (duckdb.Error, UnicodeError, RuntimeError) as error:
            raise QueryError("setup", str(error)[:300]) from None
        yield connection


@contextmanager
def _clock(connection: Any, seconds: float) -> Iterator[None]:
    """Interrupt what runs inside when it has used up its seconds of processor time."""
    end = time.process_time() + seconds
    over = threading.Event()

    def interrupt_late() -> None:
        while not over.wait(max(end - time.process_time(), _LOOK_S)):
            if time.process_time() >= end:
                connection.interrupt()

    watcher = threading.Thread(target=interrupt_late, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _rows(cursor: Any) -> Iterator[tuple[Any, ...]]:
    while page := cursor.fetchmany(_PAGE):
        for row in page:
            yield tuple(map(_plain, row))


def _plain(value: Any) -> Any:
    """A value as SQLite would have it: numbers, texts and blobs."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
