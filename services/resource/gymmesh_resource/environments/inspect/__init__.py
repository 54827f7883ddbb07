"""The inspect environment: tasks of Inspect, judged by their own scorers."""

from gymmesh_resource.environments.inspect.environment import InspectEnvironment

__all__ = ["InspectEnvironment"]
