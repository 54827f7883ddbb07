"""The openenv environment: an OpenEnv server, reached over its WebSocket."""

from gymmesh_resource.environments.openenv.environment import OpenEnvEnvironment

__all__ = ["OpenEnvEnvironment"]
