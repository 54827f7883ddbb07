"""The function_calling environment: tool calls compared with the expected ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import FunctionCallingEnvironment as FunctionCallingEnvironment

__all__ = ["FunctionCallingEnvironment"]

__getattr__ = late_class(__name__, "FunctionCallingEnvironment")
