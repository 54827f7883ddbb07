"""The laws of a stream, for any course."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import MeshError
from tests.integration.agent.words import (
    cut,
    fixed,
    policy,
    raising,
    turn,
)
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import (
    Step,
    TinyEnvironment,
    call,
    calls,
    reward,
    says,
)
from tests.unit.agent.streams import kinds

Reason = errors_pb2.ErrorReason

_RAISED = [
    Reason.ERROR_REASON_MODEL_TIMEOUT,
    Reason.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
    Reason.ERROR_REASON_PEER_UNAVAILABLE,
]
_CALLS = st.lists(
    st.builds(
        call,
        st.sampled_from(["ok", "bad", "nope", "win"]),
        st.sampled_from(["{}", "}"]),
        st.sampled_from(["f1", "f2"]),
    ),
    max_size=3,
)
_STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda functions: calls(*functions), _CALLS),
    st.builds(lambda functions: calls(*functions), _CALLS),
    st.builds(says, st.text(max_size=3)),
    st.builds(lambda: says("", **cut("max_output_tokens"))),
    st.builds(lambda reason: MeshError(reason, "x"), st.sampled_from(_RAISED)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(_STEPS, min_size=1, max_size=5),
    fault=st.booleans(),
    turns=st.integers(0, 2),
    verdict=st.sampled_from([reward(0.0), reward(None), MeshError(_RAISED[0], "judge")]),
    refused=st.booleans(),
)
def test_any_course_keeps_the_laws(
    steps: list[Step], fault: bool, turns: int, verdict: Any, refused: bool
) -> None:
    async def course() -> None:
        full = MeshError(Reason.ERROR_REASON_SESSION_LIMIT, "full")
        bad = raising(Reason.ERROR_REASON_ENVIRONMENT_FAULT) if fault else fixed("fine")
        environment = TinyEnvironment(
            tools={"ok": fixed("4"), "bad": bad, "win": fixed("won", done=True)},
            turns=[turn("on")] * (turns - 1) + [turn(done=True)] * bool(turns),
            verdict=verdict,
            create_errors=[full] if refused else [],
        )
        async with running("direct", environment, policy(*steps, repeat=True)) as mesh:
            events = await mesh.run(ask(max_steps=4))
        assert environment.closed == ([] if refused else ["s1"])
        if kinds(events)[-1] == "completed":
            assert not refused
            assert isinstance(verdict, rollout_pb2.Verification)
            assert verdict.HasField("reward")

    with asyncio.Runner() as runner:
        runner.run(course())
