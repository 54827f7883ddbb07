"""Tool calls: what the model is shown, and what it never is."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Environment, Rollout, Session, ToolResult, tool
from gymmesh_resource.errors import WrongResult
from gymmesh_resource.tools import answer_of
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.environments import Blocking, Notebook
from tests.unit.resource.served import served


async def test_a_result_is_text_as_json() -> None:
    async with served(Notebook()) as mesh:
        session = await mesh.create()
        answer = await mesh.call(session.session_id, "note", {"line": "ä"})
    assert answer.text == '["ä"]'.encode()
    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_OK
    assert not answer.done


async def test_nothing_and_parts_and_done() -> None:
    async with served(Notebook()) as mesh:
        session_id = (await mesh.create()).session_id
        nothing = await mesh.call(session_id, "nothing")
        picture = await mesh.call(session_id, "picture")
        over = await mesh.call(session_id, "finish")
    assert nothing.WhichOneof("output") == "text"
    assert nothing.text == b""
    assert picture.parts.parts[0].input_text.text == "seen"
    assert over.done


async def test_a_tool_error_is_shown() -> None:
    async with served(Notebook()) as mesh:
        session = await mesh.create()
        answer = await mesh.call(session.session_id, "refuse")
    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
    assert answer.text == b"Ask for something else."


@pytest.mark.parametrize("name", ["broken", "exits", "panics", "panics_in_a_thread", "unsayable"])
async def test_a_fault_is_typed_and_not_shown(name: str) -> None:
    async with served(Notebook()) as mesh:
        session = await mesh.create()
        with pytest.raises(MeshError) as caught:
            await mesh.call(session.session_id, name)
        # The service and the session live on.
        assert (await mesh.call(session.session_id, "nothing")).text == b""
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert caught.value.metadata["environment"] == "e"
    assert caught.value.metadata["stage"] == "call_tool"
    # The author finds it: by file and line, and by what the exception said.
    assert re.fullmatch(r"tests/unit/resource/environments\.py:\d+", caught.value.metadata["at"])
    assert caught.value.metadata["exception"] in caught.value.message or name == "unsayable"


async def test_an_unknown_tool_names_the_nearest() -> None:
    async with served(Notebook()) as mesh:
        session = await mesh.create()
        answer = await mesh.call(session.session_id, "nothin")
        long = await mesh.call(session.session_id, "x" * 100_000)
    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
    assert b"Did you mean 'nothing'?" in answer.text
    assert len(long.text) < 500


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (b'{"line": ', b"not valid JSON"),
        (b"[1]", b"one JSON object"),
        (b'{"line": 5}', b"`line`"),
        (b"", b"missing required field `line`"),
        (b'{"line": "a", "size": 2}', b"unknown field `size`"),
        (b"\xff", b"not valid JSON"),
    ],
)
async def test_bad_arguments_say_what_to_mend(arguments: bytes, hint: bytes) -> None:
    async with served(Notebook()) as mesh:
        session = await mesh.create()
        answer = await mesh.call(session.session_id, "note", arguments)
        after = await mesh.call(session.session_id, "note", {"line": "first"})
    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS
    assert hint in answer.text
    assert b'Send a JSON object: {"line": string}.' in answer.text
    assert after.text == b'["first"]'


async def test_a_tool_over_its_time_is_a_timeout() -> None:
    async with served(Blocking(), tool_timeout_s=0.05) as mesh:
        session = await mesh.create()
        with pytest.raises(MeshError) as caught:
            await mesh.call(session.session_id, "hang")
    assert caught.value.reason == errors_pb2.ERROR_REASON_TOOL_TIMEOUT
    assert caught.value.metadata == {"tool": "hang", "timeout_s": "0.05"}


async def test_a_blocking_tool_does_not_hold_up_another_session() -> None:
    environment = Blocking()
    async with served(environment) as mesh:
        one, two = await mesh.create(), await mesh.create()
        blocked = asyncio.create_task(mesh.call(one.session_id, "block"))
        await asyncio.sleep(0)
        await mesh.call(two.session_id, "release")
        answer = await blocked
    assert environment.order == ["released", "blocked"]
    assert answer.text == b"released: True"


async def test_a_given_up_thread_gives_its_place_back_and_too_many_are_refused() -> None:
    environment = Blocking()
    async with served(environment, tool_timeout_s=4.0, threads=1) as mesh:
        session = await mesh.create()
        with pytest.raises(MeshError) as first:
            await mesh.call(session.session_id, "block")
        # One place, one lost thread: no further thread is started while it hangs …
        with pytest.raises(MeshError) as second:
            await mesh.call(session.session_id, "block")
        environment.released.set()
        # … and as soon as it has ended, calls run again.
        for _ in range(6000):
            await asyncio.sleep(0.01)
            if len(environment.order) == 1:
                break
        answer = await mesh.call(session.session_id, "block")
    assert first.value.reason == errors_pb2.ERROR_REASON_TOOL_TIMEOUT
    assert second.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert answer.text == b"released: True"


async def test_answers_without_a_tool_count_under_their_request_id_too() -> None:
    async with served(Notebook()) as mesh:
        session_id = (await mesh.create()).session_id
        first = await mesh.call(session_id, "nothin", request_id="r")
        again = await mesh.call(session_id, "nothin", request_id="r")
        with pytest.raises(MeshError) as caught:
            await mesh.call(session_id, "note", {"line": "x"}, request_id="r")
        kept = len(mesh.service.sessions.get(session_id).calls._answers)
    assert first == again
    assert kept == 1
    assert caught.value.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED


class Counting(Environment[None]):
    """Has tools that never wait."""

    def __init__(self) -> None:
        self.runs = 0

    @tool
    async def count(self) -> int:
        """Count."""
        self.runs += 1
        return self.runs

    @tool
    async def fail(self) -> None:
        """Fail."""
        self.runs += 1
        raise LookupError("secret")

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


async def test_a_tool_that_never_waits_acts_once_too_whatever_comes_of_it() -> None:
    environment = Counting()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        answers = [await mesh.call(session_id, "count", request_id="a") for _ in range(2)]
        faults = []
        for _ in range(2):
            with pytest.raises(MeshError) as caught:
                await mesh.call(session_id, "fail", request_id="b")
            faults.append(caught.value)
    assert [answer.text for answer in answers] == [b"1", b"1"]
    assert environment.runs == 2
    assert {fault.reason for fault in faults} == {errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT}
    assert faults[0].metadata == faults[1].metadata


@pytest.mark.parametrize("value", [b"x", [bytearray(b"x")], {"out": memoryview(b"x")}])
def test_bytes_are_refused_and_not_shown_in_base64(value: object) -> None:
    with pytest.raises(WrongResult, match="a value that can't be written"):
        answer_of(value)


class Rewarding(Environment[None]):
    """A tool whose calls have rewards."""

    @tool
    def move(self, reward: float, done: bool = False, error: bool = False) -> Any:
        """Move."""
        return ToolResult({"moved": True}, reward, done, error)

    @tool
    def look(self) -> ToolResult:
        """Look."""
        return ToolResult("a door")

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


async def test_a_call_may_have_a_reward_and_end_the_episode() -> None:
    async with served(Rewarding()) as mesh:
        session_id = (await mesh.create()).session_id
        first = await mesh.call(session_id, "move", {"reward": 0.5})
        plain = await mesh.call(session_id, "look")
        wrong = await mesh.call(session_id, "move", {"reward": -1.0, "error": True})
        last = await mesh.call(session_id, "move", {"reward": 0, "done": True})
    assert (first.reward, first.text, first.done) == (0.5, b'{"moved":true}', False)
    assert first.outcome == rollout_pb2.TOOL_OUTCOME_OK
    assert (plain.HasField("reward"), plain.text) == (False, b"a door")
    assert (wrong.reward, wrong.outcome) == (-1.0, rollout_pb2.TOOL_OUTCOME_TOOL_ERROR)
    assert (last.HasField("reward"), last.reward, last.done) == (True, 0.0, True)


async def test_a_reward_of_a_call_outside_of_the_range_is_a_fault() -> None:
    async with served(Rewarding()) as mesh:
        session_id = (await mesh.create()).session_id
        with pytest.raises(MeshError) as caught:
            await mesh.call(session_id, "move", {"reward": 7})
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "the turn's reward is 7" in caught.value.message
