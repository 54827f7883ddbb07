"""A custom agent with two actors: a solver that is trained, and a critic that is not.

The solver answers the task, with the environment's tools. The critic reads the answer in a
conversation of its own and either accepts it or says what is wrong; the solver then tries again.
Only the solver's conversation is judged and learned from.

Run it with the configuration beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gymmesh import Agent, Completion, ModelCall, RolloutContext, new_message, text_of

_INSTRUCTIONS = "You check answers. Reply with OK alone, or with one sentence on what is wrong."


class SolverCritic(Agent):
    """Solves, has the answer criticised, and solves again.

    Options:
        rounds: how often the critic is asked, at least 1 (default 2).
    """

    version: ClassVar[str] = "1"
    description: ClassVar[str] = "A solver whose answers a frozen critic may send back."
    roles: ClassVar[tuple[str, ...]] = ("policy", "critic")

    def __init__(self, options: Mapping[str, Any]) -> None:
        rounds = options.get("rounds", 2)
        if not isinstance(rounds, int) or rounds < 1 or set(options) - {"rounds"}:
            raise ValueError(f"options: SolverCritic takes `rounds`, at least 1, got {options}")
        self._rounds: int = rounds

    async def run(self, context: RolloutContext) -> Completion:
        """One rollout."""
        answer = await self._solve(context, "")
        for round_ in range(self._rounds):
            verdict = await self._criticise(context, answer)
            await context.annotate("critique", {"round": round_, "text": verdict}, answer)
            if verdict.strip() == "OK":
                return Completion.by_rule(f"the critic accepted round {round_}")
            answer = await self._solve(context, verdict)
        return Completion.by_rule("the critic was asked often enough")

    async def _solve(self, context: RolloutContext, remark: str) -> ModelCall:
        """The solver's next answer that calls no tool. A limit of the policy's ends the rollout
        from within `call_model`.
        """
        remarks = [new_message("user", remark)] if remark else []
        call = await context.call_model(remarks)
        while call.function_calls:
            await context.call_tools(call)
            call = await context.call_model()
        return call

    async def _criticise(self, context: RolloutContext, answer: ModelCall) -> str:
        """What the critic says to the answer, in a conversation that begins anew each time."""
        task = "\n".join(text_of(item) for item in context.items)
        question = new_message("user", f"Task:\n{task}\n\nAnswer:\n{answer.text}")
        critique = await context.call_model(
            [question],
            role="critic",
            actor="critic",
            parent=answer,
            detached=True,
            trainable=False,
            params={"instructions": _INSTRUCTIONS, "max_output_tokens": 200},
        )
        return critique.text
