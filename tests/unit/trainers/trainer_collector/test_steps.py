"""A step ends: what is under way is kept or dropped, and nothing else samples after it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import (
    Generation,
    RolloutGroup,
    SamplingParams,
    Settings,
    SyncCollector,
    TaskSet,
    TokenBackend,
    TrainerCollector,
    pass_rate,
    spread,
)
from tests.unit.trainers.char_model import CharTokenizer
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine, generation

_LOST_S = 120.0  # of a busy machine


def endless() -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield {"task_id": f"e{number}", "prompt": f"What is {number} + 1?", "answer": "1"}


def ones() -> CountingEngine:
    return CountingEngine(lambda prompt, number: "1")


def held_but_first() -> CountingEngine:
    """Answers the first task at once, and holds the others back."""
    return CountingEngine(lambda prompt, number: "1", lambda prompt: "is 0 +" not in prompt)


async def until(condition: Any) -> None:
    async with asyncio.timeout(_LOST_S):
        while not condition():  # noqa: ASYNC110  # an engine's counts have no event
            await asyncio.sleep(0.005)


async def quiet(engine: CountingEngine) -> None:
    """Whatever is on its way to the engine would be there by now: many turns of the loop."""
    for _ in range(300):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("entered", [True, False], ids=["async with", "plain"])
async def test_a_step_left_by_break_with_drop_samples_nothing_after_it(entered: bool) -> None:
    engine = held_but_first()
    async with TrainerCollector(Sums, model=engine.model, repeats=2, concurrency=8) as collector:
        step = collector.step(endless(), leftovers="drop")
        if entered:
            async with step:
                async for group in step:
                    assert group.task.id == "e0"
                    await until(lambda: engine.now)
                    break
            assert engine.now == 0
        else:
            async for _ in step:
                await until(lambda: engine.now)
                break
            await until(lambda: engine.now == 0)
        calls = engine.calls
        engine.gate.set()
        await quiet(engine)
        assert (engine.now, engine.calls) == (0, calls)
        assert step.ended == "left"
        assert step.counts["left"] > 0
        late = [group async for group in collector.step(rows(1))]
        assert [(group.task.id, group.carried) for group in late] == [("t0", False)]


async def test_a_close_that_is_cancelled_still_ends_the_step() -> None:
    engine = held_but_first()
    async with TrainerCollector(Sums, model=engine.model, repeats=2, concurrency=8) as collector:
        step = collector.step(endless(), leftovers="drop")
        assert await step.next() is not None
        await until(lambda: engine.now == 8)
        closes = asyncio.create_task(step.close())
        await asyncio.sleep(0)  # it has begun to close
        closes.cancel()
        await asyncio.wait([closes])
        assert closes.cancelled()
        await step.close()
        assert engine.now == 0
        assert step.counts["left"] > 0


class SlowToStop(CountingEngine):
    """Answers the first task at once, and the others once `gate` is set. A call that is cancelled
    goes on until `released`; then it ends with what it has, or with the cancellation.
    """

    def __init__(self, *, answers: bool) -> None:
        super().__init__(lambda prompt, number: "1")
        self.released = asyncio.Event()
        self._answers = answers

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        self.now += 1
        self.calls += 1
        try:
            if "is 0 +" not in CharTokenizer().decode(prompt):
                await self.gate.wait()
        except asyncio.CancelledError:
            while not self.released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.released.wait()
            if not self._answers:
                raise
        finally:
            self.now -= 1
        return generation("1")


@pytest.mark.parametrize("answers", [False, True], ids=["gives up", "answers"])
async def test_what_an_engine_still_samples_of_a_dropped_step_is_none_of_the_next_one(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The step closes without it. The next one has all its places, and counts its own alone."""
    engine = SlowToStop(answers=answers)
    settings: dict[str, Any] = {"repeats": 2, "concurrency": 8}
    async with TrainerCollector(Sums, tasks=rows(40), model=engine.model, **settings) as collector:
        async with collector.step(groups=1, leftovers="drop") as step:
            assert [group.task.id async for group in step] == ["t0"]
            await until(lambda: engine.now == 8)
        assert engine.now == 8
        assert step.ended == "groups"
        async with collector.step(groups=4, leftovers="drop", ordered=True) as later:
            first = asyncio.ensure_future(later.next())
            await until(lambda: engine.now == 16)
            engine.released.set()
            await until(lambda: engine.now == 8)
            engine.gate.set()
            groups = [await first, *[group async for group in later]]
        assert [group.task.id for group in groups if group] == ["t1", "t2", "t3", "t4"]
        assert all(len(group.rollouts) == 2 and not group.carried for group in groups if group)
        assert (collector.counts["groups"], collector.counts["rollouts"]) == (5, 10)
        assert (collector.counts["failed"], collector.counts["stale"]) == (0, 0)
    assert not caplog.messages


