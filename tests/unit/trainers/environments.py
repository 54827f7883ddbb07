"""Environments and agents that the tests of trainers collect in."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gymmesh import Agent, Completion, RolloutContext, new_message
from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource import Environment, Rollout, Session, Transcript, Turn, Verdict, tool
from gymmesh_resource.config import EnvironmentConfig


class Sums(Environment[None]):
    """Adds numbers."""

    @tool
    async def add(self, session: Session[None], left: int, right: int) -> str:
        """Add two numbers.

        Args:
            left: one.
            right: the other.
        """
        return str(left + right)

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(rollout.answer.strip() == rollout.task.require("answer", str))


def rows(count: int) -> list[dict[str, Any]]:
    """Tasks of Sums."""
    return [
        {"task_id": f"t{number}", "prompt": f"What is {number} + 1?", "answer": str(number + 1)}
        for number in range(count)
    ]


class Debate(Agent):
    """The root agent answers; a critic says something to it, but only where there is a doubt."""

    version = "1"

    async def run(self, context: RolloutContext) -> Completion:
        answer = await context.call_model()
        if answer.text != "sure":
            await context.call_model(
                [new_message("user", "Is that so?")], actor="critic", detached=True
            )
        return Completion.by_rule("said")


class Untooled(Agent):
    """The root agent answers; then a critic, to which no tools are offered."""

    version = "1"

    async def run(self, context: RolloutContext) -> Completion:
        await context.call_model()
        remark = [new_message("user", "Is that so?")]
        await context.call_model(remark, actor="critic", detached=True, params={"tools": []})
        return Completion.by_rule("said")


class Judged(Agent):
    """The root agent answers; a model that nobody trains says something to it."""

    version = "1"

    async def run(self, context: RolloutContext) -> Completion:
        await context.call_model()
        await context.call_model([new_message("user", "Is that so?")], trainable=False)
        return Completion.by_rule("said")


class Debated(Environment[None]):
    """Rewards the critic by itself."""

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        critic = {"no": 0.25, "maybe": 0.75}.get(rollout.answer, 0.0)
        return Verdict(float(rollout.answer == "sure"), {"critic": critic, "format": 1.0})


class ToolDebated(Debated):
    """With a tool."""

    @tool
    async def look(self, session: Session[None]) -> str:
        """Look around."""
        return "a chair"


class Rewriting(Agent):
    """The root agent answers three times; before the last it begins anew, without its history."""

    version = "1"

    async def run(self, context: RolloutContext) -> Completion:
        await context.call_model()
        await context.call_model([new_message("user", "Are you sure?")])
        await context.call_model([new_message("user", "Sum up.")], detached=True)
        return Completion.by_rule("said")


class Paid(Environment[None]):
    """Takes one turn, with a reward of its own."""

    async def next_turn(self, session: Session[None], new: Transcript) -> Turn:
        if new.answer == "1":
            return Turn("And then?", reward=0.5)
        return Turn(done=True)

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


class Talk(Environment[Counter[str]]):
    """Asks again until it has six answers; the last must end with six."""

    state = Counter

    async def next_turn(self, session: Session[Counter[str]], new: Transcript) -> Turn:
        session.state["turns"] += 1
        return Turn("And then?") if session.state["turns"] < 6 else Turn(done=True)

    async def verify(self, session: Session[Counter[str]], rollout: Rollout) -> float:
        return float(rollout.answer.endswith("six"))


def place_of(environment: str, agent: str = "") -> MeshConfig:
    """A mesh of an environment of this file, with an agent of this file, where one is named."""
    own = AgentConfig(use=f"{__name__}:{agent}") if agent else AgentConfig()
    return MeshConfig(
        environments={"env": EnvironmentConfig(use=f"{__name__}:{environment}")},
        agents={"own": own},
        defaults=Defaults(environment="env", agent="own"),
    )
