"""Makes cases/sql.jsonl: what each query gives is computed in Python from the table's rows.

Run it as `.venv/bin/python -m tests.verdicts.make_sql`.
"""

# ruff: noqa: E501  # a line a query reads better than its parts
from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from tests.verdicts.case_files import case, write

Sale: TypeAlias = tuple[int, str, str, int, float]
Rows: TypeAlias = "list[tuple[Any, ...]]"
# SQL, and the same in Python over the table's rows.
Query: TypeAlias = "tuple[str, Callable[[list[Sale]], Rows]]"

SALES: list[Sale] = [
    (1, "Ana", "north", 3, 9.5), (2, "Bo", "south", 5, 2.25), (3, "Cy", "north", 2, 9.5),
    (4, "Di", "east", 8, 0.1), (5, "Ana", "east", 1, 0.2), (6, "Bo", "north", 7, 120.0),
    (7, "Eva", "south", 5, 3e-10), (8, "Fay", "west", 4, 8e-10),
]  # fmt: skip
SETUP = (
    "CREATE TABLE sale (id INTEGER PRIMARY KEY, name TEXT, region TEXT, pieces INTEGER, price REAL);"
    "INSERT INTO sale VALUES "
    + ",".join(
        f"({n},'{name}','{region}',{pieces},{price!r})" for n, name, region, pieces, price in SALES
    )
    + ";"
)


def by_region(sales: Sequence[Sale], of: Callable[[list[Sale]], Any]) -> Rows:
    """One row for each region, in their order."""
    regions = sorted({sale[2] for sale in sales})
    return [(name, of([sale for sale in sales if sale[2] == name])) for name in regions]


