"""An async method that blocks the event loop is named, and its rollout fails for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_agent.failures import FailureStage, StepFailed, failure_of
from gymmesh_resource import Environment, Rollout, Session, Task, ToolError, tool
from gymmesh_resource.serving import step_timer
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.telemetry import stalls
from tests.unit.resource.served import served, task

LIMIT_S = 1.0
BLOCKS_S = 2.0


class Blocking(Environment[None]):
    """Blocks where it should wait."""

    def __init__(self) -> None:
        self.seen = threading.Event()

    @tool
    async def at_once(self) -> str:
        """Never awaits anything."""
        time.sleep(BLOCKS_S)  # noqa: ASYNC251  # what is tested
        return "done"

    @tool
    async def at_first(self) -> str:
        """Blocks before it first waits."""
        time.sleep(BLOCKS_S)  # noqa: ASYNC251
        await asyncio.sleep(0)
        return "done"

    @tool
    async def later(self) -> str:
        """Blocks after it has waited."""
        await asyncio.sleep(0)
        time.sleep(BLOCKS_S)  # noqa: ASYNC251
        return "done"

    @tool
    async def and_refuses(self) -> str:
        """Has an answer for the model after it has blocked."""
        time.sleep(BLOCKS_S)  # noqa: ASYNC251
        raise ToolError("no")

    @tool
    async def until_seen(self) -> str:
        """Blocks until somebody has said so."""
        return str(self.seen.wait(60))

    @tool
    async def in_a_task(self) -> str:
        """Blocks in a task of its own."""
        return await asyncio.create_task(self._helper())

    async def _helper(self) -> str:
        return str(self.seen.wait(60))

    @tool
    def in_a_thread(self) -> str:
        """Blocks where it may."""
        time.sleep(0.01)
        return "done"

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        if rollout.task.payload.get("block"):
            time.sleep(BLOCKS_S)  # noqa: ASYNC251
        return 1.0


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test knows of another's stalls, and short ones are noted."""
    monkeypatch.setattr(step_timer, "NOTICED_S", LIMIT_S / 2)
    monkeypatch.setattr(stalls, "_logged", {})
    stalls._stalls.clear()
    yield
    stalls._stalls.clear()


@pytest.mark.parametrize("name", ["at_once", "at_first", "later", "and_refuses"])
async def test_a_tool_over_its_limit_fails_and_is_named(name: str) -> None:
    async with served(Blocking(), tool_timeout_s=LIMIT_S) as mesh:
        session_id = (await mesh.create()).session_id
        with pytest.raises(MeshError) as caught:
            await mesh.call(session_id, name)
        # The others go on, each within the limit if the machine is not too busy for that.
        async with asyncio.timeout(60):
            while not await _in_time(mesh.call(session_id, "in_a_thread")):
                pass
    error = caught.value
    assert error.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert f"Blocking.{name} is async and blocked the event loop for" in error.message
    assert "asyncio.to_thread" in error.message
    assert error.metadata["at"].startswith("tests/unit/resource/test_blocking.py:")


async def _in_time(call: Awaitable[resource_pb2.CallToolResponse]) -> bool:
    try:
        return (await call).text == b"done"
    except MeshError as error:
        if error.reason != errors_pb2.ERROR_REASON_TOOL_TIMEOUT:
            raise
        return False


async def test_a_verifier_over_its_limit_gives_no_verdict() -> None:
    async with served(Blocking()) as mesh:
        assert (await mesh.verify()).reward == 1.0
    async with served(Blocking(), verify_timeout_s=LIMIT_S) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(of=task(block=True))
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "Blocking.verify is async and blocked" in caught.value.message


async def test_below_its_limit_it_is_only_said(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Blocking()) as mesh:
        session_id = (await mesh.create()).session_id
        for _ in range(3):
            assert (await mesh.call(session_id, "at_once")).text == b"done"
    said = [one for one in caplog.records if "Blocking.at_once" in one.getMessage()]
    assert len(said) == 1
    assert said[0].urgent  # type: ignore[attr-defined]  # the terminal shows it


