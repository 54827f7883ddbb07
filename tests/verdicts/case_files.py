"""Writes the files of reference verdicts that scripts beside this one make."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("cases")


def case(
    row: dict[str, Any], answer: str, right: float | None, why: str, **more: Any
) -> dict[str, Any]:
    """One case, written by hand unless `source` says otherwise."""
    return {"row": row, "answer": answer, "right": right, "why": why, "source": "hand"} | more


def write(environment: str, cases: Iterable[dict[str, Any]]) -> None:
    """Write an environment's file; the same case twice is written once."""
    lines = dict.fromkeys(json.dumps(one, ensure_ascii=False) for one in cases)
    text = "".join(f"{line}\n" for line in lines)
    CASES.joinpath(f"{environment}.jsonl").write_text(text, encoding="utf-8")
