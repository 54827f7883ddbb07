"""The nemo_gym environment: a NeMo Gym resources server, reached over its HTTP API."""

from .environment import NemoGymEnvironment

__all__ = ["NemoGymEnvironment"]