async def test_a_step_left_by_break_begins_no_more_groups_and_keeps_those_under_way() -> None:
    engine = held_but_first()
    async with TrainerCollector(Sums, model=engine.model, repeats=2, concurrency=8) as collector:
        async with collector.step(endless()) as step:
            async for _ in step:
                await until(lambda: engine.now == 8)
                break
        engine.gate.set()
        await until(lambda: engine.now == 0)
        left = step.counts["left"]
        # A group at most waits to begin when the step closes.
        assert 4 <= left <= 5
        await quiet(engine)
        assert engine.calls <= 2 + 2 * left
        groups = [group async for group in collector.step([])]
        assert sorted(group.task.id for group in groups) == [f"e{one + 1}" for one in range(left)]
        assert all(group.carried and group.step == 1 for group in groups)
        assert engine.calls == 2 + 2 * left


async def test_steps_left_early_again_and_again_leave_one_step_s_groups() -> None:
    engine = CountingEngine(lambda prompt, number: str(number % 2))
    async with TrainerCollector(Sums, model=engine.model, repeats=2, concurrency=4) as collector:
        seen = []
        for _ in range(4):
            async for group in collector.step(endless(), keep=spread):
                seen.append(group)
                if len(seen) % 4 == 0:
                    break
            await quiet(engine)
            calls = engine.calls
            await quiet(engine)
            assert engine.calls == calls
    assert len(seen) == 16


async def test_a_plain_loop_that_is_left_says_what_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = held_but_first()
    with caplog.at_level(logging.WARNING, "gymmesh.trainers"):
        async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
            async for _ in collector.step(rows(3)):
                break
            await until(lambda: caplog.messages)
            engine.gate.set()
            assert len([group async for group in collector.step(rows(1))]) == 3
    [message] = caplog.messages
    assert message.startswith("step 1 was left early with 2 unfinished groups; the next step")


async def test_a_second_step_waits_for_no_open_one() -> None:
    engine = ones()
    async with (
        TrainerCollector(Sums, model=engine.model, repeats=1) as collector,
        collector.step(rows(2)) as step,
    ):
        assert await step.next()
        with pytest.raises(RuntimeError, match="step 1 is still open; close the step first"):
            await collector.step(rows(1)).next()


async def test_an_error_in_the_loop_ends_the_step() -> None:
    engine = held_but_first()
    async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
        step = collector.step(rows(3), leftovers="drop")

        async def breaks() -> None:
            async with step:
                assert await step.next()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await breaks()
        assert engine.now == 0
        assert step.ended == "left"


async def test_rules_fill_a_step_and_count_what_they_reject() -> None:
    """Of four tasks two are solved by half of the rollouts, one always and one never."""
    said = {"is 0 +": "11", "is 1 +": "12", "is 2 +": "31", "is 3 +": "99"}

    def answer(prompt: str, number: int) -> str:
        return next(text[number % 2] for asked, text in said.items() if asked in prompt)

    engine = CountingEngine(answer)
    async with TrainerCollector(Sums, model=engine.model, repeats=2, concurrency=2) as collector:
        async with collector.step(rows(4), groups=2, keep=[spread, pass_rate(0.1, 0.9)]) as step:
            kept = [group.task.id async for group in step]
        assert kept == ["t1", "t2"]
        assert step.ended == "groups"
        assert step.rejected == {"spread": 1}
        assert step.counts["groups"] == 3
        assert collector.counts["rejected"] == 1
        found = [one async for one in collector.step(rows(4), keep=lambda group: False)]
        assert found == []


