"""A run's output: made ready, gone on with, and written to.

`prepare` opens it, and says what is done already; the collector then reserves attempts, writes
outcomes and closes it. See gymmesh_client.journal for how it stays whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from gymmesh_client.journal.compaction import compact
from gymmesh_client.journal.disk import Disk, cannot_write, existing_locked
from gymmesh_client.journal.foreign_files import refuse_foreign_files
from gymmesh_client.journal.format.keys import rollout_id, rollout_ids, rollout_key
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.format.records import (
    COMPLETED,
    FAILED,
    FAILURES,
    ROWS,
    AttemptFailed,
    Released,
    Reserved,
    RunEnded,
    RunOpened,
)
from gymmesh_client.journal.index.index import open_index
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.journal.log import latest_session
from gymmesh_client.journal.stored_rows import stored_rows
from gymmesh_client.journal.writer import COMMIT_DELAY_S, JournalWriter
from gymmesh_client.output.retry_choice import Retried, RetryChoice
from gymmesh_client.output.same_run import check_new_run, check_same_layout, check_same_run
from gymmesh_client.problems import TaskProblem, UserError
from gymmesh_client.replacing import (
    make_folder,
    refuse_inputs,
    refuse_no_folder,
    write_whole,
)
from gymmesh_client.run_file import (
    RunDocument,
    RunIdentity,
    read_run_file,
    session_info,
    write_document,
)
from gymmesh_client.tasks import Shard, session_of, shard_of
from gymmesh_client.traces import AttemptRecording, TraceWriter
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.text import os_reason

J = TypeVar("J")

_BLOCK: Final = 256
_OnRow = Callable[[Mapping[str, Any]], None]


class RunOutput:
    """Where a run's outcomes go; made by `prepare`, used by one collector, from one event loop.

    What writes returns once it is on disk, and goes on when its caller is cancelled meanwhile; it
    raises OutputError when the disk takes nothing more.

    Attributes:
        run_id: the run's id; the same when it is resumed.
        files: where its files are.
        shard: which part of the run this is; None: all of it.
        retried: outcomes superseded because a retry was asked for.
        notices: what the user should know of a run that is resumed, a sentence each.
        not_retried: outcomes that the retry names and that stay, since their rollouts are not
            asked for.
        traced: whether every event is kept.
        on_row: called with each row once it is on disk, and whether its rollout completed.
        closed: whether all is written.
    """

    def __init__(
        self,
        journal: Journal,
        about: RunDocument,
        retried: Retried,
        traces: TraceWriter | None,
        *,
        delay_s: float,
        notices: Sequence[str] = (),
    ) -> None:
        self.notices = notices
        self.run_id = str(journal.state.session["run_id"])
        self.files = journal.files
        self.shard = shard_of(journal.state.session)
        self.retried = retried.superseded
        self.not_retried = retried.left
        self._journal = journal
        self._writer = JournalWriter(journal, delay_s=delay_s)
        self._traces = traces
        self.traced = traces is not None
        self.on_row: Callable[[bytes, bool], None] = lambda row, completed: None
        self.closed = False
        self._about = about
        self._unsent: dict[bytes, int] = {}
        self._closed = False

    @property
    def outcomes(self) -> int:
        """How many rollouts have a current outcome on disk."""
        return sum(self._journal.state.counts.values())

    def rollout_id(self, task_id: str, repeat_index: int) -> str:
        """The id of a rollout of this run."""
        return rollout_id(self.run_id, task_id, repeat_index)

    def rollout_ids(self, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
        """The ids of several repeats of a task, in their order."""
        return rollout_ids(self.run_id, task_id, repeats)

    def has_outcome(self, task_id: str, repeat_index: int) -> bool:
        """Whether the rollout has a current outcome on disk, completed or failed."""
        return self.is_done(self.rollout_id(task_id, repeat_index))

    def has_completed(self, task_id: str, repeats: int) -> bool:
        """Whether any repeat of the task is completed on disk; there are so many, or were more."""
        state = self._journal.state
        most = max(repeats, int(state.session.get("repeats", 1)))
        names = self.rollout_ids(task_id, range(most))
        return any(state.status(rollout_key(name)) == COMPLETED for name in names)

    def is_done(self, rollout: str) -> bool:
        """As `has_outcome`, by the rollout's id."""
        return bool(self._journal.state.status(rollout_key(rollout)))

    def reserving(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str]
    ) -> Iterator[tuple[J, int]]:
        """Number the first attempt of each job, so that no number is ever used twice.

        The numbers are on disk before the jobs are handed out. They are reserved in blocks, a
        block ahead, so that usually nobody waits for the disk.
        """
        block = self._block(jobs, rollout_of)
        while block is not None:
            numbered, reserved = block
            reserved.result()
            block = self._block(jobs, rollout_of)
            for job, (key, attempt) in numbered:
                self._unsent.pop(key, None)
                yield job, attempt

    async def completed(self, rollout: str, attempt: int, row: bytes) -> None:
        """Write a completed rollout's row, a line of JSON. Raises ValueError where the rollout has
        an outcome already.
        """
        await self._writer.append(NewOutcome(rollout_key(rollout), attempt, COMPLETED, 0, row))
        self.on_row(row, True)

    async def failed(self, rollout: str, attempt: int, boundary: int, row: bytes) -> None:
        """Write a failed rollout's row; as `completed`."""
        outcome = NewOutcome(rollout_key(rollout), attempt, FAILED, boundary, row)
        await self._writer.append(outcome)
        self.on_row(row, False)

    async def reserve(self, rollout: str, attempt: int) -> None:
        """Use up the number of a further attempt; returns when it may be sent."""
        await self._writer.append(Reserved(((rollout_key(rollout), attempt),)))

    async def tried(self, rollout: str, attempt: int, boundary: int) -> None:
        """Note that an attempt failed and that it is not the rollout's outcome."""
        await self._writer.append(AttemptFailed(rollout_key(rollout), attempt, boundary))

    async def recording(self, rollout: str, attempt: int) -> AttemptRecording:
        """Where an attempt's events go, once the trace, which there must be, is not too far
        behind.
        """
        assert self._traces is not None
        await self._traces.room()
        return self._traces.record(rollout, attempt)

    def describe(self, **parts: Any) -> None:
        """Say more of the run in NAME.run.json, under these keys; see `gymmesh_client.run_file`.
        What is secret in it by its name or form is left out.
        """
        if not self._closed:
            self._about.say(**parts)
            write_document(self.files.run, self._about)

    async def close(self, *, seen: Mapping[str, Any] = MappingProxyType({}), **ended: Any) -> None:
        """Write what is waiting and how the run ended (JSON values), take superseded rows out of
        their files, and close. Idempotent. `seen`: more for NAME.run.json, as for `describe`.
        Raises UserError where a file from which a superseded row should go is damaged.
        """
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        try:
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close)
            left = tuple(self._unsent.items())
            self._journal.commit([*([Released(left)] if left else []), RunEnded(ended)])
            self._about.say(**seen)
            self._about.end(ended)
            write_document(self.files.run, self._about)
            await asyncio.to_thread(compact, self._journal)
        finally:
            self._journal.close()
            self.closed = True
        if not ended.get("interrupted"):
            await asyncio.to_thread(make_index, self.files)

    def abandon(self) -> None:
        """Close an output to which nothing was written. Idempotent."""
        if not self._closed:
            self._closed = True
            self._journal.close()
            if self._traces is not None:
                self._traces.close()

    def _block(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str]
    ) -> tuple[list[tuple[J, tuple[bytes, int]]], Future[None]] | None:
        block = list(islice(jobs, _BLOCK))
        if not block:
            return None
        used = self._journal.state.attempt
        keys = [rollout_key(rollout_of(job)) for job in block]
        numbered = tuple([(key, used(key) + 1) for key in keys])
        self._unsent.update(numbered)
        reserved = self._writer.submit([Reserved(numbered)])
        return list(zip(block, numbered, strict=True)), reserved


