"""Finished groups for a trainer: whole, once they are on disk, bounded, fresh enough."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import CollectOptions, Group, Order
from gymmesh_client.groups.store import GroupStore
from gymmesh_runtime.errors import MeshError
from tests.support.rollouts import (
    ScriptedAgent,
    answer,
    completed,
    failed,
    make_events,
    make_task,
    verdict,
)
from tests.unit.client.test_collect import collector, good, rows, tasks


def with_weights(version: int) -> pb.RolloutEvent:
    event = answer("5")
    event.model_call_completed.tokens.weights.add(version=version)
    return event


def by_weights(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
    """Task t-N is answered by weights of version N."""
    version = int(request.task.task_id.removeprefix("t-"))
    return make_events(
        request.rollout_id, request.attempt, with_weights(version), verdict(1.0), completed()
    )


async def test_groups_come_whole_and_after_their_rows(tmp_path: Path) -> None:
    def mixed(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.rollout_id.endswith("-1"):
            return make_events(request.rollout_id, 1, failed(retry_safe=False))
        return good(request)

    run, files = collector(tmp_path, ScriptedAgent(mixed), repeats=3, hand_out=2, patience_s=20.0)
    going = asyncio.create_task(run.run(tasks(5)))
    seen: list[Group] = []
    async with asyncio.timeout(60):
        async for group in run.groups():
            written = {row["rollout_id"] for row in (*rows(files.rows), *rows(files.failures))}
            assert written >= {one.rollout_id for one in group.rollouts}
            seen.append(group)
        await going
    assert [group.cursor for group in seen] == [1, 2, 3, 4, 5]
    assert {group.task.task_id for group in seen} == {f"t-{number}" for number in range(5)}
    for group in seen:
        assert [one.repeat_index for one in group.rollouts] == [0, 1, 2]
        assert group.rewards == [1.0, None, 1.0]
        assert group.rollouts[1].failed.failure.boundary == pb.BOUNDARY_MODEL
    assert run.state == "finished"


async def test_a_run_that_begins_no_more_groups_finishes_those_that_it_began(
    tmp_path: Path,
) -> None:
    """What it read ahead, and still has to read, has no outcome and no attempt."""
    agent = ScriptedAgent(good)
    run, files = collector(tmp_path, agent, repeats=3, concurrency=2, hand_out=20)
    going = asyncio.create_task(run.run(tasks(400)))
    groups, unbegun = [], list[str]()
    async with asyncio.timeout(60):
        async for group in run.groups():
            groups.append(group.task.task_id)
            if len(groups) == 2:
                unbegun = run.begin_no_more_groups()
        await going
    assert run.state == "finished"
    assert run.why == ""
    begun = {request.task.task_id for request in agent.requests}
    assert sorted(groups) == sorted(begun)
    assert len(begun) < 2 + 20
    assert len(agent.requests) == 3 * len(begun) == len(rows(files.rows))
    assert unbegun
    assert not begun & set(unbegun)


async def test_a_run_over_endless_tasks_ends_once_it_begins_no_more_groups(tmp_path: Path) -> None:
    """It reads no further task: nothing would ever end that."""
    read = 0

    def endless() -> Iterator[pb.Task]:
        nonlocal read
        while read < 100_000:  # so that the test fails, and does not hang
            yield make_task(f"t-{read}", expected_answer="5")
            read += 1

    agent = ScriptedAgent(good)
    run, files = collector(tmp_path, agent, repeats=3, concurrency=2, hand_out=20)
    going = asyncio.create_task(run.run(endless()))
    groups, seen = [], 0
    async with asyncio.timeout(60):
        async for group in run.groups():
            groups.append(group.task.task_id)
            if len(groups) == 2:
                run.begin_no_more_groups()
                seen = read
        await going
    assert read <= seen + 1
    assert (run.state, run.why) == ("finished", "")
    begun = {request.task.task_id for request in agent.requests}
    assert sorted(groups) == sorted(begun)
    assert len(agent.requests) == 3 * len(begun) == len(rows(files.rows))


async def test_no_group_starts_while_too_many_wait_for_the_trainer(tmp_path: Path) -> None:
    agent = ScriptedAgent(good)
    run, _ = collector(tmp_path, agent, repeats=2, concurrency=2, hand_out=3)
    going = asyncio.create_task(run.run(tasks(30)))
    async with asyncio.timeout(60):
        while not run.figures().held:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # nothing more starts, however long it is
        assert len(agent.requests) <= 2 * (3 + 1)
        assert not going.done()
        groups = [group async for group in run.groups()]
        assert len(groups) == 30
        assert (await going).completed == 60


async def test_a_run_that_nobody_takes_groups_from_ends_at_its_deadline(tmp_path: Path) -> None:
    run, files = collector(tmp_path, ScriptedAgent(good), concurrency=2, hand_out=1, deadline_s=3.0)
    tally = await asyncio.wait_for(run.run(tasks(100)), 60)
    assert 0 < tally.completed < 100
    assert run.why == "the run reached its deadline of 3 s"
    assert run.state == "stopped"
    more, _ = collector(tmp_path, ScriptedAgent(good), resume=True)
    assert (await more.run(tasks(100))).completed == 100 - tally.completed
    assert len(rows(files.rows)) == 100


async def test_groups_of_old_weights_are_left_out_and_counted(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(by_weights), concurrency=1, hand_out=100)
    run.weights(9)
    await run.run(tasks(10))
    fresh = [group.oldest_weights async for group in run.groups(max_staleness=2)]
    assert fresh == [7, 8, 9]
    assert run.group_stream.store.counts() == {
        "finished": 10,
        "not_acknowledged": 0,
        "stale": 7,
        "partial": 0,
    }


def partly_unknown(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
    """Of task t-0 nothing is known, of t-1 the version of a part, of t-2 and t-3 that of all; t-4
    fails before any call.
    """
    number = int(request.task.task_id.removeprefix("t-"))
    event = answer("5") if number == 0 else with_weights(7)
    if number == 1:
        event.model_call_completed.tokens.weights[0].first_token = 1
    if number == 4:
        return make_events(request.rollout_id, 1, failed(retry_safe=False))
    return make_events(request.rollout_id, request.attempt, event, verdict(1.0), completed())


async def test_weights_of_unknown_version_count_as_stale_where_a_limit_was_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(partly_unknown), concurrency=1, hand_out=100)
    run.weights(8)
    await run.run(tasks(5))
    stream = run.group_stream
    assert [group.task.task_id async for group in stream.groups(0, None)] == [
        f"t-{number}" for number in range(5)
    ]
    assert not caplog.messages
    fresh = [group.task.task_id async for group in run.groups(max_staleness=1)]
    assert fresh == ["t-2", "t-3", "t-4"]
    assert stream.store.counts()["stale"] == 2
    [message] = caplog.messages
    assert message.startswith("max_staleness: groups whose model reports no weights version are")


async def test_no_group_is_stale_as_long_as_no_version_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a trainer that announces its first version after its first step would get none."""
    run, _ = collector(tmp_path, ScriptedAgent(good), concurrency=1, hand_out=100)
    await run.run(tasks(3))
    groups = run.groups(max_staleness=0)
    assert (await anext(groups)).oldest_weights is None
    assert (await anext(groups)).oldest_weights is None
    [message] = caplog.messages
    assert message.startswith("max_staleness: no weights version is known yet")
    run.weights(1)
    assert [group async for group in groups] == []
    assert len(caplog.messages) == 2
    assert run.group_stream.store.stale == 1


