"""Environments that the tests collect in."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource import Environment, Rollout, Session, Transcript, Turn, Verdict
from gymmesh_resource.config import EnvironmentConfig
from tests.handoff.slime_areal.router import ASKED_AGAIN, WORDS
from tests.unit.trainers.environments import Debate


class Counting(Environment[Counter[str]]):
    """Asks again until it has six answers; the last must end with six."""

    state = Counter

    async def next_turn(self, session: Session[Counter[str]], new: Transcript) -> Turn:
        session.state["turns"] += 1
        return Turn(ASKED_AGAIN) if session.state["turns"] < len(WORDS) else Turn(done=True)

    async def verify(self, session: Session[Counter[str]], rollout: Rollout) -> Verdict | float:
        return float(rollout.answer.endswith("six"))


class Breaking(Counting):
    """Its verifier breaks at a wrong answer. Every second right one has half a reward."""

    def __init__(self) -> None:
        self._rewards = cycle((1.0, 0.5))

    async def verify(self, session: Session[Counter[str]], rollout: Rollout) -> Verdict | float:
        if rollout.answer.endswith("seven"):
            raise RuntimeError("the verifier is gone")
        return next(self._rewards)


class Debated(Environment[None]):
    """Rewards the critic by itself, against the root agent."""

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        right = rollout.answer.endswith("one")
        return Verdict(float(right), {"critic": 0.25 if right else 0.75})


def debated() -> MeshConfig:
    """A mesh in which a critic answers the root agent."""
    agent = AgentConfig(use=f"{Debate.__module__}:{Debate.__qualname__}")
    environment = EnvironmentConfig(use=f"{__name__}:{Debated.__qualname__}")
    return MeshConfig(
        environments={"debate": environment},
        agents={"own": agent},
        defaults=Defaults(environment="debate", agent="own"),
    )