async def test_a_bound_on_what_is_spent_ends_a_step_that_nothing_fills(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ones()
    with caplog.at_level(logging.WARNING, "gymmesh.trainers"):
        async with TrainerCollector(Sums, model=engine.model, repeats=2) as collector:
            async with collector.step(endless(), groups=4, keep=spread, at_most=6) as step:
                assert [group async for group in step] == []
            assert step.ended == "at_most"
            assert engine.calls == 12
            assert step.counts["left"] == 0
    assert caplog.messages == ["step 1 has 0 of 4 groups: at_most=6 is reached; rejected: spread 6"]


async def test_failures_are_no_reward_to_a_rule() -> None:
    engine = CountingEngine(_no_memory)
    async with TrainerCollector(Sums, model=engine.model, repeats=2, max_attempts=1) as collector:
        async with collector.step(rows(2), keep=pass_rate(0.0, 0.5)) as step:
            assert [group async for group in step] == []
        assert step.rejected == {"no_reward": 2}
        assert collector.counts["failed"] == 4


def _no_memory(prompt: str, number: int) -> str:
    raise RuntimeError("no memory")


async def test_ordered_groups_come_in_the_order_of_their_tasks() -> None:
    engine = CountingEngine(lambda prompt, number: "1", lambda prompt: "is 1 +" in prompt)
    async with (
        TrainerCollector(Sums, model=engine.model, repeats=1) as collector,
        collector.step(rows(4), ordered=True) as step,
    ):
        first = await step.next()
        assert isinstance(first, RolloutGroup)
        await until(lambda: engine.calls == 4 and engine.now == 1)
        engine.gate.set()
        rest = [group.task.id async for group in step]
    assert [first.task.id, *rest] == ["t0", "t1", "t2", "t3"]


async def test_ordered_groups_that_wait_are_kept_for_the_next_step() -> None:
    engine = CountingEngine(lambda prompt, number: "1", lambda prompt: "is 1 +" in prompt)
    async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
        async with collector.step(rows(4), groups=1, ordered=True) as step:
            assert [group.task.id async for group in step] == ["t0"]
        engine.gate.set()
        late = [group.task.id async for group in collector.step([])]
    assert sorted(late) == ["t1", "t2", "t3"]


async def test_own_tasks_go_on_where_the_step_before_ended() -> None:
    engine = ones()
    async with TrainerCollector(
        Sums, tasks=TaskSet(rows(5)), model=engine.model, repeats=1
    ) as collector:
        seen = []
        for _ in range(3):
            async with collector.step(groups=2, at_most=2) as step:
                seen.append(sorted([group.task.id async for group in step]))
    assert seen == [["t0", "t1"], ["t2", "t3"], ["t0", "t4"]]


async def test_dropped_groups_of_own_tasks_come_again() -> None:
    engine = held_but_first()
    async with TrainerCollector(
        Sums, tasks=rows(100), model=engine.model, repeats=2, concurrency=8
    ) as collector:
        async with collector.step(groups=1, leftovers="drop") as step:
            assert [group.task.id async for group in step] == ["t0"]
        engine.gate.set()
        async with collector.step(groups=3, at_most=3, ordered=True) as step:
            assert [group.task.id async for group in step] == ["t1", "t2", "t3"]


async def test_a_task_that_comes_again_and_again_keeps_its_id() -> None:
    """In a step a task that is there several times is numbered; dropped, it is itself again."""
    engine = held_but_first()
    async with TrainerCollector(
        Sums, tasks=rows(2), model=engine.model, repeats=1, concurrency=8
    ) as collector:
        for _ in range(3):
            async with collector.step(groups=2, leftovers="drop", ordered=True) as step:
                engine.gate.set()
                assert [group.task.id async for group in step] == ["t0", "t1"]
        state = collector.state_dict()
    assert len({one["own_id"] for one in state["returned"]}) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": 0}, "groups: must be at least 1, not 0"),
        ({"at_most": 0}, "at_most: must be at least 1, not 0"),
        ({"leftovers": "lose"}, "leftovers: must be 'keep' or 'drop', not 'lose'"),
        ({"number": 0}, "number: must be above 0, the previous step"),
    ],
)
async def test_a_step_that_cannot_be_meant_is_refused(options: Any, said: str) -> None:
    async with TrainerCollector(Sums, model=ones().model) as collector:
        with pytest.raises(ValueError, match=said):
            collector.step(rows(1), **options)


async def test_tasks_are_given_once() -> None:
    async with TrainerCollector(Sums, model=ones().model) as collector:
        with pytest.raises(TypeError, match="tasks: are missing"):
            collector.step()
        with pytest.raises(TypeError, match="pass a TaskSet, Stages or Mix to the collector"):
            collector.step(TaskSet(rows(1)))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UserError, match="must be a list or a task file, not generator"):
        TrainerCollector(Sums, tasks=endless())  # type: ignore[arg-type]  # wrong on purpose


async def test_an_evaluation_beside_a_step_gets_none_of_its_groups() -> None:
    engine = held_but_first()
    params = {"temperature": 0.8, "top_p": 0.9, "max_output_tokens": 7}
    async with TrainerCollector(Sums, model=engine.model, repeats=2, params=params) as collector:
        async with collector.step(rows(3), groups=1) as step:
            assert [group.task.id async for group in step] == ["t0"]
        await until(lambda: engine.now == 4)
        counts = dict(collector.counts)
        seen = engine.calls
        asked = [{"task_id": f"v{n}", "prompt": "What is 0 + 1?", "answer": "1"} for n in (1, 2)]
        found = await collector.evaluate(asked, repeats=3)
        assert sorted(group.task.id for group in found.groups) == ["v1", "v2"]
        assert found.counts == {"groups": 2, "rollouts": 6, "failed": 0, "unscored": 0}
        assert found.mean_reward == 1.0
        assert repr(found) == "<Evaluation of 2 tasks: mean reward 1>"
        assert dict(collector.counts) == counts
        greedy = engine.params[seen:]
        assert [(one.temperature, one.top_p, one.max_tokens) for one in greedy] == [
            (0.0, None, 7)
        ] * 6
        engine.gate.set()
        late = [group.task.id async for group in collector.step([])]
        assert sorted(late) == ["t1", "t2"]


