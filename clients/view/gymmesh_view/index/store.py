"""Reads the index: the table, the facets, the overview, the repeats of a task, one row's place."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_client.index import get_meta
from gymmesh_client.log_records import Place
from gymmesh_client.row_files import RowPlace
from gymmesh_view.index.bins import EPSILON, grid_of
from gymmesh_view.index.connection import connect
from gymmesh_view.index.indexing import progress_of
from gymmesh_view.rows import ONE_OF, SETS, Filters, Sort, order_of, where_of

Json = dict[str, Any]

_LISTED: Final = """
    SELECT r.id, l.rollout_id, t.name AS task, r.repeat, r.attempt, r.outcome,
           e.name AS environment, a.name AS agent, m.name AS model, r.reward, v.name AS verdict,
           s.name AS stop, b.name AS boundary, c.name AS cause, r.turns, r.tool_calls,
           r.input_tokens, r.output_tokens, r.duration_us, r.started_at, r.flags, r.tags, l.title,
           r.source - 1 AS source, f.label AS run,
           x.row_kind, x.row_shard, x.row_offset, x.row_inner
    FROM rollouts r JOIN listed l ON l.id = r.id JOIN attempts x ON x.id = r.id
    JOIN sources f ON f.id = r.source
    JOIN names t ON t.id = r.task JOIN names e ON e.id = r.environment
    JOIN names a ON a.id = r.agent JOIN names m ON m.id = r.model
    JOIN names v ON v.id = r.verdict JOIN names s ON s.id = r.stop
    JOIN names b ON b.id = r.boundary JOIN names c ON c.id = r.cause
"""
_SEVERAL: Final = """
    SELECT rollout_id FROM listed
    WHERE rollout_id IN ({}) AND rollout_id != '' GROUP BY rollout_id HAVING COUNT(*) > 1