class _Tell(logging.Handler):
    """Lets a method go on once it was named."""

    def __init__(self, name: str, seen: threading.Event) -> None:
        super().__init__()
        self._name, self._seen = name, seen

    def emit(self, record: logging.LogRecord) -> None:
        if self._name in record.getMessage():
            self._seen.set()


@pytest.mark.parametrize(
    ("tool_name", "named"), [("until_seen", "until_seen"), ("in_a_task", "_helper")]
)
async def test_what_blocks_is_named_while_it_does(tool_name: str, named: str) -> None:
    environment = Blocking()
    handler = _Tell(f"Blocking.{named}", environment.seen)
    log = logging.getLogger("gymmesh.stalls")
    log.addHandler(handler)
    try:
        async with served(environment, tool_timeout_s=100.0) as mesh:
            session_id = (await mesh.create()).session_id
            # It ends only because the watchdog spoke.
            assert (await mesh.call(session_id, tool_name)).text == b"True"
    finally:
        log.removeHandler(handler)


def _timed_out(timeout_s: str) -> StepFailed:
    error = MeshError(
        errors_pb2.ERROR_REASON_MODEL_TIMEOUT,
        "model 'policy': the endpoint did not answer",
        metadata={"model": "policy", "timeout_s": timeout_s},
    )
    return StepFailed(error, FailureStage.MODEL, "policy", "c1")


@pytest.mark.parametrize(
    ("timeout_s", "blamed"), [("10", True), ("60", False), ("", False), ("x", False)]
)
def test_the_model_is_not_blamed_for_a_stall(timeout_s: str, blamed: bool) -> None:
    stalls.note_stall("careless", "Careless.verify", "kind.py:3", 8.0)
    failure = failure_of(_timed_out(timeout_s), environment_retry_safe=True)
    error = from_status(failure.status)
    if blamed:
        assert (error.reason_name, failure.component) == ("ENVIRONMENT_FAULT", "careless")
        assert "Careless.verify blocked the event loop for 8.0 s" in error.message
        assert error.metadata["at"] == "kind.py:3"
    else:
        assert (error.reason_name, failure.component) == ("MODEL_TIMEOUT", "policy")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("desk.py:3", "asyncio.to_thread"),
        ("/x/gymmesh_resource/environments/ors/client.py:9", "Lower --concurrency"),
    ],
)
def test_what_to_do_depends_on_whose_method_it_is(
    caplog: pytest.LogCaptureFixture, place: str, said: str
) -> None:
    stalls.note_stall("e", f"Method.of_{place}", place, 8.0)
    assert [said in one.getMessage() for one in caplog.records] == [True]


def test_without_a_stall_the_model_is_to_blame() -> None:
    failure = failure_of(_timed_out("1"), environment_retry_safe=True)
    assert from_status(failure.status).reason_name == "MODEL_TIMEOUT"


class Odd(Environment[None]):
    """Looks at its tasks in ways that nobody would."""

    def check_task(self, task: Task) -> Any:
        way = task.payload.get("way")
        if way == "exits":
            raise SystemExit(2)
        if way == "awaits":
            return asyncio.sleep(0)
        if way == "raises":
            return dict[str, str]()["gone"]
        return {"false": False, "text": "bad task", "nothing": None}[str(way)]

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("false", "Odd.check_task: returned bool. Raise TaskInvalid"),
        ("text", "Odd.check_task: returned str"),
        ("awaits", "Odd.check_task: returned coroutine"),
        ("exits", "SystemExit(2)"),
        ("raises", "KeyError: 'gone' at tests/unit/resource/test_blocking.py:"),
    ],
)
async def test_an_odd_check_of_a_task_is_one_sentence(way: str, said: str) -> None:
    async with served(Odd()) as mesh:
        await mesh.create(task(way="nothing"))
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(way=way))
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert said in caught.value.message
    assert caught.value.metadata["stage"] == "check_task"
