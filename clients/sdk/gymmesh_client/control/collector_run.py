"""A collector's run as RunService shows and steers it."""

from __future__ import annotations

import difflib
import hashlib
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_client.collector import Collector
from gymmesh_client.groups import ConsumerClaim
from gymmesh_client.run_file import RunIdentity
from gymmesh_runtime.errors import MeshError


class CollectorRun:
    """Implements `gymmesh_client.control.RunHandle`.

    Args:
        requested: how many rollouts the run is to have in all.
        tasks: the ids of its tasks; None: not known.
        shown: where the rows go.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        requested: int,
        shown: str,
        identity: RunIdentity,
        tasks: Collection[str] | None = None,
    ) -> None:
        self._collector = collector
        self._tasks = tasks
        self._requested = requested
        self._shown = shown
        self._identity = identity_digest(identity)
        self._started = time.time_ns()
        self.pause, self.resume = collector.pause, collector.resume
        self.drain, self.cancel = collector.drain, collector.cancel

    @property
    def run_id(self) -> str:
        """The run's id; of a shard, which is steered by itself, with its number behind it."""
        output = self._collector.output
        shard = output.shard
        return output.run_id + ("" if shard is None else f".{shard.index}of{shard.of}")

    def snapshot(self) -> run_pb2.Run:
        """How far it is."""
        figures = self._collector.figures()
        tally = figures.tally
        whole = tally.completed + tally.failed >= self._requested
        ended = figures.state in ("stopped", "finished")
        name = ("finished" if whole else "stopped") if ended else figures.state
        return run_pb2.Run(
            run_id=self.run_id,
            state=run_pb2.RunState.Value(f"RUN_STATE_{name.upper()}"),
            requested=self._requested,
            completed=tally.completed,
            failed=tally.failed,
            in_flight=figures.in_flight,
            concurrency=figures.concurrency,
            failures=[
                run_pb2.FailureCount(boundary=_boundary(boundary), count=count)
                for boundary, count in sorted(tally.failures.items())
            ],
            mean_reward=tally.mean_reward,
            started_unix_nano=self._started,
            output=self._shown,
            identity=self._identity,
        )

    def tune(self, *, concurrency: int | None) -> None:
        """Change settings; None: as it is."""
        if concurrency is not None:
            self._collector.tune(concurrency)

    def cancel_group(self, task_id: str) -> None:
        """Cancel the rollouts of a task. Raises FIELD_INVALID when the run has none of this id."""
        if self._tasks is not None and task_id not in self._tasks:
            near = difflib.get_close_matches(task_id, self._tasks, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"run {self.run_id} has no task '{task_id}'{hint}",
                metadata={"field": "cancel_group.task_id"},
            )
        self._collector.cancel_group(task_id)

    async def groups(
        self, after_cursor: int, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups as they come, to one reader."""
        self._check_hands_out()
        stream = self._collector.group_stream
        async with aclosing(stream.groups(after_cursor, max_staleness)) as groups:
            async for group in groups:
                yield run_pb2.StreamGroupsResponse(
                    cursor=group.cursor, task=group.task, rollouts=group.rollouts
                )

    async def shared_groups(
        self, claim: ConsumerClaim, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups as they come, for one of the consumers that share them."""
        self._check_hands_out()
        shared = self._collector.shared_stream
        async with aclosing(shared.groups(claim, max_staleness)) as groups:
            async for one in groups:
                reply = run_pb2.StreamGroupsResponse(
                    cursor=one.cursor,
                    all_sent=one.group is None,
                    most_unacknowledged=one.most_unacknowledged,
                )
                if one.group is not None:
                    reply.task.CopyFrom(one.group.task)
                    reply.rollouts.extend(one.group.rollouts)
                yield reply

    async def acknowledge(self, consumer: str, incarnation: str, cursor: int) -> None:
        """A reader has all groups that it was sent up to a cursor; `consumer` empty: the reader
        of all groups. Returns once that is on disk.
        """
        self._check_hands_out()
        stream = self._collector.group_stream
        if consumer:
            self._collector.shared_stream.acknowledge(consumer, incarnation, cursor)
        else:
            stream.refuse_others("one reader")
            stream.check_cursor("cursor", cursor)
            stream.acknowledge(cursor)
        await stream.saved()

    def _check_hands_out(self) -> None:
        if not self._collector.options.hand_out:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"run {self.run_id} hands out no groups; start it with --stream",
                metadata={"method": "gymmesh.run.v1.RunService/StreamGroups"},
            )


def identity_digest(identity: RunIdentity) -> bytes:
    """SHA-256 over tasks, configuration and version, one line each."""
    lines = f"{identity.tasks}\n{identity.config}\n{identity.version}\n"
    return hashlib.sha256(lines.encode()).digest()


def _boundary(name: str) -> rollout_pb2.Boundary.ValueType:
    try:
        return rollout_pb2.Boundary.Value(f"BOUNDARY_{name}")
    except ValueError:
        return rollout_pb2.BOUNDARY_UNSPECIFIED