"""
_MOST_NAMES: Final = 200
_MOST_REPEATS: Final = 500
_KEPT: Final = 64
_PLACE_PARTS: Final = 5  # source, kind of file, shard, offset, offset in a frame
_MOST: Final = (1 << 63) - 1


class Store:
    """An index, open for reading. Several threads may use it; each has its own connection. `deep`:
    from this offset on, a list is read from its end if the end is nearer.
    """

    def __init__(self, path: Path, deep: int = 2_000) -> None:
        self._path = path
        self._deep = deep
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._kept: dict[tuple[Any, ...], Any] = {}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for database in self._all:
                database.close()
            self._all.clear()

    def progress(self) -> Json:
        """The progress of the index: `state` (indexing, ready or stopped), bytes, `changes`."""
        with self._reading() as database:
            ask = database.execute
            problems = ask("SELECT problem FROM problems WHERE problem != '' ORDER BY id")
            return progress_of(database) | {
                "wrong": ask("SELECT count(*) FROM problems").fetchone()[0],
                "changes": get_meta(database, "changes"),
                "rollouts": self._count(database, "1", []),
                "problems": [problem for (problem,) in problems],
            }

    def listed(self, filters: Filters, sort: Sort, offset: int, limit: int) -> list[Json]:
        """Some rows of the table."""
        where, values = where_of(filters)
        with self._reading() as database:
            backward = False
            if offset >= self._deep:
                beyond = self._count(database, where, values) - offset - limit
                if backward := beyond < offset:
                    limit, offset = max(0, limit + min(0, beyond)), max(0, beyond)
            order = order_of(sort, backward=backward)
            rows = self._rows(
                database,
                f"SELECT id FROM rollouts WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
                [*values, limit, offset],
            )
            return rows[::-1] if backward else rows

    def counted(self, filters: Filters) -> int:
        """The number of rollouts that match."""
        with self._reading() as database:
            return self._count(database, *where_of(filters))

    def repeats(self, task: str) -> list[Json]:
        """The rollouts of a task, by source and repeat."""
        with self._reading() as database:
            rows = self._rows(
                database,
                "SELECT id FROM rollouts WHERE task = "
                "(SELECT id FROM names WHERE kind = 'task' AND name = ?) "
                "ORDER BY source, repeat, id LIMIT ?",
                [task, _MOST_REPEATS],
            )
        return sorted(rows, key=lambda row: (row["source"], row["repeat"]))

    def facets(self) -> Json:
        """The names that filters can select, by kind."""
        with self._reading() as database:
            found: Json = {}
            for kind in (*ONE_OF, *SETS):
                names = database.execute(
                    "SELECT name FROM names WHERE kind = ? AND name != '' ORDER BY name LIMIT ?",
                    (kind, _MOST_NAMES + 1),
                )
                found[kind] = [name for (name,) in names]
            runs = database.execute(
                "SELECT DISTINCT label FROM sources WHERE id IN (SELECT source FROM rollouts) "
                "ORDER BY label LIMIT ?",
                (_MOST_NAMES + 1,),
            )
            found["run"] = [run for (run,) in runs]
            return found

    def place(self, key: str) -> tuple[Json, RowPlace]:
        """A rollout's summary, and the place of its row. `key`: the value of `key` in `listed`.
        Raises UserError if the rollout does not exist.
        """
        with self._reading() as database:
            found = database.execute(*_by_key(key)).fetchone()
            if found is None:
                raise UserError(
                    f"there is no rollout {key[:80]!r} in these files; a new attempt may have "
                    "replaced it"
                )
            (summary,) = self._rows(database, "SELECT ?", [found[0]])
        _, path, source, crc, file, rollout_id, *place = found
        at, rows = Place._make((*place, crc or 0)), Path(path).with_name(file)
        return summary, RowPlace(rows, source - 1, at, crc is not None, rollout_id)

    def overview(self, filters: Filters) -> Json:
        """Aggregates over some rollouts: rewards, environments, turns, outcomes, failures."""
        where, values = where_of(filters)
        with self._reading() as database:
            found: Json = self._remembered(
                database, ("overview", where, *values), lambda: _overview(database, where, values)
            )
            return found

    def _count(self, database: sqlite3.Connection, where: str, values: list[Any]) -> int:
        query = f"SELECT count(*) FROM rollouts WHERE {where}"
        counted: int = self._remembered(
            database,
            ("count", where, *values),
            lambda: database.execute(query, values).fetchone()[0],
        )
        return counted

    def _remembered(self, database: sqlite3.Connection, key: tuple[Any, ...], make: Any) -> Any:
        """What was found out for a key, unless the index has changed since."""
        key = (self._local.file, get_meta(database, "changes"), *key)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        made = make()
        with self._lock:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = made
        return made

    def _rows(self, database: sqlite3.Connection, ids: str, asked: list[Any]) -> list[Json]:
        numbers = [number for (number,) in database.execute(ids, asked)]
        marks = ", ".join("?" * len(numbers))
        by_id: dict[int, Json] = {}
        found = database.execute(f"{_LISTED} WHERE r.id IN ({marks})", numbers)
        keys = [name for name, *_ in found.description]
        for values in found:
            row = dict(zip(keys, values, strict=True))
            place = [row.pop(f"row_{part}") for part in ("kind", "shard", "offset", "inner")]
            row["key"] = ".".join(map(str, (row["source"], *place)))
            row["failed"] = bool(row.pop("outcome"))
            row["tags"] = self._set(database, row["tags"])
            by_id[row["id"]] = row
        # Rows that were judged again, and merged ones, have the ids of those they were made of.
        names = sorted({row["rollout_id"] for row in by_id.values()} - {""})
        marks = ", ".join("?" * len(names))
        several = {name for (name,) in database.execute(_SEVERAL.format(marks), names)}
        for row in by_id.values():
            place, name = row.pop("key"), row["rollout_id"]
            row["key"] = place if not name or name in several else name
        return [by_id[number] for number in numbers if number in by_id]

    def _set(self, database: sqlite3.Connection, number: int) -> list[str]:
        if not number:
            return []
        query = (
            "SELECT name FROM names WHERE id IN (SELECT name FROM sets WHERE id = ?) ORDER BY name"
        )
        found: list[str] = self._remembered(
            database,
            ("set", number),
            lambda: [name for (name,) in database.execute(query, (number,))],
        )
        return found

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection, in a transaction, so that all queries see the same index."""
        database = self._connection()
        try:
            database.execute("BEGIN")
            yield database
        except sqlite3.Error as error:
            raise UserError(f"{self._path}: cannot be read: {error}") from None
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        """This thread's, to the file that is at the path now: another page that showed the same and
        closed may have taken the one that was there away.
        """
        try:
            file = self._path.stat().st_ino
        except OSError:
            raise UserError(f"{self._path} is being rebuilt. Try again in a second") from None
        database: sqlite3.Connection | None = getattr(self._local, "database", None)
        if database is None or self._local.file != file:
            if database is not None:
                database.close()
            database = self._local.database = connect(self._path, write=False)
            self._local.file = file
            with self._lock:
                self._all.append(database)
        return database


