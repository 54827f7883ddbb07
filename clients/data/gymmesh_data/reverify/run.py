"""`reverify`: judges the rollouts of some sources again, many side by side.

The verdicts are written to a separate output with the files of a run: rows in the order in which
they were judged, failures, and a journal that makes the output resumable. The source is only read:
it may be any file of rows, and need not be writable. A new verdict does not supersede the old
verdict in the run's own journal. So both verdicts can be compared: the verdict from the collection,
and the later one with its verifier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2
from gymmesh_client import RunOutput, UserError
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_data.reverify.changes import DUPLICATES, OTHER_ENVIRONMENTS, VerdictChanges
from gymmesh_data.reverify.judged_row import judged_row, last_reward, unjudged_row
from gymmesh_data.reverify.sources import Source
from gymmesh_data.reverify.stored_task import (
    final_state_of,
    omitted_state,
    stop_reason_of,
    stored_task,
    transcript_of,
)
from gymmesh_data.reverify.task_source import TaskSource
from gymmesh_data.reverify.verifiers import Verifiers
from gymmesh_data.rollout import Json, StoredRollout
from gymmesh_data.tasks import collected_payload, corrections_of
from gymmesh_responses import dumps_clean, loads
from gymmesh_runtime.errors import MeshError, reason_name


@dataclass(frozen=True, slots=True)
class ReverifyOptions:
    """Options for rescoring.

    Attributes:
        concurrency: the maximum number of concurrent verdicts.
        limit: judge only this many rollouts, from the beginning.
        by: the person or program that rescores, for the provenance.
        tasks: read the tasks from this file, by their ids, instead of the run's task file.
        judge_differing: also judge a rollout whose tools answer differently when its calls are
            replayed; otherwise it is skipped.
    """

    concurrency: int = 16
    limit: int | None = None
    by: str = "gymmesh"
    tasks: TaskSource | None = None
    judge_differing: bool = False


_DIFFERING: Final = "rollouts whose replayed tool calls return different outputs"
_NO_STATE: Final = "rollouts whose session ended and whose final state was not kept"
_FAILED: Final = "failed rollouts (the row of a failed rollout has no final state)"


class _LeftOut(Exception):
    """A rollout that is not judged; the text is why."""


# An environment, a run and a task.
_GroupKey = tuple[str, str, str]


@dataclass(slots=True)
class _RolloutJob:
    """A rollout to judge, and its id in the output."""

    rollout: StoredRollout
    path: Path
    environment: str
    rollout_id: str

    @property
    def group(self) -> _GroupKey:
        """The rollouts of the same run that are judged together with this one, if the environment
        judges groups.
        """
        rollout = self.rollout
        return (self.environment, rollout.run_id, rollout.task_id)


@dataclass(slots=True)
class Reverification:
    """Judges rollouts; used once, from one event loop.

    Attributes:
        verifiers: prepared for all environments of the source.
        output: the output for the verdicts; None: verdicts are compared and not written.
        stopped: set it to start no more verdicts; running verdicts finish.
    """

    source: Source
    verifiers: Verifiers
    output: RunOutput | None
    options: ReverifyOptions
    changes: VerdictChanges = field(default_factory=VerdictChanges)
    stopped: bool = False
    _tasks: dict[Path, TaskSource] = field(default_factory=dict)
    _seen: set[bytes] = field(default_factory=set)
    # The groups to judge; of a member that an earlier session has judged, no attempt.
    _groups: dict[_GroupKey, list[tuple[_RolloutJob, int | None]]] = field(default_factory=dict)

    async def run(self) -> None:
        """Judge all rollouts that have no new verdict yet.

        Raises:
            UserError: a source cannot be read or has a row that is not a rollout's.
            OutputError: the verdicts cannot be written.
        """
        if self.options.tasks is None:
            self._tasks = self.source.tasks()
        jobs = self._jobs()
        numbered: Iterator[tuple[_RolloutJob, int]] = (
            ((job, 1) for job in jobs)
            if self.output is None
            else self.output.reserving(jobs, lambda job: job.rollout_id)
        )
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.options.concurrency):
                    workers.create_task(self._work(numbered))
            async with asyncio.TaskGroup() as workers:
                groups = iter(list(self._groups.values()))
                for _ in range(self.options.concurrency):
                    workers.create_task(self._work_on_groups(groups))
        except* UserError as errors:
            raise _first(errors) from None

    async def close(self) -> None:
        """Close the output. Raises OutputError."""
        if self.output is None:
            return
        changes, why = self.changes, "interrupted" if self.stopped else ""
        await self.output.close(
            completed=changes.judged, failed=changes.failed, interrupted=self.stopped, why=why
        )

    def _jobs(self) -> Iterator[_RolloutJob]:
        """The rollouts to judge, in the order of the source; behind the limit only the rest of
        groups that begin before it.
        """
        taken, begun = 0, set[_GroupKey]()
        for rollout, path in self.source.rollouts():
            full = taken == self.options.limit
            if self.stopped or (full and not begun):
                return
            if rollout.failed or not self.source.takes(rollout):
                if not full:
                    why = _FAILED if rollout.failed else OTHER_ENVIRONMENTS
                    self.changes.left_out[why] += 1
                continue
            job = _RolloutJob(rollout, path, self.source.environment_of(rollout), "")
            if full and job.group not in begun:
                continue
            if (name := self._new_id(rollout)) is None:
                continue
            taken += not full
            job.rollout_id = name
            together = self.verifiers.judges_groups(job.environment)
            if together:
                begun.add(job.group)
            if self.output is None or not self.output.is_done(name):
                yield job
            elif together:
                self._groups.setdefault(job.group, []).append((job, None))

    def _new_id(self, rollout: StoredRollout) -> str | None:
        """The rollout's id in the output; None where another row of the source had it."""
        made = f"{rollout.where}"  # of another program's row
        if rollout.task_id and not rollout.rollout_id and self.output is not None:
            made = self.output.rollout_id(rollout.task_id, rollout.repeat_index)
        name = rollout.rollout_id or made
        key = rollout_key(name)
        if key in self._seen:
            self.changes.left_out[DUPLICATES] += 1
            return None
        self._seen.add(key)
        return name

    async def _work(self, numbered: Iterator[tuple[_RolloutJob, int]]) -> None:
        while not self.stopped and (one := next(numbered, None)) is not None:
            job, attempt = one
            if self.verifiers.judges_groups(job.environment):
                self._groups.setdefault(job.group, []).append(one)
                continue
            try:
                verdict, how = await self._verdict(job)
            except MeshError as error:
                await self._failed(job, attempt, error)
            except _LeftOut as why:
                self.changes.left_out[str(why)] += 1
            else:
                await self._judged(job, attempt, verdict, how)

    async def _verdict(self, job: _RolloutJob) -> tuple[pb.Verification, Json]:
        """The verdict on a rollout, and how its session's state was had, for the provenance.

        Raises MeshError, and _LeftOut.
        """
        name, request, kept = job.environment, self._request(job), final_state_of(job.rollout)
        if kept is not None:
            request.final_state.CopyFrom(kept)
        if kept is not None or not self.verifiers.by_state(name):
            return await self.verifiers.verify(name, request), {}
        if not self.verifiers.replays(name) or not request.task.HasField("seed"):
            raise _LeftOut(omitted_state(job.rollout) or _NO_STATE)
        if self.verifiers.takes_turns(name):
            raise _LeftOut("rollouts with turns of the environment (turns can't be replayed)")
        if job.rollout.columns.actors:
            raise _LeftOut("rollouts of several actors (the order of the actors' calls is unknown)")
        async with self.verifiers.replay(name, request) as session:
            what = session.what
            self.changes.add_replayed(f"{job.rollout.where}: {job.rollout.task_id}", what)
            if what.differences and not self.options.judge_differing:
                raise _LeftOut(_DIFFERING)
            how = {"calls": what.calls, "different": len(what.differences)}
            return await session.verify(request), {"replayed": how}

    async def _work_on_groups(self, groups: Iterator[list[tuple[_RolloutJob, int | None]]]) -> None:
        """Judge the repeats of tasks together, with those that an earlier session has judged,
        which keep their verdicts.
        """
        for group in groups:
            if self.stopped:
                return
            wanted = [(job, attempt) for job, attempt in group if attempt is not None]
            if not wanted:
                continue
            try:
                verdicts = await self._judge_together([job for job, _ in group])
            except MeshError as error:
                for job, attempt in wanted:
                    await self._failed(job, attempt, error)
                continue
            # Side by side, so that they are on disk together.
            async with asyncio.TaskGroup() as writing:
                for job, attempt in wanted:
                    verdict = verdicts[job.rollout_id]
                    writing.create_task(self._judged(job, attempt, verdict))

    async def _judge_together(self, group: list[_RolloutJob]) -> dict[str, pb.Verification]:
        """The verdicts of a task's repeats by their ids. Raises MeshError."""
        request = verify_pb2.VerifyGroupRequest()
        for job in sorted(group, key=lambda job: job.rollout.repeat_index):
            one = self._request(job)
            if not request.members:
                request.task.CopyFrom(one.task)
            request.members.add(
                rollout_id=job.rollout_id,
                attempt=one.attempt,
                transcript=one.transcript,
                stop_reason=one.stop_reason,
                final_state=final_state_of(job.rollout),
            )
        verdicts = await self.verifiers.verify_group(group[0].environment, request)
        names = (member.rollout_id for member in request.members)
        return dict(zip(names, verdicts, strict=True))

    def _request(self, job: _RolloutJob) -> verify_pb2.VerifyRequest:
        """What the verifier is asked. Raises MeshError TASK_INVALID where the task is missing."""
        rollout = job.rollout
        attempt = rollout.row.get("attempt")
        return verify_pb2.VerifyRequest(
            task=self._task(job),
            transcript=transcript_of(rollout),
            stop_reason=stop_reason_of(rollout),
            rollout_id=job.rollout_id,
            attempt=attempt if type(attempt) is int and attempt > 0 else 1,
        )

    def _task(self, job: _RolloutJob) -> pb.Task:
        known = self.verifiers.known_keys.get(job.environment, frozenset())
        from_row = stored_task(job.rollout, job.environment, known)
        tasks = self.options.tasks or self._tasks.get(job.path)
        if tasks is None:
            return from_row
        task = tasks.get(job.rollout.task_id)
        if task is None:
            if self.options.tasks is None:
                return from_row
            raise MeshError(
                errors_pb2.ERROR_REASON_TASK_INVALID,
                f"{tasks.path} has no task {job.rollout.task_id!r}",
                metadata={"field": "task_id", "task_id": job.rollout.task_id},
            )
        task.environment = job.environment
        if from_row.HasField("seed"):
            task.seed = from_row.seed
        return task

    async def _judged(
        self, job: _RolloutJob, attempt: int, verdict: pb.Verification, how: Json | None = None
    ) -> None:
        known = self.verifiers.known_keys.get(job.environment, frozenset())
        origin = self._origin(job) | (how or {})
        if self.options.tasks is not None:
            # What it was judged by, where the row says something else.
            origin |= {"tasks": str(self.options.tasks.path), "task": self._corrected(job, known)}
        elif before := corrections_of(job.rollout.row):
            origin |= {"task": before}
        row = judged_row(job.rollout.row, verdict, origin, known)
        if self.output is not None:
            await self.output.completed(job.rollout_id, attempt, self._line(job, row))
        self.changes.add(job.environment, job.rollout.reward, row["reward"])
        self.changes.compare(job.rollout, row)

    def _corrected(self, job: _RolloutJob, known: frozenset[str]) -> Json:
        """The task's keys that are not as its row has them."""
        stored = collected_payload(job.rollout.row, known)
        payload: Json = loads(self._task(job).payload_json)
        return {
            key: value
            for key, value in payload.items()
            if key not in stored or stored[key] != value
        }

    async def _failed(self, job: _RolloutJob, attempt: int, error: MeshError) -> None:
        row = unjudged_row(job.rollout.row, error, job.environment, self._origin(job))
        if self.output is not None:
            line = self._line(job, row)
            await self.output.failed(job.rollout_id, attempt, pb.BOUNDARY_VERIFIER, line)
        self.changes.add_failure(job.environment, reason_name(error.reason), error.message)

    def _line(self, job: _RolloutJob, row: Json) -> bytes:
        """The row, with the keys by which a run's rows are found."""
        found = {
            "task_id": job.rollout.task_id,
            "rollout_id": job.rollout_id,
            "repeat_index": job.rollout.repeat_index,
            "environment": job.environment,
        }
        return dumps_clean(row | found)

    def _origin(self, job: _RolloutJob) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"at": now, "by": self.options.by, **self.verifiers.origin(job.environment)}


async def reverify(
    source: Source,
    verifiers: Verifiers,
    output: RunOutput | None,
    options: ReverifyOptions | None = None,
) -> VerdictChanges:
    """Judge rollouts again, and count what changed; raises as `Reverification.run`.

    Args:
        verifiers: not prepared yet. Rollouts that cannot be judged again are refused before any
            verdict.
        output: from `RunOutput.open`; closed in the end. None: verdicts are only compared.
    """
    judging = Reverification(source, verifiers, output, options or ReverifyOptions())
    try:
        await verifiers.prepare(source.names())
        await judging.run()
    finally:
        await judging.close()
    return judging.changes


def count_kept(changes: VerdictChanges, row: Mapping[str, Any]) -> None:
    """Count a verdict that an earlier session of the same reverification gave."""
    changes.kept += 1
    changes.add(str(row.get("environment")), last_reward(row), row.get("reward"))


def _first(errors: BaseExceptionGroup[UserError]) -> UserError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, UserError)
    return found
