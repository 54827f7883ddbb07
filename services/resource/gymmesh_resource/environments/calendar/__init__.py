"""The calendar environment: a calendar kept under constraints, over a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import CalendarEnvironment as CalendarEnvironment

__all__ = ["CalendarEnvironment"]

__getattr__ = late_class(__name__, "CalendarEnvironment")