def _by_key(key: str) -> tuple[str, list[Any]]:
    query = """
        SELECT a.id, s.path, a.source, a.row_crc, a.row_file, l.rollout_id, a.row_kind, a.row_shard,
               a.row_offset, a.row_inner, a.row_length, a.row_bytes
        FROM attempts a JOIN listed l ON l.id = a.id JOIN sources s ON s.id = a.source WHERE
    """
    parts = key.split(".")
    if len(parts) == _PLACE_PARTS and all(part.isascii() and part.isdigit() for part in parts):
        source, *place = (min(int(part), _MOST) for part in parts)
        at = "a.source = ? AND row_kind = ? AND row_shard = ? AND row_offset = ? AND row_inner = ?"
        return query + at, [min(source + 1, _MOST), *place]
    return query + "l.rollout_id = ? AND l.rollout_id != '' LIMIT 1", [key]


def _overview(database: sqlite3.Connection, where: str, values: list[Any]) -> Json:
    def all_of(query: str, *more: Any) -> list[tuple[Any, ...]]:
        return database.execute(query.format(where=where), [*more, *values]).fetchall()

    def named(keys: tuple[str, ...], query: str) -> list[Json]:
        return [dict(zip(keys, row, strict=True)) for row in all_of(query)]

    totals = all_of(
        "SELECT count(*), coalesce(sum(outcome), 0), count(reward), avg(reward), min(reward), "
        "max(reward), avg(turns), avg(output_tokens), avg(duration_us), count(DISTINCT task), "
        f"{_total('input_tokens')}, {_total('output_tokens')}, min(turns), max(turns) "
        "FROM rollouts WHERE {where}"
    )[0]
    names = (
        "rollouts", "failed", "rewarded", "mean_reward", "min_reward", "max_reward", "turns",
        "output_tokens", "duration_us", "tasks", "input_total", "output_total",
    )  # fmt: skip
    found: Json = {"totals": dict(zip(names, totals, strict=False))}
    found["environments"] = named(
        ("name", "rollouts", "failed", "mean_reward", "turns"),
        "SELECT (SELECT name FROM names WHERE id = environment), count(*), sum(outcome), "
        "avg(reward), avg(turns) FROM rollouts WHERE {where} GROUP BY environment "
        "ORDER BY count(*) DESC LIMIT 50",
    )
    found["stops"] = named(
        ("name", "count"),
        "SELECT (SELECT name FROM names WHERE id = stop), count(*) FROM rollouts "
        "WHERE {where} AND outcome = 0 GROUP BY stop ORDER BY count(*) DESC",
    )
    found["causes"] = named(
        ("boundary", "name", "count"),
        "SELECT (SELECT name FROM names WHERE id = boundary), "
        "(SELECT name FROM names WHERE id = cause), count(*) FROM rollouts "
        "WHERE {where} AND outcome = 1 GROUP BY boundary, cause ORDER BY count(*) DESC LIMIT 30",
    )
    found["rewards"] = _histogram(all_of, "reward", totals[4], totals[5])
    found["turns"] = _histogram(all_of, "turns", *totals[-2:], whole=True)
    return found


def _total(column: str) -> str:
    """The sum of a column, at most the largest int64: SQLite's `sum` fails beyond it."""
    return f"iif(count(*), CAST(total({column}) AS INTEGER), NULL)"


def _histogram(all_of: Any, column: str, low: Any, high: Any, *, whole: bool = False) -> list[Json]:
    """The bins of a column's values, see `Grid.bins`; none where it has no values."""
    if low is None:
        return []
    grid = grid_of(low, high, whole=whole)
    bins = all_of(
        f"SELECT CAST(max(0, min(({column} - ?) / ? + {EPSILON}, ?)) AS INTEGER) AS bin, count(*), "
        f"min({column}), max({column}) FROM rollouts "
        f"WHERE {{where}} AND {column} IS NOT NULL GROUP BY bin",
        grid.start,
        grid.width,
        grid.count - 1,
    )
    return grid.bins({number: (count, least, most) for number, count, least, most in bins})
