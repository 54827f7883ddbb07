"""A result as the model sees it: bounded, and in JSON. Pure."""

from __future__ import annotations

from typing import Any

from gymmesh_resource.environments.sql.results import QueryResult

_CELL = 1_000
_ALL = 20_000


def shown(result: QueryResult) -> dict[str, Any]:
    """Columns, rows, and the number of omitted ones; blobs are written as SQL literals."""
    rows: list[list[Any]] = []
    left = _ALL
    for row in result.rows:
        cells = [_cell(value) for value in row]
        left -= sum(len(str(cell)) for cell in cells)
        if left < 0:
            break
        rows.append(cells)
    answer: dict[str, Any] = {"columns": [name[:_CELL] for name in result.columns], "rows": rows}
    if not result.complete or len(rows) < len(result.rows):
        answer["note"] = (
            f"Only the first {len(rows)} rows are shown. Count or limit the rows in SQL."
        )
    return answer


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        value = f"x'{value[: _CELL // 2].hex()}'"
    if isinstance(value, str) and len(value) > _CELL:
        return value[:_CELL] + "…"
    if isinstance(value, float) and not (value == value and abs(value) != float("inf")):
        return str(value)  # JSON has no such numbers
    return value
