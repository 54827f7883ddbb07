"""Text of others (models, endpoints, peers, files), made safe for a terminal or a log.

A terminal interprets control characters: they move the cursor, clear the screen or set the
clipboard. Others reverse the direction of text, which can hide its meaning. All of them are written
out, as `\\x1b` or `\\u202e`, as Python and JSON do.
"""

from __future__ import annotations

import logging
import re
from typing import Final

# C0, DEL and C1; marks, embeddings, overrides and isolates of direction; line and paragraph
# separators; characters that show nothing, but for the two joiners, which scripts need; tags; lone
# surrogates, which cannot be encoded.
_HOSTILE: Final = (
    r"\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\ud800-\udfff"
)
_ONE_LINE: Final = re.compile(f"[{_HOSTILE}]")
_LAID_OUT: Final = re.compile(rf"(?![\n\t])[{_HOSTILE}]")

IN_LINES: Final = {"in_lines": True}
"""The `extra` of a log record that has a text of several lines, such as the end of a log."""


def one_line(text: str) -> str:
    """Text on one line, without characters that a terminal would interpret."""
    return _ONE_LINE.sub(_escape, text)


def shortened(text: str, most: int) -> str:
    """Text of at most `most` characters. If characters were cut, the total number is added."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text)} characters)"


def laid_out(text: str) -> str:
    """Like `one_line`, but newlines and tabs stay: for text whose lines this project wrote."""
    return _LAID_OUT.sub(_escape, text)


def plain_json(text: str) -> str:
    """JSON on one line with the same meaning, without characters that a terminal would
    interpret.
    """
    return _ONE_LINE.sub(_escape_json, text)


class PlainFormatter(logging.Formatter):
    """Formats a log record on one line, with the following lines (a traceback) indented. So no part
    of a message or an exception looks like another record.

    A message's own line breaks are escaped. With `extra=IN_LINES`, its further lines are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        copy = logging.makeLogRecord(record.__dict__)
        message = record.getMessage()
        in_lines = getattr(record, "in_lines", False)
        copy.msg, copy.args = laid_out(message) if in_lines else one_line(message), None
        first, *rest = super().format(copy).split("\n")
        return "\n".join([one_line(first), *(f"    {one_line(line)}" for line in rest)])


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _escape_json(found: re.Match[str]) -> str:
    # A character beyond 16 bits is two of UTF-16 in JSON; a lone surrogate is itself.
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