async def test_who_waits_for_a_group_hears_that_the_collector_was_closed() -> None:
    engine = CountingEngine(lambda prompt, number: "1", lambda prompt: True)
    async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
        waiting = [
            asyncio.ensure_future(collector.step(rows(1)).next()),
            asyncio.ensure_future(collector.evaluate(rows(2))),
        ]
        await until(lambda: engine.now == 3)
    async with asyncio.timeout(_LOST_S):
        for one in waiting:
            with pytest.raises(RuntimeError, match="the collector was closed"):
                await one
    assert engine.now == 0


async def test_an_evaluation_has_parameters_of_its_own() -> None:
    engine = CountingEngine(lambda prompt, number: str(number % 2))
    async with TrainerCollector(Sums, model=engine.model, params={"top_p": 0.9}) as collector:
        found = await collector.evaluate(
            rows(1), repeats=4, params={"temperature": 0.5, "top_k": 3}
        )
    assert sorted(found.rewards) == [0.0, 0.0, 1.0, 1.0]
    assert {(one.temperature, one.top_p, one.top_k) for one in engine.params} == {(0.5, None, 3)}


async def test_an_evaluation_has_the_template_s_own_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    options = Settings.rollout_options

    def kept(settings: Settings, model: str) -> Any:
        found = options(settings, model)
        asked.append(found.append_only)
        return found

    monkeypatch.setattr(Settings, "rollout_options", kept)
    async with TrainerCollector(Sums, model=ones().model, repeats=1) as collector:
        assert len([group async for group in collector.step(rows(1))]) == 1
        await collector.evaluate(rows(1))
    assert asked == [True, False]


def test_steps_and_evaluations_of_a_trainer_that_is_not_asynchronous() -> None:
    engine = CountingEngine(lambda prompt, number: str(number % 3))
    with SyncCollector(Sums, tasks=rows(50), model=engine.model, repeats=2) as collector:
        with collector.step(groups=2, keep=spread, at_most=10, leftovers="drop") as step:
            kept = list(step)
        assert step.ended in ("groups", "at_most")
        assert len(kept) == step.counts["kept"]
        assert engine.now == 0
        found = collector.evaluate(rows(2))
        assert len(found.groups) == 2
        for _ in collector.step():
            break
        assert collector.next_step == 3
        assert collector.state_dict()["step"] == 2


@pytest.mark.parametrize(("announced", "stale"), [([3], 1), ([3, 6], 4), ([0], 1)], ids=str)
async def test_tokens_from_before_the_first_version_are_older_than_it(
    announced: list[int], stale: int
) -> None:
    engine = held_but_first()
    async with TrainerCollector(
        Sums, tasks=rows(3), model=engine.model, repeats=1, max_staleness=0
    ) as collector:
        async with collector.step(groups=1) as step:
            [first] = [group async for group in step]
        assert (first.rollouts[0].staleness, first.rollouts[0].oldest_weights) == (0, None)
        await until(lambda: engine.now >= 2)
        for version in announced:
            await collector.set_weights_version(version)
        state = collector.state_dict()
        engine.gate.set()
        async with collector.step(groups=2) as step:
            late = [group async for group in step]
    assert all(group.carried and not group.rollouts for group in late)
    assert [one.staleness for group in late for one in group.stale] == [stale, stale]
    assert collector.counts["stale"] == 2
    assert state["first_version"] == announced[0]


async def test_groups_without_a_reward_do_not_count_as_of_no_spread() -> None:
    async def breaks(prompt: list[int], params: SamplingParams) -> Generation:
        raise RuntimeError("no memory")

    model = TokenBackend(CharTokenizer(), breaks)
    async with TrainerCollector(Sums, model=model, repeats=1, max_attempts=1) as collector:
        assert len([one async for one in collector.step(rows(2))]) == 2
    assert (collector.counts["groups"], collector.counts["no_spread"]) == (2, 0)


async def test_an_engine_that_always_raises_ends_a_step_with_one_attempt_too() -> None:
    async def breaks(prompt: list[int], params: SamplingParams) -> Generation:
        raise RuntimeError("no memory")

    model = TokenBackend(CharTokenizer(), breaks)
    settings: dict[str, Any] = {"repeats": 2, "max_attempts": 1, "concurrency": 4}
    async with TrainerCollector(Sums, tasks=rows(4), model=model, **settings) as collector:
        with pytest.raises(UserError, match="20 rollouts in a row failed for the same reason"):
            await collector.step(groups=1, keep=spread).next()
