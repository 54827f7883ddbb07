"""What a worker does with an attempt: run it, decide what follows from its end, record that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import cancelled_attempt
from gymmesh_client.collect.attempts import AttemptInFlight
from gymmesh_client.collect.recorder import Recorder
from gymmesh_client.collect.requests import RolloutRequest
from gymmesh_client.collect.runner import Runner, ended_by
from gymmesh_client.dispatch import Decision, Dispatcher
from gymmesh_client.groups.judging import HeldRollout, JudgedGroups, left_pending, unjudged
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import from_status

_GROUP_CANCELLED: Final = "its group was cancelled: nobody wants it any more"


class Worker:
    """Does the work of a run's attempts, each in a task of its own.

    Args:
        groups: the groups whose repeats are judged together.
        judge: has a group judged; see `gymmesh_client.groups.judge`.
        room: called when more attempts may start.
    """

    def __init__(
        self,
        dispatcher: Dispatcher[RolloutRequest],
        runner: Runner,
        recorder: Recorder,
        groups: JudgedGroups,
        judge: Callable[[list[HeldRollout]], Awaitable[list[HeldRollout]]],
        room: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._runner = runner
        self._recorder = recorder
        self._groups = groups
        self._judge = judge
        self._room = room

    async def work(self, attempt: AttemptInFlight) -> None:
        """Run an attempt, and see that what follows from its end is on disk.

        Raises:
            OutputError: the disk takes nothing more.
        """
        try:
            attempt.allow_cancel()
            attempt.outcome = await self._runner.run(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled or attempt.left_behind:
                raise
            self._dispatcher.dropped(attempt.assignment)
        await attempt.forbid_cancel()
        if attempt.left_behind:
            return
        if isinstance(attempt.outcome, RolloutParts):
            await self._completed(attempt)
        elif attempt.outcome is not None:
            await self._failed(attempt, attempt.outcome)
        elif attempt.unwanted:
            await self.give_up_unwanted(attempt)

    async def give_up_unwanted(self, attempt: AttemptInFlight) -> None:
        """Record that a rollout fails since its group was cancelled, begun or not."""
        if attempt.call is not None:
            failed = attempt.call.cancelled(_GROUP_CANCELLED)
        else:
            await self._runner.reserve(attempt.assignment)
            rollout = attempt.assignment.work
            nothing = pb.Rollout(
                run_id=self._runner.run_id,
                task_id=rollout.group,
                repeat_index=rollout.repeat_index,
                rollout_id=rollout.rollout_id,
                attempt=attempt.assignment.attempt,
            )
            failed = cancelled_attempt(rollout.agent, nothing, _GROUP_CANCELLED)
        await self._give_up(attempt, failed)

    async def record(self, held: Iterable[HeldRollout]) -> None:
        """Record rollouts that have awaited their groups."""
        record = self._recorder.completed
        await asyncio.gather(*(record(one.task, RolloutParts.of(one.rollout)) for one in held))

    async def _completed(self, attempt: AttemptInFlight) -> None:
        self._dispatcher.completed(attempt.assignment)
        self._room()
        rollout = attempt.assignment.work
        if attempt.awaits_group:
            held = HeldRollout(rollout.task, attempt.take_parts().message())
            if self._groups.in_part(rollout.group):
                await self.record([left_pending(held)])
                group = self._groups.ended(rollout.group)
            else:
                group = self._groups.hold(held)
        else:
            await self._recorder.completed(rollout.task, attempt.take_parts())
            group = self._groups.ended(rollout.group)
        if group:
            await self._judge_group(attempt, group)

    async def _failed(self, attempt: AttemptInFlight, failed: FailedAttempt) -> None:
        error = from_status(failed.failure.status)
        begun = attempt.call is not None and attempt.call.begun
        ended = ended_by(failed.failure, error, begun=begun)
        decision = self._dispatcher.failed(attempt.assignment, time.monotonic(), ended)
        self._room()
        if decision is Decision.GIVE_UP:
            await self._give_up(attempt, failed)
        elif decision is Decision.PUT_BACK:
            self._recorder.put_back()
        else:
            if decision is Decision.RETRY:
                self._recorder.retried(failed.failure.boundary, error.reason_name)
            await self._recorder.tried(failed)

    async def _give_up(self, attempt: AttemptInFlight, failed: FailedAttempt) -> None:
        rollout = attempt.assignment.work
        await self._recorder.failed(rollout.task, failed)
        group = self._groups.ended(rollout.group)
        if group:
            await self._judge_group(attempt, group)

    async def _judge_group(self, attempt: AttemptInFlight, group: list[HeldRollout]) -> None:
        """Have a whole group judged, and record its rollouts."""
        try:
            attempt.allow_cancel()
            group = await self._judge(group)
        except asyncio.CancelledError:
            if not attempt.cancelled or attempt.left_behind:
                raise
            group = unjudged(group, "the run ended before the group was judged")
        await attempt.forbid_cancel()
        if not attempt.left_behind:
            await self.record(group)
