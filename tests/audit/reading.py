"""What small verifiers read with, rightly."""

from __future__ import annotations

import json
import re
import sqlite3
import textwrap
import unicodedata
from fractions import Fraction
from typing import Any

BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
FENCE = re.compile(
    r"^[ \t]*(?P<mark>```|~~~)[^\n]*\n(?P<inside>.*?)(?:^[ \t]*(?P=mark)|\Z)", re.M | re.S
)
DATABASE = "CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1,'x'),(2,'y'),(3,'x');"


def boxed(text: str) -> str:
    """The last box's content; empty without one."""
    found = BOX.findall(text)
    return str(found[-1]) if found else ""


def tagged(text: str) -> str:
    """What stands between the last answer tags."""
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    return str(found[-1]).strip() if found else ""


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def normal(text: str) -> str:
    """Words for comparison."""
    folded = unicodedata.normalize("NFKC", text).replace("’", "'").casefold()
    return " ".join(folded.split()).rstrip(".")


def number(text: str) -> Fraction | None:
    """An exact number in any usual form; None for what is none."""
    bare = unicodedata.normalize("NFKC", text).strip().replace("−", "-").rstrip(".")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", bare):
        bare = bare.replace(",", "")
    power = re.fullmatch(r"(-?[\d.]+)\\times10\^\{(-?\d{1,3})\}", bare)
    if power:
        return Fraction(power[1]) * Fraction(10) ** int(power[2])
    if not re.fullmatch(r"-?\d{1,40}(\.\d{1,40})?", bare):
        return None
    return Fraction(bare)


def fenced(text: str) -> str:
    """The last fence's content, else the text."""
    found = list(FENCE.finditer(text))
    return textwrap.dedent(found[-1]["inside"]).strip() if found else text.strip()


def document(text: str) -> Any:
    """Strict JSON: no NaN, no key twice. Raises ValueError."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def none(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(fenced(text), object_pairs_hook=once, parse_constant=none)
    except RecursionError:
        raise ValueError("too deep") from None


def rows(query: str) -> list[tuple[Any, ...]] | None:
    """What a query gives on the small database; None for one that cannot be run."""
    base = sqlite3.connect(":memory:")
    try:
        base.executescript(DATABASE)
        ticks = iter(range(200))
        base.set_progress_handler(lambda: next(ticks, None) is None, 10_000)
        found = base.execute(query).fetchmany(1000)
        return found if found else None
    except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeEncodeError):
        return None
    finally:
        base.close()
