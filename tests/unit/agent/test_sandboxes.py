"""Sandboxes that a session grants: the agent may work in them, and its events name them alone."""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from tests.unit.agent.mesh import running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, says
from tests.unit.agent.streams import kinds

LEASE = b"a-secret-of-the-sandbox"
GRANTS = [
    grant_pb2.SandboxGrant(
        sandbox=grant_pb2.SandboxRef(
            sandbox_id=f"b-{role}", service="boxes", instance_id="boxes-0", image="py:1"
        ),
        lease=LEASE,
        role=role,
        workdir="/work",
    )
    for role in ("workspace", "tests")
]


class Looks(Agent):
    """Says which sandboxes it was granted, and for what."""

    async def run(self, context: RolloutContext) -> Completion:
        assert all(grant.lease == LEASE for grant in context.sandboxes.values())
        names = ", ".join(f"{role}: {one.workdir}" for role, one in context.sandboxes.items())
        return Completion(rollout_pb2.STOP_REASON_AGENT_RULE, detail=names)


async def test_granted_sandboxes_are_events_without_their_leases() -> None:
    environment = TinyEnvironment(sandboxes=GRANTS)
    models = {"policy": ScriptedModel([says("done")])}
    config = AgentConfig(use=f"{__name__}:Looks")
    async with running("direct", environment, models, config) as mesh:
        events = await mesh.run()
    assert kinds(events)[:3] == ["started", "sandbox_opened", "sandbox_opened"]
    opened = [event for event in events if event.HasField("sandbox_opened")]
    assert all(event.ignorable for event in opened)
    assert [event.sandbox_opened.role for event in opened] == ["workspace", "tests"]
    assert [event.sandbox_opened.sandbox for event in opened] == [one.sandbox for one in GRANTS]
    assert not any(LEASE in event.SerializeToString() for event in events)
    assert events[-1].completed.stop_detail == "workspace: /work, tests: /work"
