"""Environments that ask models: judges in every place where environment code runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import Message

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import (
    Environment,
    Member,
    Rollout,
    Session,
    Task,
    Transcript,
    Turn,
    Verdict,
    tool,
)
from gymmesh_resource.model_access import client
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import TIMEOUT, served, task


class Oracle:
    """A model service that answers each prompt with its last message in upper case.

    `free`: until it is set, no answer is given.
    """

    def __init__(self, free: asyncio.Event | None = None) -> None:
        self._free = free
        self.requests: list[model_pb2.CreateResponseRequest] = []
        self.remaining: list[float] = []

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        self.requests.append(request)
        self.remaining.append(context.time_remaining())
        asked = request.params.input[-1].message.text
        if self._free is not None:
            await self._free.wait()
        if asked == "hang":
            await asyncio.Event().wait()
        if asked == "down":
            raise MeshError(errors_pb2.ERROR_REASON_MODEL_UNREACHABLE, "nobody there")
        if asked == "failed":
            broken = responses_pb2.Response(status="failed")
            return model_pb2.CreateResponseResponse(response=broken)
        return model_pb2.CreateResponseResponse(
            response=responses_pb2.Response(
                status="completed",
                output=[
                    responses_pb2.Item(reasoning=responses_pb2.Reasoning()),
                    new_message("assistant", asked.upper()),
                ],
                usage=responses_pb2.Usage(input_tokens=len(asked), output_tokens=3),
            )
        )


class Asks(Environment[list[str]]):
    """Asks its judge wherever it can."""

    state = list
    models = ("judge",)

    async def opening(self, session: Session[list[str]]) -> str:
        return (await session.ask("judge", "hello")).text

    @tool
    async def consult(self, session: Session[list[str]], question: str) -> str:
        """Ask."""
        return (await session.ask("judge", question)).text

    @tool
    def consult_blocking(self, session: Session[list[str]], question: str) -> str:
        """Ask from a thread."""
        return session.ask_sync("judge", question, temperature=0.5).text

    @tool
    async def consult_wrongly(self, session: Session[list[str]]) -> str:
        """Ask as if in a thread."""
        return session.ask_sync("judge", "x").text

    @tool
    async def undeclared(self, session: Session[list[str]]) -> str:
        """Ask a model that nobody declared."""
        return (await session.ask("stranger", "x")).text

    async def next_turn(self, session: Session[list[str]], new: Transcript) -> Turn:
        first, second = await asyncio.gather(
            session.ask("judge", [new_message("user", "a"), {"role": "user", "content": "bc"}]),
            session.ask("judge", "d", system="Be brief.", seed=7),
        )
        return Turn(f"{first.text} {second.text}")

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float | Verdict:
        answer = await session.ask("judge", rollout.task.payload.get("ask", "ok"))
        on_rollout = await rollout.ask("judge", "sure?")
        return Verdict(float(answer.text == "OK"), evidence={"said": on_rollout.text})


class AsksInGroups(Environment[None]):
    """Ranks the repeats of a task by what a judge says of each."""

    models = ("judge",)

    async def verify_group(self, task: Task, members: Sequence[Member]) -> list[float]:
        answers = [await one.rollout.ask("judge", one.rollout.answer) for one in members]
        return [float(answer.text == "YES") for answer in answers]


class AsksSafely(Environment[None]):
    """Does without its judge when that one fails."""

    models = ("judge",)

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        try:
            answer = await session.ask("judge", rollout.task.payload["ask"])
        except MeshError as error:
            return Verdict(0.0, evidence={"judge_failed": error.reason_name})
        return Verdict(1.0, evidence={"said": answer.text})


def usage(entries: Any) -> list[tuple[str, int, int, int]]:
    return [(one.model, one.calls, one.input_tokens, one.output_tokens) for one in entries]


async def test_a_tool_asks_and_the_verdict_reports_what_it_cost() -> None:
    oracle = Oracle()
    async with served(
        Asks(), model_services={"big": oracle}, models={"judge": "big"}, tool_timeout_s=100
    ) as mesh:
        created = await mesh.create()
        assert created.items[0].message.text == "HELLO"
        answer = await mesh.call(created.session_id, "consult", {"question": "why"})
        blocking = await mesh.call(created.session_id, "consult_blocking", {"question": "how"})
        verification = await mesh.verify(created.session_id)
        again = await mesh.verify(created.session_id)
    assert (answer.text, blocking.text) == (b"WHY", b"HOW")
    assert verification.reward == 1.0
    assert verification.evidence_json == b'{"said":"SURE?"}'
    # hello, why, how; then ok and sure? of the verdict itself. A second verdict repeats the first.
    assert usage(verification.model_usage) == [("big", 5, 5 + 3 + 3 + 2 + 5, 15)]
    assert usage(again.model_usage) == usage(verification.model_usage)
    assert oracle.requests[2].params.temperature.real == 0.5
    # No longer than the tool may run, and a little kept back.
    assert all(60.0 < seconds < 100.0 for seconds in oracle.remaining[1:3])


async def test_what_acts_on_a_session_asks_on_after_its_callers_deadline() -> None:
    free = asyncio.Event()
    async with served(Asks(), model_services={"judge": Oracle(free)}) as mesh:

        async def impatient(method: str, request: Message) -> Any:
            """The repeat's answer, where the first caller waited for next to nothing."""
            free.clear()
            call = getattr(mesh.resource, method)
            with pytest.raises(MeshError) as caught:
                await call(request, timeout=0.1)
            assert caught.value.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
            free.set()
            return await call(request, timeout=TIMEOUT)

        create = resource_pb2.CreateSessionRequest(task=task(), request_id="a")
        created = await impatient("CreateSession", create)
        session = {"session_id": created.session_id}
        called = await impatient(
            "CallTool",
            resource_pb2.CallToolRequest(
                name="consult", arguments=b'{"question": "why"}', request_id="b", **session
            ),
        )
        turn = await impatient("NextTurn", resource_pb2.NextTurnRequest(request_id="c", **session))
    assert created.items[0].message.text == "HELLO"
    assert called.text == b"WHY"
    assert turn.items[0].message.text == "BC D"