def check(
    files: OutputFiles,
    identity: RunIdentity,
    *,
    overwrite: bool,
    resume: bool,
    accept: Collection[str] = (),
    inputs: Mapping[str, Iterable[Path]] = MappingProxyType({}),
    run_id: str = "",
    shard: Shard | None = None,
) -> list[str]:
    """Say early whether `prepare` would refuse; changes nothing.

    Returns what the user should know of a run that is resumed, as `RunIdentity.check`.

    Args:
        inputs: the files that the run reads, by what they are to the user, such as `--input`.
        run_id: the run's id, as `is_run_id` has it; empty: one that is made up, or that of the run
            gone on with.
        shard: which part of the run it is; None: all of it.

    Raises:
        UserError: the output's folder cannot be made; a file of the output is also an input;
            another collector is at work; the output is not empty and neither flag is given; it is
            to be replaced and is no run's; or it is to be resumed and is not there, is another run
            or shard, or one of other tasks or another configuration, which `accept` does not name.
    """
    refuse_no_folder(files.rows.parent)
    refuse_inputs(files.everything(), inputs)
    used = _filled(*files.all_shards(), files.failures, files.superseded)
    for path in (files.journal, *used):
        with existing_locked(path):
            pass  # no other collector is at work there
    notices: list[str] = []
    if resume:
        # A run that has no row yet has used attempts' numbers.
        if not used and not _filled(files.journal):
            raise UserError(
                f"{files.shown}: is not there, so there is nothing to go on with; "
                "leave out --resume"
            )
        session = latest_session(files)
        if session is None:
            raise UserError(f"{files.journal}: is missing, so {files.rows} cannot be resumed")
        check_same_run(files, session, run_id, shard)
        notices = identity.check(RunIdentity.of_session(session), files, accept)
        check_same_layout(files, session)
    elif used and not overwrite:
        raise UserError(
            f"{used[0]}: is there already and not empty; "
            "go on with --resume, replace it with --overwrite, or choose another --output"
        )
    refuse_foreign_files(files, resuming=resume)
    if overwrite and run_id:
        check_new_run(files, run_id)
    return notices


