"""The calendar environment: a calendar kept under constraints, over a conversation."""

from .environment import CalendarEnvironment

__all__ = ["CalendarEnvironment"]