async def test_a_verdict_asks_no_longer_than_its_caller_waits() -> None:
    oracle = Oracle()
    async with served(Asks(), model_services={"judge": oracle}, verify_timeout_s=300) as mesh:
        session_id = (await mesh.create()).session_id
        await mesh.verify(session_id, timeout=20)
    assert all(0 < seconds < 20 for seconds in oracle.remaining[1:])


async def test_a_turn_reports_its_own_calls() -> None:
    oracle = Oracle()
    async with served(Asks(), model_services={"judge": oracle}) as mesh:
        session_id = (await mesh.create()).session_id
        turn = await mesh.turn(session_id)
        verification = await mesh.verify(session_id)
    assert turn.items[0].message.text == "BC D"
    assert usage(turn.model_usage) == [("judge", 2, 3, 6)]
    assert usage(verification.model_usage) == [("judge", 3, 5 + 2 + 5, 9)]
    first, second = oracle.requests[1], oracle.requests[2]
    assert [item.message.text for item in first.params.input] == ["a", "bc"]
    assert second.params.instructions == "Be brief."
    assert second.seed == 7


async def test_the_rollout_is_named_and_its_group_reports_each_members_calls() -> None:
    oracle = Oracle()
    members = [_member(name, said) for name, said in (("r1", "yes"), ("r2", "no"))]
    async with served(AsksInGroups(), model_services={"judge": oracle}) as mesh:
        response = await mesh.verifier.VerifyGroup(
            verify_pb2.VerifyGroupRequest(task=task(), members=members), timeout=TIMEOUT
        )
    verdicts = [one.verification for one in response.verdicts]
    assert [one.reward for one in verdicts] == [1.0, 0.0]
    assert [usage(one.model_usage) for one in verdicts] == [
        [("judge", 1, 3, 3)],
        [("judge", 1, 2, 3)],
    ]
    assert [request.rollout_id for request in oracle.requests] == ["r1", "r2"]


def _keep_much_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a minute a judge gets three seconds, so that its failure comes back in time."""
    monkeypatch.setattr(client, "_KEPT_PART", 1.0)
    monkeypatch.setattr(client, "_KEPT_S", 57.0)


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        ("down", errors_pb2.ERROR_REASON_MODEL_UNREACHABLE),
        ("failed", errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID),
        ("hang", errors_pb2.ERROR_REASON_MODEL_TIMEOUT),
    ],
)
async def test_a_judge_that_fails_is_no_reward(
    ask: str, reason: errors_pb2.ErrorReason.ValueType, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep_much_back(monkeypatch)
    async with served(Asks(), model_services={"judge": Oracle()}, verify_timeout_s=60.0) as mesh:
        session_id = (await mesh.create()).session_id
        with pytest.raises(MeshError) as caught:
            await mesh.verify(session_id, task(ask=ask))
    assert caught.value.reason == reason


@pytest.mark.parametrize("ask", ["down", "failed", "hang"])
async def test_a_verifier_may_do_without_its_judge(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep_much_back(monkeypatch)
    async with served(
        AsksSafely(), model_services={"judge": Oracle()}, verify_timeout_s=60.0
    ) as mesh:
        verification = await mesh.verify("", task(ask=ask))
    assert verification.reward == 0.0
    assert b"judge_failed" in verification.evidence_json


async def test_misuse_is_a_fault_of_the_environment() -> None:
    async with served(Asks(), model_services={"judge": Oracle()}) as mesh:
        session_id = (await mesh.create()).session_id
        for name in ("consult_wrongly", "undeclared"):
            with pytest.raises(MeshError) as caught:
                await mesh.call(session_id, name)
            assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
        answer = await mesh.call(session_id, "consult", {"question": "still"})
    assert answer.text == b"STILL"


async def test_a_model_that_is_not_there_is_one_sentence_at_the_start() -> None:
    with pytest.raises(ConfigError) as caught:
        async with served(Asks(), model_services={"policy": Oracle()}):
            pass
    assert caught.value.path == "environments.e"
    assert "calls a model 'judge'" in caught.value.problem
    assert "known model services: policy" in caught.value.problem
    assert "models: {judge: " in caught.value.problem


async def test_a_mapping_of_a_model_that_the_environment_does_not_have() -> None:
    with pytest.raises(ConfigError, match="did you mean 'judge'"):
        async with served(Asks(), models={"juge": "policy"}):
            pass


async def test_the_environment_says_which_models_it_calls() -> None:
    from gymmesh.resource.v1 import resource_pb2

    async with served(Asks(), model_services={"big": Oracle()}, models={"judge": "big"}) as mesh:
        about = await mesh.resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=TIMEOUT
        )
    assert list(about.models) == ["big"]


def test_without_a_mesh_there_is_nobody_to_ask() -> None:
    session = Session("s", Task(rollout_pb2.Task()), 1, [""])
    with pytest.raises(RuntimeError, match="not being served"):
        session.ask_sync("judge", "x")
    assert math.isclose(session.seed, 1)


def _member(rollout_id: str, said: str) -> verify_pb2.GroupMember:
    return verify_pb2.GroupMember(
        rollout_id=rollout_id,
        transcript=[new_message("assistant", said)],
        stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
    )
