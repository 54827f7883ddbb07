"""What the tools share: pages of results, dates, and the errors for wrong arguments."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from gymmesh_resource import ToolError
from gymmesh_resource.environments.workplace.office import OfficeRecord

LARGEST_PAGE = 100


def page_of(kind: str, found: Sequence[Any], page: int, page_size: int) -> dict[str, Any] | str:
    """A page of results with its place among all, or a sentence when there are none.

    Pages count from 1; a page beyond the last is the last one. Raises `ToolError`.
    """
    if not 1 <= page_size <= LARGEST_PAGE:
        raise ToolError(f"page_size must be from 1 to {LARGEST_PAGE}, not {page_size}.")
    if not found:
        return f"No {kind} found."
    pages = -(-len(found) // page_size)
    page = max(1, min(page, pages))
    first = (page - 1) * page_size
    return {
        kind: found[first : first + page_size],
        "pagination": {
            f"total_{kind}": len(found),
            "page": page,
            "page_size": page_size,
            "total_pages": pages,
        },
    }


def wanted_texts(**texts: str | None) -> dict[str, str]:
    """The texts that are given, by field, in small letters."""
    return {field: text.lower() for field, text in texts.items() if text}


def has_texts(record: OfficeRecord, wanted: dict[str, str]) -> bool:
    """Whether each field of a record has its wanted text in it, in any case."""
    return all(text in (record[field] or "").lower() for field, text in wanted.items())


def read_moment(name: str, value: str) -> str:
    """A date and time as `YYYY-MM-DD HH:MM:SS`; a date alone is its midnight. Raises ToolError."""
    try:
        moment = datetime.datetime.fromisoformat(value.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise ToolError(f"{name} must be like 2023-12-01 10:00:00, not {value[:40]!r}.")
    return moment.replace(microsecond=0).isoformat(" ")


def read_date(name: str, value: str) -> str:
    """The date of a date or a moment, as `YYYY-MM-DD`. Raises ToolError."""
    return read_moment(name, value)[:10]


def require(**values: str | int) -> None:
    """Raise `ToolError` for an argument that is empty."""
    for name, value in values.items():
        if isinstance(value, str) and not value.strip():
            raise ToolError(f"{name} is empty; give it a value.")
