"""Finds a query in what a model wrote, and what an expected query says about order. Pure."""

from __future__ import annotations

import re

# A code fence of backticks or tildes, up to its end or to that of the text.
_BLOCK = re.compile(r"(?P<fence>([`~])\2{2,}+)(?P<inside>.*?)(?P<end>(?P=fence)|\Z)", re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
# What a fence calls a block of SQL, beside all that has "sql" in it; and what may be anything.
_DIALECTS = ("postgres", "duckdb", "duck", "bigquery", "snowflake", "mariadb", "oracle")
_ANYTHING = ("", "text", "txt", "plain", "plaintext", "code", "query", "db", "database")
# How a query begins, comments aside: "With this table …" is not one.
_START = re.compile(
    r"""(?:\s|\(|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*+
    (?:(?:select|values)\b|with\s+(?:recursive\s+)?(?:\w+|"[^"]*"|`[^`]*`|\[[^\]]*\])\s*(?:\(|as\b))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NEMO_BLOCK = re.compile(r"```sql\s*(.*?)\s*```", re.DOTALL | re.IGNORECASE)
# A text, a quoted name or a comment, each up to its end or to that of the query.
_QUOTED = re.compile(
    r"""'[^']*(?:'|$)|"[^"]*(?:"|$)|`[^`]*(?:`|$)|\[[^\]]*(?:\]|$)|--[^\n]*|/\*.*?(?:\*/|$)""",
    re.DOTALL,
)
_WORD_OR_BRACKET = re.compile(r"[()]|\w+")


def find_query(text: str) -> str | None:
    """The last query in a text: a fenced block of SQL, or without one the whole of the text where
    it is a query, or code within a line.

    A block that is not closed counts where no other one has a query: an answer may be cut off.
    Of several semicolons at its end one is kept: behind it there is no other statement.
    """
    query = _last_query(text)
    if query is None or not query.endswith(";"):
        return query
    return query.rstrip("; \t\r\n") + ";"


def _last_query(text: str) -> str | None:
    blocks = list(_BLOCK.finditer(text))
    for block in (*(one for one in reversed(blocks) if one["end"]), *blocks[-1:]):
        query = _query_of(block["inside"])
        if query is not None:
            return query
    if blocks:
        return None
    whole = text.strip()
    if _is_query(whole):
        return whole
    queries = [code.strip() for code in _INLINE.findall(text) if _is_query(code)]
    return queries[-1] if queries else None


def find_query_as_nemo(text: str) -> str | None:
    """NeMo Gym's rule: the last block that is fenced as `sql` and closed."""
    blocks = _NEMO_BLOCK.findall(text)
    return (blocks[-1] or None) if blocks else None


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
    first, _, rest = block.partition("\n")
    language, _, more = first.strip().partition(" ")
    language = language.lower()
    if "sql" in language or language in _DIALECTS:
        return f"{more}\n{rest}".strip() or None
    if language in _ANYTHING and _is_query(rest):
        return rest.strip()
    return block.strip() if _is_query(block) else None


def _is_query(text: str) -> bool:
    return _START.match(text) is not None