async def test_groups_that_an_earlier_session_began_are_in_the_rows_only(tmp_path: Path) -> None:
    run, files = collector(tmp_path, ScriptedAgent(good), repeats=1)
    await run.run(tasks(2))
    more, _ = collector(tmp_path, ScriptedAgent(good), resume=True, repeats=2, hand_out=8)
    await more.run(tasks(3))
    assert [group.task.task_id async for group in more.groups()] == ["t-2"]
    assert more.group_stream.store.partial == 2
    assert len(rows(files.rows)) == 6


async def test_a_cancelled_group_is_not_handed_out_even_if_it_was_not_read_yet(
    tmp_path: Path,
) -> None:
    run, files = collector(tmp_path, ScriptedAgent(good), concurrency=1, hand_out=100)
    run.cancel_group("t-2")
    tally = await run.run(tasks(4))
    assert [group.task.task_id async for group in run.groups()] == ["t-0", "t-1", "t-3"]
    assert (tally.completed, tally.failed) == (3, 1)
    assert [row["task_id"] for row in rows(files.failures)] == ["t-2"]


async def test_a_cursor_acknowledges_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good), hand_out=8)
    await run.run(tasks(4))
    stream = run.group_stream
    assert [group.cursor async for group in stream.groups(2, None)] == [3, 4]
    assert [group.cursor async for group in stream.groups(0, None)] == [3, 4]
    assert [group.cursor async for group in stream.groups(4, None)] == []
    assert stream.store.unacknowledged == 0
    with pytest.raises(MeshError, match="after_cursor 5"):
        await anext(stream.groups(5, None))