# Questions: whether order counts; the gold query first, then others, right or not.
QUESTIONS: list[tuple[bool, list[Query]]] = [
    (False, [
        ("SELECT count(*) FROM sale", lambda t: [(len(t),)]),
        ("SELECT sum(1) FROM sale", lambda t: [(len(t),)]),
        ("SELECT count(id) AS n FROM sale", lambda t: [(len(t),)]),
        ("SELECT count(*) * 1.0 FROM sale", lambda t: [(float(len(t)),)]),
        ("SELECT count(DISTINCT name) FROM sale", lambda t: [(len({s[1] for s in t}),)]),
        ("SELECT count(*) + 1 FROM sale", lambda t: [(len(t) + 1,)]),
        ("SELECT max(id) - 1 FROM sale", lambda t: [(max(s[0] for s in t) - 1,)]),
        ("SELECT id FROM sale", lambda t: [(s[0],) for s in t]),
    ]),
    (False, [
        ("SELECT name FROM sale WHERE region = 'north'", lambda t: [(s[1],) for s in t if s[2] == "north"]),
        ("SELECT name FROM sale WHERE region IN ('north') ORDER BY name DESC", lambda t: [(s[1],) for s in t if s[2] == "north"]),
        ("SELECT s.name AS who FROM sale s WHERE s.region LIKE 'north'", lambda t: [(s[1],) for s in t if s[2] == "north"]),
        ("SELECT name FROM sale", lambda t: [(s[1],) for s in t]),
        ("SELECT name FROM sale WHERE region = 'south'", lambda t: [(s[1],) for s in t if s[2] == "south"]),
        ("SELECT name, id FROM sale WHERE region = 'north'", lambda t: [(s[1], s[0]) for s in t if s[2] == "north"]),
        ("SELECT upper(name) FROM sale WHERE region = 'north'", lambda t: [(s[1].upper(),) for s in t if s[2] == "north"]),
        ("SELECT name FROM sale WHERE region = 'north' LIMIT 2", lambda t: [(s[1],) for s in t if s[2] == "north"][:2]),
    ]),
    (True, [
        ("SELECT name, pieces FROM sale ORDER BY pieces DESC, id LIMIT 3", lambda t: [(s[1], s[3]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:3]]),
        ("SELECT name, pieces FROM (SELECT * FROM sale ORDER BY pieces DESC, id LIMIT 3) ORDER BY pieces DESC, id", lambda t: [(s[1], s[3]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:3]]),
        ("WITH top AS (SELECT * FROM sale ORDER BY pieces DESC, id LIMIT 3) SELECT name, pieces FROM top ORDER BY pieces DESC, id", lambda t: [(s[1], s[3]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:3]]),
        ("SELECT name, pieces FROM sale ORDER BY pieces LIMIT 3", lambda t: [(s[1], s[3]) for s in sorted(t, key=lambda s: s[3])[:3]]),
        ("SELECT pieces, name FROM sale ORDER BY pieces DESC, id LIMIT 3", lambda t: [(s[3], s[1]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:3]]),
        ("SELECT name, pieces FROM sale ORDER BY pieces DESC, id LIMIT 4", lambda t: [(s[1], s[3]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:4]]),
        ("SELECT name, pieces FROM (SELECT * FROM sale ORDER BY pieces DESC, id LIMIT 3) ORDER BY pieces", lambda t: sorted(((s[1], s[3]) for s in sorted(t, key=lambda s: (-s[3], s[0]))[:3]), key=lambda r: r[1])),
    ]),
    (False, [
        ("SELECT region, sum(pieces) FROM sale GROUP BY region", lambda t: by_region(t, lambda g: sum(s[3] for s in g))),
        ("SELECT region, total(pieces) FROM sale GROUP BY 1 ORDER BY 2", lambda t: by_region(t, lambda g: float(sum(s[3] for s in g)))),
        ("SELECT DISTINCT region, sum(pieces) OVER (PARTITION BY region) FROM sale", lambda t: by_region(t, lambda g: sum(s[3] for s in g))),
        ("SELECT region, count(*) FROM sale GROUP BY region", lambda t: by_region(t, len)),
        ("SELECT region, max(pieces) FROM sale GROUP BY region", lambda t: by_region(t, lambda g: max(s[3] for s in g))),
        ("SELECT region, sum(pieces) FROM sale GROUP BY region HAVING sum(pieces) > 5", lambda t: [r for r in by_region(t, lambda g: sum(s[3] for s in g)) if r[1] > 5]),
        ("SELECT region, '' || sum(pieces) FROM sale GROUP BY region", lambda t: by_region(t, lambda g: str(sum(s[3] for s in g)))),
    ]),
    (False, [
        ("SELECT avg(pieces) FROM sale", lambda t: [(fmean(s[3] for s in t),)]),
        ("SELECT sum(pieces) * 1.0 / count(*) FROM sale", lambda t: [(sum(s[3] for s in t) / len(t),)]),
        ("SELECT total(pieces) / 8 FROM sale", lambda t: [(sum(s[3] for s in t) / 8,)]),
        ("SELECT sum(pieces) / count(*) FROM sale", lambda t: [(sum(s[3] for s in t) // len(t),)]),
        ("SELECT round(avg(pieces)) FROM sale", lambda t: [(math.floor(fmean(s[3] for s in t) + 0.5),)]),
        ("SELECT avg(pieces) + 0.001 FROM sale", lambda t: [(fmean(s[3] for s in t) + 0.001,)]),
    ]),
    (False, [
        ("SELECT min(price) FROM sale", lambda t: [(min(s[4] for s in t),)]),
        ("SELECT price FROM sale ORDER BY price LIMIT 1", lambda t: [(min(s[4] for s in t),)]),
        ("SELECT price FROM sale WHERE id = 8", lambda t: [(t[7][4],)]),
        ("SELECT 0", lambda t: [(0,)]),
        ("SELECT 0.0000000001", lambda t: [(1e-10,)]),
        ("SELECT min(price) * 1.01 FROM sale", lambda t: [(min(s[4] for s in t) * 1.01,)]),
        ("SELECT round(min(price), 6) FROM sale", lambda t: [(0.0,)]),
    ]),
    (False, [
        ("SELECT price * 3 FROM sale WHERE id < 6", lambda t: [(s[4] * 3,) for s in t[:5]]),
        ("SELECT price + price + price FROM sale WHERE id <= 5", lambda t: [(s[4] + s[4] + s[4],) for s in t[:5]]),
        ("SELECT price * 2 FROM sale WHERE id < 6", lambda t: [(s[4] * 2,) for s in t[:5]]),
        ("SELECT DISTINCT price * 3 FROM sale WHERE id < 6", lambda t: [(v,) for v in {s[4] * 3 for s in t[:5]}]),
        ("SELECT price * 3 FROM sale WHERE id < 5", lambda t: [(s[4] * 3,) for s in t[:4]]),
    ]),
    (False, [
        ("SELECT DISTINCT region FROM sale", lambda t: [(r,) for r in {s[2] for s in t}]),
        ("SELECT region FROM sale GROUP BY region", lambda t: [(r,) for r in {s[2] for s in t}]),
        ("SELECT region FROM sale", lambda t: [(s[2],) for s in t]),
        ("SELECT region FROM sale EXCEPT SELECT 'west'", lambda t: [(r,) for r in {s[2] for s in t} - {"west"}]),
        ("SELECT DISTINCT trim(region) FROM sale", lambda t: [(r,) for r in {s[2] for s in t}]),
    ]),
]  # fmt: skip
# How an answer has its query; `{}` stands for it.
FORMS = [
    "```sql\n{}\n```", "```sql\n{};\n```", "```mysql\n{}\n```", "```postgresql\n{}\n```", "```SQL\n{}\n```",
    "```sqlite\n{}\n```", "```\n{}\n```", "~~~sql\n{}\n~~~", "~~~\n{}\n~~~", "```sql\n{}", "1. So:\n   ```sql\n   {}\n   ```",
    "Counting rows.\n\n```sql\n-- the answer\n{}\n```\nDone.", "{}", "  {}\n", "````sql\n{}\n````", "It is `{}`.",
    "```sql\nSELECT 99\n```\nNo:\n```sql\n{}\n```", "```sql\n{}\n```\n```text\n8\n```", "```tsql\n{}\n```", "```plaintext\n{}\n```",
]  # fmt: skip


def same(gold: Rows, given: Rows, ordered: bool) -> bool:
    """Whether two results are one: numbers to six digits, texts exactly."""

    def form(row: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(f"{v:.5e}" if isinstance(v, int | float) else repr(v) for v in row)

    left, right = list(map(form, gold)), list(map(form, given))
    return left == right if ordered else Counter(left) == Counter(right)


def cases() -> Iterator[dict[str, Any]]:
    """Each query in several forms; the gold one and other words for it in every form."""
    chance = random.Random(1)
    for ordered, queries in QUESTIONS:
        gold, of_gold = queries[0]
        row = {"setup_sql": SETUP, "gold_sql": gold}
        for sql, of in queries:
            right = same(of_gold(SALES), of(SALES), ordered)
            for form in chance.sample(FORMS, 5 if right else 3):
                yield case(
                    row, form.format(sql), float(right),
                    "the same result" if right else "another result",
                    source="the result computed in Python", **({"clothes": True} if right else {}),
                )  # fmt: skip
    row = {"setup_sql": SETUP, "gold_sql": "SELECT count(*) FROM sale"}
    for text, why in (
        ("", "nothing"), ("8", "no query"), ("I don't know.", "a refusal"), ("```sql\n```", "an empty block"),
        ("With 8 rows the count is 8.", "prose that begins as a query may"), ("```python\nprint(8)\n```", "another language"),
        ("```sql\nDROP TABLE sale\n```", "a statement that writes"), ("```sql\nSELECT 8; SELECT 8\n```", "two statements"),
        ("SELECT count(*) FROM sales", "no such table"), ("```sql\nSELECT count(*) FROM sale", "cut off, but whole"),
    ):  # fmt: skip
        yield case(row, text, float(why == "cut off, but whole"), why)
    yield case(
        {"setup_sql": SETUP, "gold_sql": "SELECT name FROM sale WHERE id = 99"},
        "SELECT 1",
        None,
        "a gold query without rows",
    )
    yield case(
        {"setup_sql": SETUP, "gold_sql": "SELECT nothing FROM sale"},
        "SELECT 1",
        None,
        "a gold query that fails",
    )
    yield case(
        {"setup_sql": "CREATE TABLE sale (id)", "gold_sql": "SELECT count(*) FROM sale"},
        "SELECT 0",
        None,
        "a database without rows",
    )
    yield case({"gold_sql": "SELECT 1"}, "SELECT 1", None, "no database")


if __name__ == "__main__":
    write("sql", cases())
