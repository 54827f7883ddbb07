"""The workplace environment: an office's mail, calendar, tasks, customers and analytics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import WorkplaceEnvironment as WorkplaceEnvironment

__all__ = ["WorkplaceEnvironment"]

__getattr__ = late_class(__name__, "WorkplaceEnvironment")