async def test_without_hand_out_there_are_none(tmp_path: Path) -> None:
    run, _ = collector(tmp_path, ScriptedAgent(good))
    with pytest.raises(ValueError, match="hand_out"):
        await anext(run.groups())
    await run.run(tasks(1))
    with pytest.raises(ValueError, match="INTERLEAVED"):
        CollectOptions(hand_out=1, repeats=2, order=Order.INTERLEAVED)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(1, 3), st.data())
def test_every_group_is_handed_out_once_or_dropped(
    sizes: list[int], most: int, data: st.DataObject
) -> None:
    shelf = GroupStore(most, concurrency=2, repeats=1)
    left: dict[str, int] = {}
    for number, size in enumerate(sizes):
        shelf.expect(make_task(f"t-{number}"), size, size)
        left[f"t-{number}"] = size
    taken: list[str] = []
    dropped: set[str] = set()
    cursor = 0

    def step(task_id: str) -> Any:
        nonlocal cursor
        if data.draw(st.integers(0, 9)) == 0:
            shelf.drop(task_id)
            dropped.add(task_id)
        shelf.began(task_id)
        left[task_id] -= 1
        shelf.ended(task_id, pb.Rollout(task_id=task_id, repeat_index=left[task_id]))
        if not left[task_id]:
            del left[task_id]

    while left:
        open_to = [task_id for task_id in left if shelf.takes(task_id)]
        goes_on: bool = data.draw(st.booleans())
        if open_to and goes_on:
            step(data.draw(st.sampled_from(open_to)))
        elif (group := shelf.after(cursor)) is not None:
            cursor = group.cursor
            taken.append(group.task.task_id)
            shelf.acknowledge(cursor)
        else:
            assert open_to, "it parks although the trainer has everything"
            step(open_to[0])
    while (group := shelf.after(cursor)) is not None:
        cursor = group.cursor
        taken.append(group.task.task_id)
    assert len(taken) == len(set(taken))
    assert set(taken) == {f"t-{number}" for number in range(len(sizes))} - dropped


def test_a_full_shelf_takes_no_new_group_but_the_rest_of_those_under_way() -> None:
    shelf = GroupStore(most=1, concurrency=6, repeats=2)
    for name in "abc":
        shelf.expect(make_task(name), 2, 2)
    shelf.began("a")
    shelf.began("b")
    assert shelf.takes("c")
    for repeat in range(2):
        shelf.ended("a", pb.Rollout(task_id="a", repeat_index=repeat))
    assert shelf.full
    assert not shelf.takes("c")
    assert shelf.takes("b")
    assert shelf.takes("one that is not handed out")
    shelf.acknowledge(1)
    assert shelf.takes("c")
    shelf.tune(1)  # two groups at the most, and one is under way
    assert shelf.takes("c")
    shelf.began("c")
    shelf.expect(make_task("d"), 2, 2)
    assert not shelf.takes("d")
