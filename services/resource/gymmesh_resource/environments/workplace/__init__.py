"""The workplace environment: an office's mail, calendar, tasks, customers and analytics."""

from .environment import WorkplaceEnvironment

__all__ = ["WorkplaceEnvironment"]
