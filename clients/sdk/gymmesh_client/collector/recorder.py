"""Records how rollouts end: rows on disk, counted, and given to the stream of groups."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import failed_recording
from gymmesh_client.boundaries import BOUNDARIES, boundary_name
from gymmesh_client.collector import metrics
from gymmesh_client.collector.outcomes import Outcomes
from gymmesh_client.collector.row_maker import RowMaker
from gymmesh_client.groups import GroupStream
from gymmesh_client.rollout import RolloutParts, work_elsewhere
from gymmesh_client.rows import FailedAttempt
from gymmesh_client.summary import Counted, Tally
from gymmesh_rows import ASKED
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.telemetry.instruments import CounterChild

_LOG: Final = logging.getLogger("gymmesh.collect")
# More tokens than any rollout has; a counter stays exact up to 2^53.
_MOST_TOKENS: Final = 2**40


@dataclass(slots=True)
class Recorder:
    """Writes a run's outcomes. A method that records one returns once it is on disk and counted.

    These methods raise OutputError when the disk is full or fails.

    Attributes:
        stored: called with a rollout's id and attempt once how that attempt ended is on disk.
        groups: takes the outcomes for a trainer; None: there is none.
    """

    output: Outcomes
    tally: Tally
    stored: Callable[[str, int], None]
    groups: GroupStream | None
    _rows: RowMaker = field(default_factory=RowMaker)
    # Environment, its version, agent, its version.
    _served: set[tuple[str, str, str, str]] = field(default_factory=set)
    # 0 from the start.
    _completed: CounterChild = field(
        default_factory=lambda: metrics.COLLECTOR_ROLLOUTS.labels("completed", "")
    )
    _input: CounterChild = field(default_factory=lambda: metrics.COLLECTOR_TOKENS.labels("input"))
    _output: CounterChild = field(default_factory=lambda: metrics.COLLECTOR_TOKENS.labels("output"))

    async def completed(self, task: pb.Task, parts: RolloutParts) -> None:
        """Record a completed rollout; as a failure where it cannot be written as a row."""
        try:
            line, counted = await self._rows.completed(task, parts)
        except ValueError as error:  # CodecError is one: what the agent sent is not JSON
            await self.failed(task, failed_recording(parts, task.agent, error))
            return
        if (begun := parts.started) is not None:
            self._served.add(
                (begun.environment, begun.environment_version, begun.agent, begun.agent_version)
            )
        rollout_id, attempt = parts.rollout_id, parts.attempt
        self._tell_work_elsewhere(parts)
        rollout = None if self.groups is None else await self._rows.message(parts)
        await self._rows.release(parts)
        del parts  # as large as the row, and not needed while that goes to disk
        await self.output.completed(rollout_id, attempt, line)
        self.stored(rollout_id, attempt)
        self._tell_new_version(counted)
        self._tell_state_omitted(counted)
        self.tally.add(counted)
        self._completed.inc()
        self._input.inc(_countable(counted.input_tokens))
        self._output.inc(_countable(counted.output_tokens))
        if self.groups is not None and rollout is not None:
            self.groups.add(task.task_id, rollout)

    async def message(self, parts: RolloutParts) -> pb.Rollout:
        """A rollout as one message, made without holding up the loop. Not to be cancelled."""
        return await self._rows.message(parts)

    def _tell_new_version(self, counted: Counted) -> None:
        """Log a verdict of another version than those before it, as a rolling upgrade brings."""
        judge, version = counted.judge
        known = self.tally.verdicts.get(judge, {})
        if version and known and version not in known:
            _LOG.warning(
                "verdicts of %s have version %s, but earlier verdicts of this run have version %s: "
                "rewards of different versions may not be comparable",
                judge,
                version,
                ", ".join(sorted(known)),
            )

    def _tell_state_omitted(self, counted: Counted) -> None:
        """Log, once for each environment of a run, that a final state is not kept."""
        name = counted.judge.name
        if counted.state_omitted and name not in self.tally.states_omitted:
            _LOG.warning(
                "the final state of sessions of %s is not kept, so gym-cli reverify can't give it "
                "to a verifier: %s. If no later verdict needs the state, set keep_state = False "
                "in the class",
                name,
                counted.state_omitted,
            )

    def _tell_work_elsewhere(self, parts: RolloutParts) -> None:
        """Log, once in a run, that a program's work may not be what is judged."""
        if self.tally.work_elsewhere or not parts.annotations:
            return
        asked = {
            note.model_call_id: note.value_json
            for note in parts.annotations
            if note.key.endswith(ASKED)
        }
        if asked and (said := work_elsewhere(parts.calls, asked)):
            self.tally.work_elsewhere = f"rollout {parts.rollout_id}: {said}"
            _LOG.warning("%s", self.tally.work_elsewhere)

    def versions_seen(self) -> dict[str, dict[str, list[str]]]:
        """The versions of environments and agents that completed rollouts were made with."""
        served: dict[str, set[tuple[str, str]]] = {
            "environments": {one[:2] for one in self._served},
            "agents": {one[2:] for one in self._served},
        }
        return {
            kind: {
                name: [version for _, version in versions]
                for name, versions in groupby(sorted(seen), key=itemgetter(0))
            }
            for kind, seen in served.items()
        }

    async def failed(self, task: pb.Task, failed: FailedAttempt) -> None:
        """Record the failure of a rollout that is not tried again."""
        rollout, boundary = failed.partial, failed.failure.boundary
        line = await self._rows.failed(task, failed)
        await self.output.failed(rollout.rollout_id, rollout.attempt, boundary, line)
        self.stored(rollout.rollout_id, rollout.attempt)
        error = from_status(failed.failure.status)
        self.tally.add_cause(boundary_name(boundary), error.reason_name, error.message)
        metrics.COLLECTOR_ROLLOUTS.labels("failed", _label(boundary)).inc()
        if self.groups is not None:
            if not rollout.HasField("failed"):
                rollout.failed.failure.CopyFrom(failed.failure)  # the partial one is our own
            self.groups.add(task.task_id, rollout)

    async def tried(self, failed: FailedAttempt) -> None:
        """Record that an attempt failed and that this is not the rollout's outcome."""
        rollout = failed.partial
        await self.output.tried(rollout.rollout_id, rollout.attempt, failed.failure.boundary)
        self.stored(rollout.rollout_id, rollout.attempt)

    def retried(self, boundary: int, reason: str) -> None:
        """Count an attempt that failed for this reason and is followed by another one."""
        self.tally.add_retry(boundary, reason)
        metrics.COLLECTOR_RETRIES.labels(_label(boundary), reason).inc()


def _label(boundary: int) -> str:
    """A boundary as a label; an agent may send any number, and a label takes none made up."""
    return BOUNDARIES.get(boundary, "OTHER")


def _countable(tokens: int) -> int:
    """An endpoint may report any number: a counter only grows, and one huge number would hide
    all that is added to it later.
    """
    return min(max(0, tokens), _MOST_TOKENS)
