"""SQL: queries with other results; the same query in other layouts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import Gold


def nearly(gold: Gold) -> Iterator[Variant]:
    """Queries with another result, whatever the database contains."""
    query = gold.answer.rstrip().rstrip(";")
    yield Variant("no rows", f"SELECT * FROM ({query}) AS q WHERE 1 = 0")
    yield Variant(
        "a row twice", f"SELECT * FROM ({query}) AS q UNION ALL SELECT * FROM ({query}) AS r"
    )
    yield Variant("a column more", f"SELECT q.*, 1 AS more FROM ({query}) AS q")
    yield Variant("a constant", "SELECT 987654321")
    yield Variant("a null", "SELECT NULL")
    yield Variant("the count alone", f"SELECT count(*) + 1000 FROM ({query}) AS q")
    yield Variant("the query as text", f"SELECT '{query.replace(chr(39), chr(39) * 2)}'")
    for name, pattern, other in (
        ("max for min", r"\bmin\(", "max("),
        ("min for max", r"\bmax\(", "min("),
        ("the other order", r"\bDESC\b", "ASC"),
    ):
        changed = re.sub(pattern, other, query, count=1, flags=re.IGNORECASE)
        if changed != query:
            yield Variant(name, changed)


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same query in other fences and layouts."""
    query = gold.answer.rstrip().rstrip(";")
    yield Variant("a semicolon at the end", f"{query};")
    yield Variant("a plain fence", message=f"```\n{query}\n```")
    yield Variant("a fence of capitals", message=f"```SQL\n{query}\n```")
    yield Variant("a fence of its dialect", message=f"```sqlite\n{query}\n```")
    yield Variant("a fence of tildes", message=f"~~~sql\n{query}\n~~~")
    yield Variant("a fence that is not closed", message=f"```sql\n{query}")
    yield Variant("an indented fence", message=f"Here it is:\n\n  ```sql\n  {query}\n  ```")
    yield Variant("a comment in front", f"-- the result\n{query}")
    yield Variant("after a paragraph", message=f"This joins the tables.\n\n{gold.message}\n")
    yield Variant(
        "a line for each clause", re.sub(r"\s+(FROM|WHERE|ORDER|GROUP)\b", r"\n\1", query)
    )
