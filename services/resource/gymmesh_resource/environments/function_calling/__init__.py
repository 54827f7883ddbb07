"""The function_calling environment: tool calls compared with the expected ones."""

from gymmesh_resource.environments.function_calling.environment import FunctionCallingEnvironment

__all__ = ["FunctionCallingEnvironment"]
