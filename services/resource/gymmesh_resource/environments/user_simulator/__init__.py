"""The user simulator: a customer played by a second model, and the shop that serves them."""

from gymmesh_resource.environments.user_simulator.environment import UserSimulatorEnvironment

__all__ = ["UserSimulatorEnvironment"]
