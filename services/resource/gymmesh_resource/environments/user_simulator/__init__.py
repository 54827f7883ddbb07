"""The user simulator: a customer played by a second model, and the shop that serves them."""

from .environment import UserSimulatorEnvironment

__all__ = ["UserSimulatorEnvironment"]
