"""Sessions: isolated, idempotent, bounded, swept, and closed once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Session, Task, TaskInvalid
from gymmesh_resource.service import RESOURCE_SERVICE
from gymmesh_resource.serving.request_repeats import KEPT_ANSWERS, Once
from gymmesh_responses import new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.environments import Game, Notebook, Notes
from tests.unit.resource.served import Served, new_id, served, task
from tests.unit.runtime.probe import until


async def test_state_does_not_leak_between_sessions() -> None:
    async with served(Notebook()) as mesh:
        opened = await asyncio.gather(*(mesh.create(task(f"t{n}")) for n in range(50)))
        ids = [session.session_id for session in opened]
        for turn in range(3):
            await asyncio.gather(*(mesh.call(i, "note", {"line": f"{i}-{turn}"}) for i in ids))
        last = await asyncio.gather(*(mesh.call(i, "note", {"line": "end"}) for i in ids))
    assert len(set(ids)) == 50
    assert min(map(len, ids)) >= 20
    for session_id, answer in zip(ids, last, strict=True):
        lines = ", ".join(f'"{session_id}-{turn}"' for turn in range(3))
        assert answer.text.decode() == f'[{lines}, "end"]'.replace(", ", ",")


async def test_creating_is_idempotent_also_when_concurrent() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        request_id = new_id()
        answers = await asyncio.gather(*(mesh.create(request_id=request_id) for _ in range(5)))
        answers.append(await mesh.create(request_id=request_id))
        assert len(mesh.service.sessions) == 1
    assert environment.created == 1
    assert len({answer.session_id for answer in answers}) == 1
    assert len({answer.seed for answer in answers}) == 1


async def test_a_request_id_for_another_task_is_refused() -> None:
    async with served(Notebook()) as mesh:
        await mesh.create(task("a"), request_id="r")
        with pytest.raises(MeshError) as caught:
            await mesh.create(task("b"), request_id="r")
    assert caught.value.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED


class Refusing(Notebook):
    """Takes no task."""

    def check_task(self, task: Task) -> None:
        raise TaskInvalid("lines", "is wrong")


async def test_the_error_of_a_create_is_not_held_by_it() -> None:
    """Nor is the request, without the garbage collection that would break cycles up some day."""
    gc.disable()
    try:
        async with served(Refusing()) as mesh:
            errors = [await _error_of(mesh, task()) for _ in range(3)]
            await until(lambda: [one() for one in errors] == [None] * 3)
    finally:
        gc.enable()


async def _error_of(mesh: Served, of: rollout_pb2.Task) -> weakref.ref[MeshError]:
    try:
        await mesh.create(of)
    except MeshError as error:
        return weakref.ref(error)
    raise AssertionError("it was made")


async def test_a_create_that_failed_leaves_nothing_and_may_be_tried_again() -> None:
    async with served(Notebook(), session_limit=1) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(fault=True), request_id="r")
        assert len(mesh.service.sessions) == 0
        await mesh.create(task(), request_id="r")
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert caught.value.metadata["exception"] == "RuntimeError: secret detail"


async def test_the_limit_counts_open_sessions() -> None:
    async with served(Notebook(), session_limit=2) as mesh:
        first, _ = await asyncio.gather(mesh.create(), mesh.create())
        with pytest.raises(MeshError) as caught:
            await mesh.create()
        await mesh.close(first.session_id)
        await mesh.create()
    assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_LIMIT
    assert caught.value.metadata == {"limit": "2"}


async def test_the_limit_of_each_identity_holds_whatever_its_request_ids_are() -> None:
    async with served(Notebook(), session_limit_each=1) as mesh:
        servicer: Any = mesh.service.servicers()[RESOURCE_SERVICE]
        context = CallContext("CreateSession", identity="alice")
        requests = [
            resource_pb2.CreateSessionRequest(task=task(), request_id=request_id)
            for request_id in ("a\0b", "c")
        ]
        opened = await servicer.CreateSession(requests[0], context)
        with pytest.raises(MeshError) as caught:
            await servicer.CreateSession(requests[1], context)
        assert caught.value.metadata == {"limit": "1"}
        await mesh.close(opened.session_id)
        await servicer.CreateSession(requests[1], context)


async def test_the_limit_counts_sessions_that_are_being_opened() -> None:
    async with served(Notebook(), session_limit=3) as mesh:
        results = await asyncio.gather(*(mesh.create() for _ in range(10)), return_exceptions=True)
        assert len(mesh.service.sessions) == 3
    refused = [result for result in results if isinstance(result, MeshError)]
    assert len(refused) == 7
    assert {error.reason for error in refused} == {errors_pb2.ERROR_REASON_SESSION_LIMIT}


@pytest.mark.parametrize(
    "field",
    ["forbidden", "payload_json"],
)
async def test_a_task_that_cannot_be_judged_names_the_field(field: str) -> None:
    of = task(forbidden=1)
    if field == "payload_json":
        of.payload_json = b"[1]"
    async with served(Notebook()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(of)
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata == {"task_id": "t", "field": field}


async def test_seeds_decide_a_sessions_chance() -> None:
    async with served(Notebook()) as mesh:
        same = [await mesh.create(seed=7), await mesh.create(seed=7)]
        other, drawn = await mesh.create(seed=8), await mesh.create()
        draws = [(await mesh.call(s.session_id, "luck")).text for s in [*same, other]]
    assert draws[0] == draws[1] != draws[2]
    assert same[0].seed == 7
    assert drawn.seed not in (0, 7, 8)


async def test_a_call_acts_once_under_its_request_id() -> None:
    async with served(Notebook()) as mesh:
        session_id = (await mesh.create()).session_id
        line = {"line": "x"}
        first = await mesh.call(session_id, "note", line, request_id="r")
        again = await mesh.call(session_id, "note", line, request_id="r")
        with pytest.raises(MeshError) as caught:
            await mesh.call(session_id, "note", {"line": "y"}, request_id="r")
    assert first.text == again.text == b'["x"]'
    assert caught.value.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED


async def test_a_retry_of_a_call_whose_caller_went_away_finds_it_running() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        gone = asyncio.create_task(mesh.call(session_id, "wait", request_id="r"))
        await environment.started.wait()
        gone.cancel()
        await asyncio.wait((gone,))
        retry = asyncio.create_task(mesh.call(session_id, "wait", request_id="r"))
        await asyncio.sleep(0)
        environment.gate.set()
        answer = await retry
    assert gone.cancelled()
    assert answer.text == b"run 1"


async def test_answers_kept_are_bounded_and_none_acts_twice() -> None:
    async with served(Notebook()) as mesh:
        session_id = (await mesh.create()).session_id
        for number in range(KEPT_ANSWERS + 20):
            await mesh.call(session_id, "note", {"line": "x"}, request_id=f"r{number}")
        once = mesh.service.sessions.get(session_id).calls
        assert len(once._answers) <= KEPT_ANSWERS
        with pytest.raises(MeshError) as caught:
            await mesh.call(session_id, "note", {"line": "x"}, request_id="r0")
        lines = mesh.service.sessions.get(session_id).session.state.lines
    assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_STATE
    assert len(lines) == KEPT_ANSWERS + 20


async def test_a_turn_acts_once_under_its_request_id_and_for_the_same_request_alone() -> None:
    said = [new_message("user", "a")]
    async with served(Game()) as mesh:
        session_id = (await mesh.create()).session_id
        first = await mesh.turn(session_id, said, "r")
        again = await mesh.turn(session_id, said, "r")
        with pytest.raises(MeshError) as caught:  # as many items, but another one
            await mesh.turn(session_id, [new_message("user", "b")], "r")
        # Ids are apart for each method: here this is a tool that there is not.
        tool = await mesh.call(session_id, "a", request_id="r")
        state = mesh.service.sessions.get(session_id).session.state
    assert first == again
    assert caught.value.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED
    assert tool.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
    assert state == [3, 2]


@pytest.mark.parametrize(
    ("reason", "runs"),
    [
        ("QUEUE_FULL", 2),
        ("SESSION_LIMIT", 2),
        ("DRAINING", 2),
        ("MODEL_TIMEOUT", 1),
        ("ENVIRONMENT_FAULT", 1),
    ],
)
async def test_a_failed_call_is_tried_anew_only_where_nothing_was_done(
    reason: str, runs: int
) -> None:
    began = []

    async def call() -> int:
        began.append(1)
        raise MeshError(errors_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}"), "no")

    once = Once("s")
    request = resource_pb2.CallToolRequest(request_id="r")
    for _ in range(2):
        with pytest.raises(MeshError) as caught:
            await once.run(request, call)
        assert caught.value.reason_name == reason
    assert len(began) == runs


async def test_a_session_without_a_seed_takes_the_tasks() -> None:
    seeded = task()
    seeded.seed = 0
    async with served(Notebook()) as mesh:
        assert (await mesh.create(seeded)).seed == 0
        assert (await mesh.create(seeded, seed=5)).seed == 5


async def test_calls_with_state_run_in_order_of_arrival() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        await asyncio.gather(
            mesh.call(session_id, "slow_then_fast", {"name": "first", "ticks": 20}),
            mesh.call(session_id, "slow_then_fast", {"name": "second", "ticks": 0}),
        )
    assert environment.order == ["first", "second"]


async def test_with_state_a_tool_that_never_waits_has_its_turn_too() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        waiting = asyncio.create_task(mesh.call(session_id, "wait"))
        await environment.started.wait()
        noting = asyncio.create_task(mesh.call(session_id, "note", {"line": "x"}))
        for _ in range(10):
            await asyncio.sleep(0)
        session = mesh.service.sessions.get(session_id).session
        assert session.state.lines == []
        environment.gate.set()
        await asyncio.gather(waiting, noting)
        assert session.state.lines == ["x"]


async def test_closing_cancels_running_calls_and_is_harmless_twice() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        running = asyncio.create_task(mesh.call(session_id, "wait"))
        await environment.started.wait()
        await mesh.close(session_id)
        await mesh.close(session_id)
        await mesh.close("never was")
        with pytest.raises(MeshError) as caught:
            await running
        with pytest.raises(MeshError) as after:
            await mesh.call(session_id, "nothing")
        assert len(mesh.service.sessions) == 0
    assert environment.closed == [session_id]
    assert caught.value.reason == errors_pb2.ERROR_REASON_SESSION_NOT_FOUND
    assert after.value.reason == errors_pb2.ERROR_REASON_SESSION_NOT_FOUND


class SlowToClose(Notebook):
    """Its sessions wait for the gate before they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def close_session(self, session: Session[Notes]) -> None:
        self.started.set()
        await self.gate.wait()
        self.closed.append(session.id)
        self.over.set()


