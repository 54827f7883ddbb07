"""Rollouts that are judged together: each leaves exactly once, whatever happens to its group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2
from gymmesh_client.groups.judging import HeldRollout, JudgedGroups, judged
from gymmesh_client.output.retry_choice import RetryChoice
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
from tests.unit.client.test_collect import collector, rows, tasks
from tests.unit.client.test_collect_steering import until


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_every_held_rollout_leaves_once(sizes: list[int], data: st.DataObject) -> None:
    book = JudgedGroups()
    ends = []
    for number, size in enumerate(sizes):
        book.expect(f"t-{number}", size)
        ends += [(f"t-{number}", repeat) for repeat in range(size)]
    held, left = [], []
    for task_id, repeat in data.draw(st.permutations(ends)):
        if data.draw(st.booleans()):
            one = HeldRollout(make_task(task_id), pb.Rollout(rollout_id=f"{task_id}/{repeat}"))
            held.append(one.rollout.rollout_id)
            group = book.hold(one)
        else:
            group = book.ended(task_id)
        assert len({member.task.task_id for member in group}) <= 1
        left += [member.rollout.rollout_id for member in group]
    assert sorted(left) == sorted(held)
    assert book.rest() == []


def test_verdicts_must_be_those_of_the_members() -> None:
    group = [HeldRollout(make_task(), pb.Rollout(rollout_id=one)) for one in "ab"]
    swapped = [verify_pb2.GroupVerdict(rollout_id=one) for one in "ba"]
    with pytest.raises(ValueError, match="order of verdicts does not match"):
        judged(group, agent_pb2.JudgeGroupResponse(verdicts=swapped))


class Ranking(ScriptedAgent):
    """Gives the n-th member of a group the reward n; repeats in `broken` fail."""

    def __init__(
        self,
        *broken: int,
        error: MeshError | None = None,
        slow: bool = False,
        text: str = "5",
    ) -> None:
        super().__init__(self._events)
        self.groups: list[list[str]] = []
        self.asked = asyncio.Event()
        self._broken = broken
        self._error = error
        self._slow = slow
        self._text = text

    def _events(self, request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        pending = verdict(None)
        pending.verified.verification.awaits_group = True
        bodies = [answer(self._text), pending, completed()]
        if int(request.rollout_id[-1]) in self._broken:
            bodies = [answer(self._text), failed(retry_safe=False)]
        return make_events(request.rollout_id, request.attempt, *bodies, task=request.task)

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        members = [member.rollout_id for member in request.group.members]
        self.groups.append(members)
        self.asked.set()
        if self._slow:
            await asyncio.Event().wait()
        if self._error is not None:
            raise self._error
        reply = agent_pb2.JudgeGroupResponse()
        for place, member in enumerate(members):
            one = reply.verdicts.add(rollout_id=member)
            one.verification.status = pb.VERIFICATION_STATUS_VERIFIED
            one.verification.reward = place
        return reply


async def test_a_group_is_judged_when_its_last_repeat_has_ended(tmp_path: Path) -> None:
    agent = Ranking()
    run, files = collector(tmp_path, agent, repeats=3)
    tally = await run.run(tasks(2))
    assert [len(group) for group in agent.groups] == [3, 3]
    assert tally.completed == 6
    rewards = {(row["task_id"], row["repeat_index"]): row["reward"] for row in rows(files.rows)}
    assert sorted(rewards.values()) == [0, 0, 1, 1, 2, 2]
    assert all(reward == repeat for (_, repeat), reward in rewards.items())


async def test_failed_repeats_are_left_out(tmp_path: Path) -> None:
    agent = Ranking(0, 2)
    run, files = collector(tmp_path, agent, repeats=3)
    tally = await run.run(tasks(1))
    assert [len(group) for group in agent.groups] == [1]
    assert (tally.completed, tally.failed) == (1, 2)
    assert [row["repeat_index"] for row in rows(files.rows)] == [1]


async def test_large_rollouts_of_groups_and_failed_ones_are_copied_and_written_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threaded: Counter[str] = Counter()
    original = asyncio.to_thread

    async def counted(work: Callable[..., Any], *arguments: Any) -> Any:
        threaded[work.__name__] += 1
        return await original(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    run, files = collector(tmp_path, Ranking(1, text="5" * 300_000), repeats=3)
    tally = await run.run(tasks(1))
    assert (tally.completed, tally.failed) == (2, 1)
    assert len(rows(files.rows)) == 2
    made = {name: threaded[name] for name in ("message", "completed_line", "failure_line")}
    assert made == {"message": 3, "completed_line": 2, "failure_line": 1}


async def test_a_group_that_cannot_be_judged_stays_pending(tmp_path: Path) -> None:
    agent = Ranking(error=MeshError(errors_pb2.ERROR_REASON_VERIFIER_FAULT, "no verdict"))
    run, files = collector(tmp_path, agent, repeats=2)
    await run.run(tasks(1))
    for row in rows(files.rows):
        assert row["reward"] is None
        assert row["verification"]["status"] == "PENDING"
        assert "VERIFIER_FAULT" in row["verification"]["reason"]


async def test_an_interrupt_while_judging_loses_nothing(tmp_path: Path) -> None:
    agent = Ranking(slow=True)
    run, files = collector(tmp_path, agent, repeats=2, grace_s=0.0)
    going = asyncio.create_task(run.run(tasks(1)))
    await asyncio.wait_for(agent.asked.wait(), 60)
    run.interrupt()
    await asyncio.wait_for(going, 60)
    written = rows(files.rows)
    assert [row["reward"] for row in written] == [None, None]
    assert "the run ended" in written[0]["verification"]["reason"]


async def test_an_interrupt_before_the_group_is_whole_loses_nothing(tmp_path: Path) -> None:
    started = asyncio.Event()

    class HalfStuck(Ranking):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            if request.rollout_id.endswith("1"):
                started.set()
                await asyncio.Event().wait()
            async for response in super().RunRollout(request, timeout=timeout):
                yield response

    agent = HalfStuck()
    run, files = collector(tmp_path, agent, repeats=2, grace_s=0.0)
    going = asyncio.create_task(run.run(tasks(1)))
    await asyncio.wait_for(started.wait(), 60)
    await until(lambda: run.figures().in_flight == 1)  # the other repeat has ended
    run.interrupt()
    await asyncio.wait_for(going, 60)
    (row,) = rows(files.rows)
    assert (row["repeat_index"], row["reward"]) == (0, None)


async def test_part_of_a_group_is_not_judged_by_itself(tmp_path: Path) -> None:
    """A retried repeat would have won against nobody."""
    agent = Ranking(1)
    run, files = collector(tmp_path, agent, repeats=3)
    await run.run(tasks(2))
    assert [len(group) for group in agent.groups] == [2, 2]
    before = {row["rollout_id"]: row["reward"] for row in rows(files.rows)}

    mended = Ranking()
    choice = RetryChoice(failed=True)
    run, files = collector(tmp_path, mended, repeats=3, resume=True, again=choice)
    tally = await run.run(tasks(2))
    assert (tally.completed, mended.groups) == (2, [])
    for row in rows(files.rows):
        assert row["reward"] == before.get(row["rollout_id"])
        if row["repeat_index"] == 1:
            assert row["verification"]["status"] == "PENDING"
            assert "earlier session" in row["verification"]["reason"]

    # All again is a whole group, and so is one of which nothing was completed.
    choice = RetryChoice(tasks=frozenset(["t-0"]))
    run, files = collector(tmp_path, mended, repeats=3, resume=True, again=choice)
    await run.run(tasks(2))
    assert [len(group) for group in mended.groups] == [3]


async def test_a_group_whose_completed_repeats_were_lost_is_judged_as_a_whole(
    tmp_path: Path,
) -> None:
    agent = Ranking(0, 1, 2)
    run, files = collector(tmp_path, agent, repeats=3)
    await run.run(tasks(1))
    mended = Ranking()
    choice = RetryChoice(failed=True)
    run, files = collector(tmp_path, mended, repeats=3, resume=True, again=choice)
    await run.run(tasks(1))
    assert [len(group) for group in mended.groups] == [3]
    assert sorted(row["reward"] for row in rows(files.rows)) == [0, 1, 2]
