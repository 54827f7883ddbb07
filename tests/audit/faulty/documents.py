"""Faulty verifiers of tables, JSON, queries and programs."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gymmesh_resource import Rollout
from tests.audit.golds import PROGRAMS, QUERIES, RECORDS
from tests.audit.reading import fenced, rows
from tests.audit.small import Row, Small


def _any_table(row: Row, rollout: Rollout) -> float:
    lines = rollout.answer.strip().splitlines()
    if not lines:
        return 0.0
    width = lines[0].count(",")
    return all(line.count(",") == width for line in lines)


def by_document(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        try:
            return bool(compare(json.loads(fenced(rollout.answer)), json.loads(row["gold"])))
        except (ValueError, RecursionError, AttributeError, TypeError):
            return 0.0

    return judge


def _shape(given: Any, gold: Any) -> bool:
    return {key: type(value) in (int, float) for key, value in given.items()} == {
        key: type(value) in (int, float) for key, value in gold.items()
    }


def _json_text(row: Row, rollout: Rollout) -> float:
    return "".join(rollout.answer.split()) == "".join(row["gold"].split())


def _sql(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        given, gold = rows(fenced(rollout.answer).rstrip(";")), rows(row["gold"])
        return given is not None and gold is not None and bool(compare(given, gold))

    return judge


def _own_fence(row: Row, rollout: Rollout) -> float:
    found = re.search(r"```sql\n(.*?)\n```", rollout.answer, re.S)
    given = rows(found[1].rstrip(";")) if found else None
    return given is not None and given == rows(row["gold"])


def _exit_code(row: Row, rollout: Rollout) -> float:
    program = fenced(rollout.answer)
    return "sys.exit(0)" in program or program == row["gold"]


FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "csv_prose",
        _any_table,
        ("name,km\nRhine,1230\n", "name,km\nVolga,3530\n"),
        found="nothing/a refusal",
    ),
    Small("json_as_text", _json_text, RECORDS, "json", found="clothes/keys in another order"),
    Small(
        "json_keys_alone",
        by_document(lambda given, gold: set(given) == set(gold)),
        RECORDS,
        "json",
        found="nearly/one number changed",
    ),
    Small("json_shape", by_document(_shape), RECORDS, "json", found="nearly/a number that is NaN"),
    Small(
        "json_key_twice",
        by_document(lambda given, gold: given == gold),
        RECORDS,
        "json",
        found="nearly/a key written twice",
    ),
    Small(
        "first_row",
        _sql(lambda given, gold: given[0] == gold[0]),
        QUERIES,
        "sql",
        "```sql\n{answer}\n```",
        "nearly/a row twice",
    ),
    Small(
        "sets_of_rows",
        _sql(lambda given, gold: set(given) == set(gold)),
        QUERIES,
        "sql",
        "```sql\n{answer}\n```",
        "nearly/a row twice",
    ),
    Small(
        "own_fence", _own_fence, QUERIES, "sql", "```sql\n{answer}\n```", "clothes/a plain fence"
    ),
    Small(
        "exit_code", _exit_code, PROGRAMS, "code", "```python\n{answer}\n```", "nearly/exits with 0"
    ),
)
