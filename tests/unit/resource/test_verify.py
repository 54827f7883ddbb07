"""Verdicts: never a reward for trouble, never trouble for a reward."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import Member, Outcome, Rollout, Session, Task, Transcript, Turn, Verdict
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_resource.verdicts import write_verification
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from tests.support.scraping import Counted
from tests.unit.resource.environments import Game, Judge, Notebook, Ranked
from tests.unit.resource.served import TIMEOUT, Served, served, task

_FAULTS = [
    *("raise", "nan", "inf", "none", "text", "huge", "bad_component", "bad_evidence"),
    *("true", "two", "minus", "verdict_two", "true_component", "text_component", "rounded_up"),
    "list_evidence",
]


@pytest.mark.parametrize("kind", _FAULTS)
async def test_trouble_is_a_fault_and_never_a_reward(kind: str) -> None:
    async with served(Judge()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(of=task(kind=kind))
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert caught.value.metadata["verifier"] == "e"
    assert caught.value.metadata["at"].startswith("tests/unit/resource/environments.py:")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("two", ["'e'", "Judge.verify", "is 2,", "from 0 to 1", "reward_range = (0.0, 2.0)"]),
        ("minus", ["is -1,", "reward_range = (-1.0, 1.0)"]),
        ("true", ["is True", "float(right)"]),
        ("text", ["of the type str", "float(right)"]),
        ("true_component", ["the component 'c' is True"]),
        ("list_evidence", ["the evidence is of the type list", "Return a dict"]),
        ("raise", ["ZeroDivisionError: secret detail", "environments.py:"]),
    ],
)
async def test_the_sentence_says_what_is_wrong_and_what_to_do(kind: str, words: list[str]) -> None:
    async with served(Judge()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(of=task(kind=kind))
    assert all(word in caught.value.message for word in words), caught.value.message


async def test_faults_of_one_place_are_alike() -> None:
    seen = []
    async with served(Judge()) as mesh:
        for name in ("a", "b"):
            with pytest.raises(MeshError) as caught:
                await mesh.verify(of=task(name, kind="raise"))
            seen.append((caught.value.message, caught.value.metadata))
    assert seen[0] == seen[1]


async def test_an_infinite_range_makes_no_infinity_a_reward() -> None:
    judge = Judge()
    judge.reward_range = (-math.inf, math.inf)
    async with served(judge) as mesh:
        with pytest.raises(MeshError, match="not a finite number") as caught:
            await mesh.verify(of=task(kind="inf"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def test_a_declared_range_and_kinds_of_numbers() -> None:
    judge = Judge()
    judge.reward_range = (-1.0, math.inf)
    counted = Counted()
    async with served(judge) as mesh:
        rewards = [
            (await mesh.verify(of=task(kind=kind))).reward
            for kind in ("two", "minus", "whole", "fraction", "rounding")
        ]
    assert rewards == [2.0, -1.0, 1.0, 0.5, pytest.approx(1.0)]
    # What a mean is made of: a reward below 0 does not make a counter go down.
    assert counted.by("gymmesh_rewards_absolute_total", "sign", environment="e") == {
        "positive": pytest.approx(4.5),
        "negative": 1.0,
    }
    assert counted.of("gymmesh_verifications_total", environment="e", status="verified") == 5


@pytest.mark.parametrize("given", [(1.0, 0.0), (0, 0), "01", (0.0,), (0.0, math.nan), None])
def test_a_range_that_is_none_is_said_at_the_start(given: object) -> None:
    judge = Judge()
    judge.reward_range = given  # type: ignore[assignment]  # what is tested
    with pytest.raises(ConfigError, match=r"Judge\.reward_range is .*Write two numbers"):
        ResourceService(EnvironmentConfig(), "e", "e-0", environment=judge)


class Paying(Game):
    """Pays for turns what its task says; a sum goes to the agent."""

    reward_rule = resource_pb2.REWARD_RULE_SUM

    def next_turn(self, session: Session[list[int]], new: Transcript) -> Turn:
        return Turn("next", reward=session.task.payload["pays"])

    def verify(self, session: Session[list[int]], rollout: Rollout) -> float:
        return 1.0


@pytest.mark.parametrize("pays", [2, -1.5, True, "1"])
async def test_a_turn_pays_in_range_too(pays: object) -> None:
    async with served(Paying()) as mesh:
        session = await mesh.create(task(pays=pays))
        with pytest.raises(MeshError) as caught:
            await mesh.turn(session.session_id)
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "Paying.next_turn: the turn's reward is" in caught.value.message


async def test_a_sum_that_the_agent_makes_is_in_range_too() -> None:
    async with served(Paying()) as mesh:
        request = verify_pb2.VerifyRequest(
            session_id=(await mesh.create()).session_id,
            task=task(),
            turn_rewards=[0.5],
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        with pytest.raises(MeshError) as caught:
            await mesh.verifier.Verify(request, timeout=TIMEOUT)
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "the sum of the reward and the turns' rewards is 1.5" in caught.value.message


class Boundless(Paying):
    reward_range = (-math.inf, math.inf)


@pytest.mark.parametrize("rewards", [[1e308, 1e308], [math.inf, -math.inf], [math.nan]])
async def test_turns_without_a_finite_sum_are_a_fault(rewards: list[float]) -> None:
    async with served(Boundless()) as mesh:
        request = verify_pb2.VerifyRequest(
            session_id=(await mesh.create()).session_id,
            task=task(),
            turn_rewards=rewards,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        with pytest.raises(MeshError) as caught:
            await mesh.verifier.Verify(request, timeout=TIMEOUT)
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "the sum of the rewards of turns and tool calls" in caught.value.message


class Generous(Ranked):
    def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
        return [2.0 for _ in members]


async def test_a_group_is_judged_in_range_too() -> None:
    async with served(Generous()) as mesh:
        with pytest.raises(MeshError) as caught:
            await _judge(mesh, _group(["a", "b"]))
    assert "Generous.verify_group: the reward is 2" in caught.value.message


@pytest.mark.parametrize("kind", ["hang", "timeout"])
async def test_too_slow_is_a_timeout(kind: str) -> None:
    async with served(Judge(), verify_timeout_s=0.05) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(of=task(kind=kind))
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT


async def test_a_plain_number_is_a_verdict_with_one_stage() -> None:
    async with served(Judge()) as mesh:
        verification = await mesh.verify(of=task(kind="whole"))
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    assert verification.reward == 1.0
    assert [stage.name for stage in verification.stages] == ["verify"]
    assert (verification.verifier, verification.verifier_version) == ("e", "1")
    assert verification.evidence_json == b""


async def test_components_evidence_and_stages() -> None:
    async with served(Judge()) as mesh:
        verification = await mesh.verify(
            of=task(kind="weighted"), transcript=[new_message("assistant", "hi")]
        )
    assert verification.reward == 0.5
    parts = [(part.name, part.value, part.weight) for part in verification.components]
    assert parts == [("format", 1.0, 0.25), ("right", 0.5, 0.5)]
    assert json.loads(verification.evidence_json) == {"answer": "hi"}
    assert [(stage.name, stage.note) for stage in verification.stages] == [("format", "fine")]


def nested(wrap: Callable[[Any], Any]) -> Any:
    """A value wrapped five thousand times."""
    return reduce(lambda inner, _: wrap(inner), range(5000), cast("Any", 1))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (nested(lambda inner: [inner]), None),
        (nested(lambda inner: {"k": inner}), None),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**9000, "(an integer of 29898 bits)"),
        ("\ud800", "\ud800"),
        ((1, 2.5, True, None), [1, 2.5, True, None]),
    ],
    ids=["lists", "objects", "nan", "infinity", "integer", "surrogate", "tuple"],
)
def test_evidence_of_what_a_policy_wrote_is_no_fault(value: Any, kept: Any) -> None:
    message = rollout_pb2.Verification()
    verdict = Verdict(0.0, evidence={"parsed": value})
    assert write_verification(message, verdict, verifier="e", version="1", stages=()) == 0.0
    found = json.loads(message.evidence_json)["parsed"]
    if kept is None:
        assert b"nested deeper" in message.evidence_json
    else:
        assert found == kept


async def test_skipped_has_a_reason_on_one_line_and_no_reward() -> None:
    async with served(Judge()) as mesh:
        verification = await mesh.verify(of=task(kind="skip"))
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert not verification.HasField("reward")
    assert verification.reason == "no key for this one"


async def test_a_verifier_that_needs_the_session_says_so_when_it_is_gone() -> None:
    async with served(Notebook()) as mesh:
        session_id = (await mesh.create()).session_id
        await mesh.call(session_id, "note", {"line": "x"})
        assert (await mesh.verify(session_id)).reward == 0.1
        await mesh.close(session_id)
        for gone in (session_id, ""):
            with pytest.raises(MeshError) as caught:
                await mesh.verify(gone)
            assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_NOT_FOUND


async def test_without_a_session_nothing_is_left_open() -> None:
    async with served(Judge()) as mesh:
        assert (await mesh.verify("long gone", task(kind="whole"))).reward == 1.0
        assert len(mesh.service.sessions) == 0


def _group(texts: list[str], **payload: bool) -> verify_pb2.VerifyGroupRequest:
    return verify_pb2.VerifyGroupRequest(
        task=task("t", **payload),
        members=[
            verify_pb2.GroupMember(
                rollout_id=f"r{number}",
                transcript=[new_message("assistant", text)],
                stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
            )
            for number, text in enumerate(texts)
        ],
    )


async def _judge(mesh: Served, request: verify_pb2.VerifyGroupRequest) -> list[tuple[str, float]]:
    response = await mesh.verifier.VerifyGroup(request, timeout=TIMEOUT)
    return [(v.rollout_id, v.verification.reward) for v in response.verdicts]


async def test_group_verdicts_come_in_order_and_verify_is_pending() -> None:
    async with served(Ranked()) as mesh:
        pending = await mesh.verify()
        verdicts = await _judge(mesh, _group(["a", "abc", "ab"]))
        with pytest.raises(MeshError) as caught:
            await _judge(mesh, _group(["a", "b"], short=True))
    assert pending.status == rollout_pb2.VERIFICATION_STATUS_PENDING
    assert not pending.HasField("reward")
    assert verdicts == [("r0", 0.0), ("r1", 1.0), ("r2", 0.0)]
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def test_an_environment_without_groups_does_not_offer_them() -> None:
    async with served(Judge()) as mesh:
        with pytest.raises(MeshError) as caught:
            await _judge(mesh, _group(["a"]))
    assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED


async def test_turns_until_done() -> None:
    async with served(Game()) as mesh:
        session = await mesh.create()
        said = [new_message("assistant", "hi")]
        first = await mesh.turn(session.session_id, said, "r1")
        again = await mesh.turn(session.session_id, said, "r1")
        await mesh.turn(session.session_id, said)
        last = await mesh.turn(session.session_id, said)
        with pytest.raises(MeshError) as caught:
            await mesh.turn(session.session_id, said)
        repeated = await mesh.turn(session.session_id, said, "r1")
    assert session.multi_turn
    assert [item.message.text for item in session.items] == ["Three turns."]
    assert [item.message.text for item in first.items] == ["you said 'hi'", "2 left"]
    assert first == again == repeated
    assert (first.reward, first.done, last.done) == (0.5, False, True)
    assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_STATE
    assert caught.value.metadata["state"] == "done"


async def test_turns_are_not_offered_by_an_environment_without_them() -> None:
    async with served(Judge()) as mesh:
        session = await mesh.create()
        with pytest.raises(MeshError) as caught:
            await mesh.turn(session.session_id)
    assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED
