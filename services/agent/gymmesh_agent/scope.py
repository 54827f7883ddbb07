"""The earlier import path and name of `RolloutContext`, kept for agents that use them."""

from gymmesh_agent.context import ModelCall, RolloutContext, ToolAnswer, TurnAnswer

__all__ = ["ModelCall", "RolloutScope", "ToolAnswer", "TurnAnswer"]

RolloutScope = RolloutContext
