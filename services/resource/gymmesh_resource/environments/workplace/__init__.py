"""The workplace environment: an office's mail, calendar, tasks, customers and analytics."""

from gymmesh_resource.environments.workplace.environment import WorkplaceEnvironment

__all__ = ["WorkplaceEnvironment"]