async def test_a_session_is_closed_although_its_closer_went_away() -> None:
    environment = SlowToClose()
    async with served(environment) as mesh:
        session_id = (await mesh.create()).session_id
        closing = asyncio.create_task(mesh.close(session_id))
        await environment.started.wait()
        closing.cancel()
        await asyncio.wait([closing])
        environment.gate.set()
        async with asyncio.timeout(60):
            await environment.over.wait()
    assert environment.closed == [session_id]


async def test_the_sweeper_closes_the_idle_and_spares_the_busy() -> None:
    now = [0.0]
    environment = Notebook()
    async with served(environment, clock=lambda: now[0], session_idle_s=100) as mesh:
        idle, used, busy = [(await mesh.create()).session_id for _ in range(3)]
        running = asyncio.create_task(mesh.call(busy, "wait"))
        await environment.started.wait()
        now[0] = 60.0
        await mesh.call(used, "nothing")
        now[0] = 100.0
        assert await mesh.service.sessions.sweep() == 1
        assert environment.closed == [idle]
        environment.gate.set()
        await running
        now[0] = 200.0
        assert await mesh.service.sessions.sweep() == 2
        assert len(mesh.service.sessions) == 0


async def test_closing_the_service_closes_its_sessions() -> None:
    environment = Notebook()
    async with served(environment) as mesh:
        ids = [(await mesh.create()).session_id for _ in range(3)]
    assert sorted(environment.closed) == sorted(ids)
    with pytest.raises(MeshError) as caught:
        await mesh.create()
    assert caught.value.reason == errors_pb2.ERROR_REASON_DRAINING