def prepare(
    files: OutputFiles,
    identity: RunIdentity,
    *,
    overwrite: bool,
    resume: bool,
    accept: Collection[str] = (),
    retry: RetryChoice | None = None,
    retry_of: Collection[str] | None = None,
    repeats: int = 1,
    skipped: Sequence[TaskProblem] = (),
    inputs: Mapping[str, Iterable[Path]] = MappingProxyType({}),
    run_id: str = "",
    shard: Shard | None = None,
    tasks: int = 0,
    asked: Mapping[str, Any] = MappingProxyType({}),
    trace: bool = False,
    delay_s: float = COMMIT_DELAY_S,
    on_row: _OnRow = lambda row: None,
    on_failure: _OnRow = lambda row: None,
) -> RunOutput:
    """Make a run's output ready, and say what is done already.

    Args:
        accept: what may have changed since, keys of `gymmesh_client.run_file.identity.CHANGES`.
        retry: outcomes to give up on when the run is resumed, so that those rollouts run again.
        retry_of: the tasks that are asked for, with so many repeats each; outcomes of other
            rollouts would be given up and not come again, so they stay. None: all may be given up.
        repeats: rollouts per task.
        skipped: why rows of the task file were left out; kept beside the run.
        inputs: as for `check`; `run_id` and `shard` likewise.
        asked: what the run was asked for, kept for a resumption, without secrets; empty: what an
            earlier session kept.
        tasks: of a shard: how many tasks all shards have together.
        trace: whether to keep every event.
        delay_s: the most seconds that an outcome waits for others to share its commit.
        on_row: called with each completed row that is kept.
        on_failure: called with each failed row that is kept.

    Raises:
        UserError: as `check`; or what is to be kept is damaged.
        OutputError: the disk takes nothing.
    """
    flags = {"overwrite": overwrite, "resume": resume}
    notices = check(
        files, identity, **flags, accept=accept, inputs=inputs, run_id=run_id, shard=shard
    )
    left_out = len({problem.line for problem in skipped})
    part = session_of(shard, tasks)
    with contextlib.ExitStack() as undo:
        if resume:
            journal = Journal.resume(files)
            undo.callback(journal.close)
            retried = (retry or RetryChoice()).give_up(journal, retry_of, repeats)
            _kept(journal.files, on_row, on_failure)
            was = journal.state.session
            most = max(repeats, int(was.get("repeats", 1)))
            part |= _kept_request(asked or was.get("asked") or {})
            whole = identity.after(RunIdentity.of_session(was))
            session = session_info(journal.files, str(was["run_id"]), whole, most, left_out)
            session["session"] = int(was.get("session", 1)) + 1
            session["notices"] = notices
            journal.commit([RunOpened(session | part)])
        else:
            make_folder_of(files)
            run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"
            session = session_info(files, run_id, identity, repeats, left_out)
            part |= _kept_request(asked)
            journal = Journal.create(files, session | part, Disk())
            undo.callback(journal.close)
            retried = Retried()
        _keep_skipped(journal.files, skipped)
        about = _explained(journal, identity)
        traces = TraceWriter(journal.files.trace) if trace else None
        undo.pop_all()
    return RunOutput(journal, about, retried, traces, delay_s=delay_s, notices=notices)


