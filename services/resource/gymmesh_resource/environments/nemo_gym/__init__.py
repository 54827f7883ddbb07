"""The nemo_gym environment: a NeMo Gym resources server, reached over its HTTP API."""

from gymmesh_resource.environments.nemo_gym.environment import NemoGymEnvironment

__all__ = ["NemoGymEnvironment"]
