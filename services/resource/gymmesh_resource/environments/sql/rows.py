"""What a task row says about its database and its expected query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.row_fields import filled_text, optional
from gymmesh_resource.environments.sql.bounds import Database
from gymmesh_resource.environments.sql.reading import orders_rows
from gymmesh_resource.environments.sql.results import ComparisonRules

# By the names that datasets give them: ours first, then NeMo Gym's, BIRD's, and Spider's.
_QUERIES = ("gold_sql", "gt_sql", "SQL", "sql", "query")
# Where a database is, the surest first: rows with a `db_id` may have an excerpt of the database
# as well, for the prompt, which is then no database to judge by.
_FILES = ("database", "db_id")
_DATABASES = ("setup_sql", *_FILES, "schema", "sql_context")
# Keys of rows whose results NeMo Gym's spider2_lite compares by rules of its own.
_FOREIGN = ("condition_cols", "ignore_order")
_ENDINGS = (".sqlite", ".db", ".sqlite3", ".duckdb")
# A name that stays in its folder.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\- ]{0,127}")


@dataclass(frozen=True, slots=True)
class Question:
    """A question's database and expected query, and the rows' keys they were read from.

    may_be_empty: the row says that its expected query gives nothing, or that its database has
    no rows, on purpose.
    """

    database: Database
    database_key: str
    query: str
    query_key: str
    may_be_empty: bool

    def comparison(self, rule: str, columns: str, tolerance: float) -> ComparisonRules:
        """How its results are compared; `rule` is the option `comparison`."""
        as_set = rule == "set" or (rule == "auto" and self.query_key == "gt_sql")
        return ComparisonRules(
            ordered=not as_set and orders_rows(self.query),
            rows="set" if as_set else "multiset",
            columns="free" if columns == "free" else "kept",
            tolerance=tolerance,
        )


def read_question(
    task: Task, databases: Path | None, engine: Literal["sqlite", "duckdb"] = "sqlite"
) -> Question:
    """What is asked; `databases` is the folder of database files. Raises `TaskInvalid`."""
    _refuse_foreign(task, engine)
    query_key = next((key for key in _QUERIES if key in task.payload), "gold_sql")
    query = filled_text(task, query_key)
    may_be_empty = optional(task, "allow_empty", bool) or False
    key = next((key for key in _DATABASES if key in task.payload), None)
    if key is None:
        raise TaskInvalid(
            "setup_sql", "is missing. Add the key setup_sql, or a key that names a database"
        )
    named: str = task.require(key, str)
    if key in _FILES:
        database = Database(path=str(_file(named, key, databases)), engine=engine)
    else:
        database = Database(script=named, engine=engine)
    return Question(database, key, query, query_key, may_be_empty)


def _refuse_foreign(task: Task, engine: str) -> None:
    for key in _FOREIGN:
        if key in task.payload:
            raise TaskInvalid(
                key,
                "selects how spider2_lite of NeMo Gym compares results, which this environment "
                "does not support. Run the row in the environment nemo_gym, or remove the key "
                "to compare whole results",
            )
    dialect = task.payload.get("sql_dialect", engine)
    if dialect != engine:
        raise TaskInvalid("sql_dialect", f"must be {engine}, the engine of this environment")


def _file(name: str, key: str, databases: Path | None) -> Path:
    if databases is None:
        raise TaskInvalid(
            key,
            "names a file, but the option 'databases' is not set. Set 'databases' to the folder of "
            "the file",
        )
    if not _NAME.fullmatch(name):
        raise TaskInvalid(key, "must be the name of a file, without a folder")
    places = [databases / name, databases / name / name]
    for place in places:
        for ending in ("", *_ENDINGS):
            candidate = place.with_name(place.name + ending)
            if candidate.is_file():
                return candidate
    raise TaskInvalid(key, f"names no database in the folder {databases.name!r}")
