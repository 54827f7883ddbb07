"""The keys of protobuf's JSON, which may be in camel case or in snake case. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_agent.gateway.request import Json

_SNAKE: Final = re.compile(r"_([a-z0-9])")
_CAMEL: Final = re.compile(r"[A-Z]")


def camel_keys(value: Mapping[str, Any]) -> Json:
    """The object with its own keys, not those of its members, in camel case."""
    return {camel(key) if "_" in key else key: member for key, member in value.items()}


def camel(name: str) -> str:
    """`system_instruction` as `systemInstruction`."""
    return _SNAKE.sub(lambda found: found[1].upper(), name)


def snake(name: str) -> str:
    """`systemInstruction` as `system_instruction`."""
    return _CAMEL.sub(lambda found: f"_{found[0].lower()}", name)
