from __future__ import annotations

import asyncio

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model.serving import CallRegistry, WeightsClock, calls, spans
from gymmesh_runtime.errors import MeshError

Answer = model_pb2.CreateResponseResponse
WORK = "what is asked"


class Model:
    """Answers once `go` is set; counts how often it was asked and stopped."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.started = asyncio.Event()
        self.asked = 0
        self.stopped = 0

    async def generate(self, work: str) -> Answer:
        assert work == WORK
        self.asked += 1
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return Answer(call_id=f"c{self.asked}")


def aborted(work: str) -> Answer:
    assert work == WORK
    return Answer(call_id="aborted")


def ask(table: CallRegistry, model: Model, digest: bytes = b"d") -> asyncio.Task[Answer]:
    return asyncio.ensure_future(table.ask("r", digest, WORK, model.generate, aborted))


async def test_the_same_id_gets_the_same_answer_while_it_runs_and_later() -> None:
    table, model = CallRegistry(), Model()
    first, second = ask(table, model), ask(table, model)
    await model.started.wait()
    model.go.set()
    answers = [await first, await second, await ask(table, model)]
    assert model.asked == 1
    assert [answer.call_id for answer in answers] == ["c1"] * 3
    assert [answer.from_cache for answer in answers] == [False, True, True]


async def test_another_request_under_the_same_id_is_refused() -> None:
    table, model = CallRegistry(), Model()
    first = ask(table, model)
    await model.started.wait()
    for _ in range(2):
        with pytest.raises(MeshError) as caught:
            await ask(table, model, b"other")
        assert caught.value.reason_name == "REQUEST_ID_REUSED"
        model.go.set()
        await first


async def test_whoever_waits_generates_anew_when_the_first_asker_leaves() -> None:
    table, model = CallRegistry(), Model()
    first, second, third = (ask(table, model) for _ in range(3))
    await model.started.wait()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert table.runs("r")
    model.go.set()
    answers = [await second, await third]
    assert [answer.call_id for answer in answers] == ["c2", "c2"]
    assert [answer.from_cache for answer in answers] == [False, True]
    assert (model.asked, model.stopped) == (2, 1)


async def test_the_generation_ends_with_its_last_asker() -> None:
    table, model = CallRegistry(), Model()
    first, second = ask(table, model), ask(table, model)
    await model.started.wait()
    for asker in (second, first):
        assert table.runs("r")
        asker.cancel()
        await asyncio.wait([asker])
    assert not table.runs("r")
    again = Model()
    again.go.set()
    assert (await ask(table, again)).from_cache is False
    assert (model.asked, model.stopped) == (1, 1)


async def test_a_failure_reaches_all_who_ask() -> None:
    table, model = CallRegistry(), Model()

    async def fail(work: str) -> Answer:
        await model.generate(work)
        raise MeshError(errors.ERROR_REASON_MODEL_TIMEOUT, "too late")

    askers = [asyncio.ensure_future(table.ask("r", b"d", WORK, fail, aborted)) for _ in range(3)]
    await model.started.wait()
    model.go.set()
    for asker in askers:
        with pytest.raises(MeshError):
            await asker
    assert model.asked == 1


async def test_a_failure_is_not_kept() -> None:
    table, model = CallRegistry(), Model()
    model.go.set()

    async def fail(work: str) -> Answer:
        raise MeshError(errors.ERROR_REASON_MODEL_TIMEOUT, "too late")

    with pytest.raises(MeshError):
        await table.ask("r", b"d", WORK, fail, aborted)
    assert (await ask(table, model)).call_id == "c1"


async def test_abort() -> None:
    table, model = CallRegistry(), Model()
    assert table.abort("r") is False
    first = ask(table, model)
    await model.started.wait()
    assert table.abort("r") is True
    assert (await first).call_id == "aborted"
    assert model.stopped == 1
    assert table.abort("r") is False


async def test_an_abort_reaches_all_who_ask_and_cancels_nobody() -> None:
    table, model = CallRegistry(), Model()

    async def asking() -> tuple[Answer, int]:
        answer = await table.ask("r", b"d", WORK, model.generate, aborted)
        await asyncio.sleep(0)  # a cancellation that was left behind would strike here
        task = asyncio.current_task()
        assert task is not None
        return answer, task.cancelling()

    askers = [asyncio.ensure_future(asking()) for _ in range(2)]
    await model.started.wait()
    assert table.abort("r") is True
    assert table.abort("r") is True  # it has not ended yet, and is stopped only once
    assert [(answer.call_id, left) for answer, left in [await one for one in askers]] == [
        ("aborted", 0)
    ] * 2
    assert model.stopped == 1


async def test_who_is_cancelled_and_aborted_at_once_is_cancelled() -> None:
    table, model = CallRegistry(), Model()
    first = ask(table, model)
    await model.started.wait()
    assert table.abort("r") is True
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert not table.runs("r")


async def test_an_abort_that_comes_too_late_leaves_no_trace() -> None:
    table = CallRegistry()
    started = asyncio.Event()

    async def stubborn(work: str) -> Answer:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Answer(call_id="c1")
        raise AssertionError

    async def asking() -> tuple[str, int]:
        answer = await table.ask("r", b"d", WORK, stubborn, aborted)
        task = asyncio.current_task()
        assert task is not None
        return answer.call_id, task.cancelling()

    asker = asyncio.ensure_future(asking())
    await started.wait()
    assert table.abort("r") is True
    assert await asker == ("c1", 0)


async def test_closing_tells_who_waits() -> None:
    table, model = CallRegistry(), Model()
    askers = [ask(table, model) for _ in range(2)]
    await model.started.wait()
    await table.close()
    for asker in askers:
        with pytest.raises(MeshError) as caught:
            await asker
        assert caught.value.reason_name == "DRAINING"
    assert not table.runs("r")


async def test_the_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    table, model = CallRegistry(lambda: now), Model()
    model.go.set()
    monkeypatch.setattr(calls, "WINDOW_ANSWERS", 2)

    async def called(request_id: str) -> bool:
        return (await table.ask(request_id, b"d", WORK, model.generate, aborted)).from_cache

    assert [await called(one) for one in "aabcba"] == [False, True, False, False, True, False]
    now = calls.WINDOW_SECONDS + 1
    assert await called("a") is False


def test_weights_versions() -> None:
    clock = WeightsClock("policy")
    unknown = clock.begin()
    assert clock.set(3) is None
    clock.end(unknown)
    assert unknown.seen == []
    seen, other = clock.begin(), clock.begin()
    assert clock.set(3) == 3
    assert clock.set(5) == 3
    clock.end(seen)
    assert clock.set(6) == 5
    assert [one.version for one in other.seen] == [3, 5, 6]
    assert [(s.version, s.first_token) for s in spans(seen.seen, 40)] == [(3, 0), (5, 40)]
    with pytest.raises(MeshError) as caught:
        clock.set(4)
    assert caught.value.reason_name == "FIELD_INVALID"
