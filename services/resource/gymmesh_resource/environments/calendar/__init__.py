"""The calendar environment: a calendar kept under constraints, over a conversation."""

from gymmesh_resource.environments.calendar.environment import CalendarEnvironment

__all__ = ["CalendarEnvironment"]
