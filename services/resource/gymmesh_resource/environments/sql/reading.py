"""Finds a query in what a model wrote, and what an expected query says about order. Pure."""

from __future__ import annotations

import re

_FENCE = "```"
_STARTS = ("select", "with", "values")
# A text, a quoted name or a comment, each up to its end or to that of the query.
_QUOTED = re.compile(
    r"""'[^']*(?:'|$)|"[^"]*(?:"|$)|`[^`]*(?:`|$)|\[[^\]]*(?:\]|$)|--[^\n]*|/\*.*?(?:\*/|$)""",
    re.DOTALL,
)
_WORD_OR_BRACKET = re.compile(r"[()]|\w+")


def find_query(text: str) -> str | None:
    """The last query in a text: a fenced block of SQL, or the whole of it where it is a query."""
    blocks = text.split(_FENCE)[1::2]
    if text.count(_FENCE) % 2:
        blocks = blocks[:-1]  # the last one was not closed
    for block in reversed(blocks):
        query = _query_of(block)
        if query is not None:
            return query
    whole = text.strip()
    return whole if not blocks and _is_query(whole) else None


def orders_rows(sql: str) -> bool:
    """Whether the outermost query has an ORDER BY of its own."""
    depth, previous = 0, ""
    for match in _WORD_OR_BRACKET.finditer(_QUOTED.sub(" ", sql)):
        word = match.group().lower()
        if word == "(":
            depth += 1
        elif word == ")":
            depth -= 1
        elif depth == 0 and previous == "order" and word == "by":
            return True
        previous = word
    return False


def _query_of(block: str) -> str | None:
    """A fenced block's query; its first word may name the language."""
    language, _, rest = block.partition("\n")
    if language.strip().lower() in ("sql", "sqlite", "sqlite3"):
        return rest.strip() or None
    if language[:4].lower() == "sql ":
        return block[4:].strip() or None
    bare = rest if rest and not language.strip() else block
    return bare.strip() if _is_query(bare) else None


def _is_query(text: str) -> bool:
    return text.lstrip("( \t\r\n").lower().startswith(_STARTS)