def _kept_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"asked": dict(asked)} if asked else {}


def _explained(journal: Journal, identity: RunIdentity) -> RunDocument:
    """Write NAME.run.json, as a session begins, and NAME.tasks. Raises OutputError."""
    files, session = journal.files, journal.state.session
    run_id = str(session["run_id"])
    earlier = read_run_file(files.run, run_id) if int(session["session"]) > 1 else {}
    document = RunDocument.begun(run_id, session, earlier)
    made_of = identity.made_of
    if made_of is not None:
        content = document.content
        content["identity"]["configuration"] = made_of.configuration
        content["configuration"] = made_of.configuration  # unless more of it is said
        content["tasks"] = {"path": str(made_of.path), "sha256": identity.tasks}
        try:
            made_of.lines.write(files.task_lines)
        except OSError as error:
            raise cannot_write(files.task_lines, error) from None
    write_document(files.run, document)
    return document


def _keep_skipped(files: OutputFiles, skipped: Sequence[TaskProblem]) -> None:
    """Write why rows of the task file were left out, a line for each reason."""
    try:
        if not skipped:
            files.skipped.unlink(missing_ok=True)
            return
        fields = [{"line": one.line, "key": one.key, "problem": one.sentence} for one in skipped]
        write_whole(files.skipped, "".join(json.dumps(one) + "\n" for one in fields))
    except OSError as error:
        raise cannot_write(files.skipped, error) from None


def make_folder_of(files: OutputFiles) -> None:
    """Make the folder of a run's files where it is missing. Raises UserError."""
    folder = files.rows.parent
    try:
        make_folder(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {os_reason(error)}") from None


def make_index(files: OutputFiles) -> None:
    """Make it now, so that the first look-up need not wait."""
    with contextlib.suppress(OSError, UserError):  # a look-up makes it then, or says why not
        open_index(files).close()


def _kept(files: OutputFiles, on_row: _OnRow, on_failure: _OnRow) -> None:
    """Show the rows that are current."""
    for kind, take in ((ROWS, on_row), (FAILURES, on_failure)):
        for row in stored_rows(files, kind):
            try:
                take(loads(row.line))
            except (CodecError, AttributeError, KeyError, TypeError, ValueError) as error:
                raise UserError(f"{row.where}: is not a rollout's row: {error}") from None


def _filled(*paths: Path) -> list[Path]:
    """Those of the files that are there and not empty."""
    return [path for path in paths if path.exists() and path.stat().st_size]
