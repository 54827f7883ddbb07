"""The default agent: model, tools, model … until it is over, by the rules of loop.py."""

from __future__ import annotations

from typing import ClassVar

from gymmesh_agent.agent import Agent, Completion, ContextExceeded
from gymmesh_agent.loop import Action, CallModel, RunTools, Stop, ToolLoop
from gymmesh_agent.scope import ModelCall, RolloutScope


class ToolLoopAgent(Agent):
    """Calls one model with the environment's tools; takes part in turns."""

    version: ClassVar[str] = "1"
    description: ClassVar[str] = (
        "Calls the policy, runs its tool calls side by side, shows it the outputs, and goes on "
        "until it answers without a call; lets the environment take its turns."
    )

    async def run(self, scope: RolloutScope) -> Completion:
        """Do what the loop says until it says stop, which is how the rollout ended."""
        loop = ToolLoop(scope.limits, multi_turn=scope.multi_turn)
        action: Action = loop.opened()
        call: ModelCall | None = None
        while True:
            if isinstance(action, CallModel):
                try:
                    call = await scope.call_model()
                except ContextExceeded:
                    action = loop.context_exceeded()
                else:
                    action = loop.model_answered(
                        call.response, call.output_tokens, call.function_calls, call.status
                    )
            elif isinstance(action, RunTools):
                assert call is not None  # the loop asks for tools only after an answer
                done: list[bool] = []  # no comprehension, which would be a function of its own
                for answer in await scope.call_tools(call):
                    done.append(answer.done)
                action = loop.tools_answered(done)
            elif isinstance(action, Stop):
                return action
            else:
                turn = await scope.next_turn(call)
                action = loop.turn_taken(done=turn.done)
