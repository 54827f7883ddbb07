"""The default agent: model, tools, model … until the loop ends, by the rules of loop.py."""

from __future__ import annotations

from typing import ClassVar

from gymmesh_agent.agent import Agent
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.loop import (
    Action,
    CallModel,
    Completion,
    ContextExceeded,
    RunTools,
    Stop,
    ToolLoop,
)
from gymmesh_agent.model import ModelCall


class ToolLoopAgent(Agent):
    """Calls one model with the environment's tools, and lets an environment take its turns."""

    version: ClassVar[str] = "1"
    description: ClassVar[str] = (
        "Calls the policy, runs the policy's tool calls concurrently, and returns the outputs to "
        "the policy. Repeats these steps until the policy answers without a tool call. The "
        "environment can then take a turn."
    )

    async def run(self, context: RolloutContext) -> Completion:
        """Carry out the actions of the loop until it stops; returns how the rollout ended."""
        loop = ToolLoop(context.limits, multi_turn=context.multi_turn)
        action: Action = loop.opened()
        call: ModelCall | None = None
        while True:
            if isinstance(action, CallModel):
                try:
                    call = await context.call_model()
                except ContextExceeded:
                    action = loop.context_exceeded()
                else:
                    action = loop.model_answered(
                        call.response, call.output_tokens, call.function_calls, call.status
                    )
            elif isinstance(action, RunTools):
                assert call is not None  # the loop asks for tools only after an answer
                answers = await context.call_tools(call)
                action = loop.tools_answered([answer.done for answer in answers])
            elif isinstance(action, Stop):
                return action
            else:
                turn = await context.next_turn(call)
                action = loop.turn_taken(done=turn.done)
