"""The function_calling environment: tool calls compared with the expected ones."""

from .environment import FunctionCallingEnvironment

__all__ = ["FunctionCallingEnvironment"]
