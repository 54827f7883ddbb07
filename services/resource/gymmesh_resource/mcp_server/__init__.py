"""An environment's tools offered over MCP, to agents outside of the mesh."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_resource.mcp_server.serving import serve as serve
    from gymmesh_resource.mcp_server.tool_server import ToolServer as ToolServer


_HOME = {"ToolServer": "tool_server", "serve": "serving"}


def __getattr__(name: str) -> Any:
    # Late, because the MCP library is optional.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    Extra("mcp", ("mcp",)).require("offering tools over MCP")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


__all__ = [
    "ToolServer",
    "serve",
]
