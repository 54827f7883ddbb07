"""The ors environment: a server of the Open Reward Standard, reached over HTTP."""

from gymmesh_resource.environments.ors.environment import OrsEnvironment

__all__ = ["OrsEnvironment"]
