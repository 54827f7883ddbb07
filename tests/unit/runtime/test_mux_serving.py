"""Calls that are served: each in a task and a context of its own."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.wire.mux.frames import Begin, Cancel, Frame, pack
from tests.unit.runtime.exchange_ends import UNARY, Hand, end_of
from tests.unit.runtime.probe import MODEL, unary, until

Reason = errors_pb2.ErrorReason

left_behind: ContextVar[str] = ContextVar("left_behind", default="")
WAITING: Final = ("turn", "hang")


class Plain:
    """Answers at once, or waits first, as the request's rollout_id says."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[Any] | None] = {}  # by request
        self.contexts: list[str] = []

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> Any:
        self.tasks[request.request_id] = asyncio.current_task()
        self.contexts.append(left_behind.get())
        if request.rollout_id == "leaves":
            left_behind.set("something")
        if request.rollout_id == "cancels" and (task := asyncio.current_task()):
            task.cancel()
        if request.rollout_id == "fails":
            raise MeshError(Reason.ERROR_REASON_QUEUE_FULL, "full")
        if request.rollout_id in WAITING:
            await asyncio.sleep(0 if request.rollout_id == "turn" else 3600)
        return model_pb2.CreateResponseResponse(call_id=request.request_id)


def ask(number: int, behaviour: str, timeout_ms: int = 20_000) -> Frame:
    request = unary(behaviour, request_id=str(number)).SerializeToString()
    return Begin(number, UNARY.full_name, timeout_ms, {}, request, False, 0)


class Serving:
    """A server's end."""

    def __init__(self) -> None:
        self.hand, self.plain = Hand(), Plain()
        bound = Binding(MODEL, self.plain).methods.values()
        methods = {one.spec.full_name: one for one in bound}
        self.end = end_of(self.hand, opener=False, methods=methods)

    async def __aenter__(self) -> Serving:
        self.exchange, self.running = await self.end.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.end.__aexit__(*exc)

    async def outcomes(self, calls: int) -> dict[int, str]:
        """How so many calls end."""
        seen: dict[int, str] = {}
        while len(seen) < calls:
            frame = await self.hand.get()
            if frame.WhichOneof("kind") == "message":
                reply = model_pb2.CreateResponseResponse.FromString(frame.message.payload)
                assert reply.call_id == str(frame.call)
                assert (await self.hand.get()).call == frame.call
                seen[frame.call] = "OK"
            else:
                reason = from_status(frame.end.status).reason
                seen[frame.call] = errors_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")
        return seen


async def test_each_call_has_a_task_and_holds_none_up() -> None:
    async with Serving() as served:
        served.hand.send(ask(1, "at once"), ask(3, "hang"), ask(5, "at once"), ask(7, "fails"))
        assert await served.outcomes(3) == {1: "OK", 5: "OK", 7: "QUEUE_FULL"}
        assert len(set(served.plain.tasks.values())) == 4
        served.hand.send(Cancel(3), ask(9, "at once"))
        assert await served.outcomes(2) == {3: "CALLER_CANCELLED", 9: "OK"}


async def test_calls_of_one_batch_begin_together() -> None:
    async with Serving() as served:
        served.hand.send(*(ask(number, "hang") for number in range(1, 41, 2)))
        await until(lambda: served.plain.tasks)
        for _ in range(4):  # not one turn each
            await asyncio.sleep(0)
        assert len(set(served.plain.tasks.values())) == 20


async def test_a_call_cancelled_in_its_batch_is_not_served() -> None:
    async with Serving() as served:
        served.hand.send(ask(1, "at once"), ask(3, "at once"), Cancel(3), ask(5, "at once"))
        assert await served.outcomes(3) == {1: "OK", 3: "CALLER_CANCELLED", 5: "OK"}
        assert list(served.plain.tasks) == ["1", "5"]


async def test_a_stream_that_ends_cancels_all_calls() -> None:
    async with Serving() as served:
        served.hand.send(ask(1, "hang"), ask(3, "hang"), ask(5, "at once"))
        await until(lambda: served.exchange.table.incoming)
        served.exchange.cut()
        await asyncio.wait_for(served.running, 60)
        assert served.exchange.table.incoming == 0
        assert all(task is not None and task.done() for task in served.plain.tasks.values())


_BEHAVIOUR = st.sampled_from(["at once", "turn", "fails", "leaves", "cancels", "hang"])


@given(st.lists(st.lists(_BEHAVIOUR, max_size=5), max_size=6))
@settings(max_examples=60, deadline=None)
def test_each_call_ends_once_and_finds_nothing_of_another(batches: list[list[str]]) -> None:
    outcome = {"fails": "QUEUE_FULL", "hang": "DEADLINE_PASSED"}

    async def serve() -> None:
        async with Serving() as served:
            expected: dict[int, str] = {}
            for batch in batches:
                asked = []
                for behaviour in batch:
                    number = 2 * len(expected) + 1
                    expected[number] = outcome.get(behaviour, "OK")
                    asked.append(ask(number, behaviour, 30 if behaviour == "hang" else 20_000))
                if asked:
                    served.hand.send_raw(pack(asked))
            assert await served.outcomes(len(expected)) == expected
            begun = set(served.plain.tasks)  # a short deadline may pass before its call begins
            assert begun >= {str(n) for n, end in expected.items() if end != "DEADLINE_PASSED"}
            assert set(served.plain.contexts) <= {""}
            assert served.exchange.table.incoming == 0

    asyncio.run(serve())
