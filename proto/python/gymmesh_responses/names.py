"""Names of tools that every endpoint accepts.

OpenAI's API reference for a function's name: letters, digits, underscores and dashes, at most 64.
Servers that follow it refuse a request with any other name, in a tool or in an earlier call. Other
servers, such as vLLM, accept any text.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_TOOL_NAME: Final = 64
"""The most characters of a tool's name."""

TOOL_NAME_RULE: Final = "at most 64 letters, digits, '_' and '-'"
"""The rule for the names of tools, for error messages."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def is_tool_name(name: str) -> bool:
    """Whether every endpoint accepts the name."""
    return _NAME.fullmatch(name) is not None


def with_name_characters(name: str) -> str:
    """The name with `_` in place of each character that is not allowed; an empty one is `_`.

    The result can still be too long.
    """
    return _OTHER.sub("_", name) or "_"
