"""Joins the outputs of a run's shards into one, as if the run had not been sharded.

Tasks are in the order of the input, each with its repeats together, regardless of when they ended.
Each shard's journal has the order in which the shard began its tasks; the merge takes tasks from
the shards in turn. It reads one task of each shard at a time, so memory does not grow with the run.
Data that is not current (superseded rows, traces, logs) stays with the shards.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gymmesh_client.disk import cannot_write
from gymmesh_client.index import RunReader, open_run
from gymmesh_client.journal import Journal, NewOutcome
from gymmesh_client.log import latest_session
from gymmesh_client.log_records import COMPLETED, FAILED, RunEnded
from gymmesh_client.output.opening import check, make_folder_of
from gymmesh_client.output.options import OpenOptions
from gymmesh_client.output.run_output import make_index
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.run_file import (
    EnvironmentVersion,
    RunDocument,
    RunIdentity,
    changes,
    described,
    merged,
    read_run_file,
    session_info,
    source_changes,
    version_changes,
    write_document,
)
from gymmesh_client.safe_writes import write_whole
from gymmesh_client.summary import (
    RunSummary,
    Tally,
    counts_of,
    pass_at_each,
    summary_path,
    tasks_at_each,
    write_summary,
)
from gymmesh_client.tasks import Shard, shard_of
from gymmesh_responses import loads

# A commit costs two syncs, and its rows are in memory.
_ROWS_PER_COMMIT: Final = 512
_BYTES_PER_COMMIT: Final = 1 << 20
_NAMED: Final = 5
# Enough of a digest to tell two apart.
_DIGEST: Final = 12
_PARTS_OF_IDENTITY: Final = {
    "tasks": "task file",
    "config": "configuration",
    "version": "version of gymmesh",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A shard's output."""

    path: Path  # as it was named
    shard: Shard
    run_id: str  # of the run that it is a part of
    identity: RunIdentity  # what that run is made of
    tasks: int  # of all shards together
    repeats: int
    skipped: int  # rows of the task file that were left out
    asked: Mapping[str, Any]  # the arguments that are stored for resuming

    @staticmethod
    def of(path: Path) -> Part:
        """The shard with rows at this path. Raises UserError if there is no run, or one without
        shards, or if a collector is using it.
        """
        session = latest_session(OutputFiles(path))
        if session is None:
            raise UserError(
                f"{path} is in a folder without the run's journal. Pass the --output of each "
                "shard, and keep a shard's files together"
            )
        shard = shard_of(session)
        if shard is None:
            raise UserError(f"{path} was collected without --shard, so there is nothing to merge")
        return Part(
            path,
            shard,
            str(session["run_id"]),
            RunIdentity.of_session(session),
            session.get("tasks", 0),
            session.get("repeats", 1),
            session.get("skipped", 0),
            session.get("asked") or {},
        )


def merge(
    paths: Sequence[Path],
    files: OutputFiles,
    *,
    overwrite: bool = False,
    accept: Collection[str] = (),
    notify: Callable[[str], None] = lambda notice: None,
) -> RunSummary:
    """Join the outputs of all shards of a run, in any order; the shards are only read. Returns the
    figures of the whole run, which are also stored with it. With `overwrite` it replaces an
    existing run.

    Args:
        accept: how shards may differ: `environments` (their versions), or not at all.
        notify: called with each difference that was accepted, and with environments whose source
            files differ under one version; a sentence each. The whole's NAME.run.json has them.

    Raises:
        UserError: the outputs are not all shards of one run, each once and finished; one is
            damaged; or the output is refused, as by `gymmesh_client.output.check`.
        OutputError: the disk is full.

    If it ends early, no output is left, unless the process is killed.
    """
    parts = whole_run([Part.of(path) for path in paths], accept)
    identity = _whole_identity(parts)
    read = [file for part in parts for file in OutputFiles(part.path).everything()]
    inputs = {"runs merge": read}
    check(files, identity, OpenOptions(overwrite=overwrite, can_resume=False, inputs=inputs))
    with ExitStack() as stack:
        readers = [stack.enter_context(open_run(part.path)) for part in parts]
        for part, reader in zip(parts, readers, strict=True):
            _check_finished(part, reader)
        notices = [one for part in parts[1:] for one in _differences(parts[0], part)]
        counts = _write_whole(parts, readers, files, identity, notices)
    make_index(files)
    for notice in notices:
        notify(notice)
    return _keep_summary(counts, parts[0], files)


def _write_whole(
    parts: Sequence[Part],
    readers: Sequence[RunReader],
    files: OutputFiles,
    identity: RunIdentity,
    notices: Sequence[str],
) -> _Counts:
    """Write the rows and the journal of the whole, or nothing."""
    first = parts[0]
    make_folder_of(files)
    session = session_info(files, first.run_id, identity, first.repeats, first.skipped)
    session |= {"merged": len(parts)} | ({"notices": list(notices)} if notices else {})
    session |= {"asked": dict(first.asked)} if first.asked else {}
    with contextlib.closing(Journal.create(files, session)) as journal, ExitStack() as undo:
        undo.callback(_remove, files)
        counts = _write(journal, _groups(parts, readers))
        beside = OutputFiles(first.path)
        if first.skipped:
            _copy(beside.skipped, files.skipped)
        _copy(beside.task_lines, files.task_lines)
        _describe(parts, files, session, counts.tally)
        undo.pop_all()
    return counts


def whole_run(parts: Sequence[Part], accept: Collection[str] = ()) -> list[Part]:
    """The shards in order. Raises UserError unless they are all shards of one run, each once, with
    the same inputs except for accepted differences, as in `merge`.
    """
    first = parts[0]
    for part in parts[1:]:
        _check_same(first, part)
        _check_versions(first, part, accept)
    found: dict[int, Part] = {}
    for part in parts:
        other = found.setdefault(part.shard.index, part)
        if other is not part:
            raise UserError(
                f"{part.path} and {other.path} are both shard {part.shard} of the run; remove one "
                "of them"
            )
    missing = [str(Shard(at, first.shard.of)) for at in range(first.shard.of) if at not in found]
    if missing:
        named = ", ".join(missing[:_NAMED]) + (" …" if len(missing) > _NAMED else "")
        what = "shard" if len(missing) == 1 else f"{len(missing)} shards"
        raise UserError(
            f"run {first.run_id} is incomplete: the output of {what} {named} is missing. Pass "
            "this output, too. If a shard was never collected, collect it first"
        )
    return [found[index] for index in range(first.shard.of)]


def _check_same(first: Part, part: Part) -> None:
    """Raise UserError unless both are parts of one run."""
    pairs = [
        ("run", part.run_id, first.run_id),
        ("number of shards", part.shard.of, first.shard.of),
        ("number of repeats", part.repeats, first.repeats),
    ]
    pairs += [
        (what, getattr(part.identity, key)[:_DIGEST], getattr(first.identity, key)[:_DIGEST])
        for key, what in _PARTS_OF_IDENTITY.items()
        if key in part.identity.changes(first.identity)
    ]
    pairs += [
        ("number of tasks", part.tasks, first.tasks),
        ("number of skipped rows", part.skipped, first.skipped),
    ]
    for what, said, was in pairs:
        keys = _changed_keys(first, part) if what == _PARTS_OF_IDENTITY["config"] else ""
        if said != was and keys:
            raise UserError(
                f"{part.path} was collected with a different configuration than {first.path}: "
                f"{keys}. All shards of a run need the same configuration"
            )
        if said != was:
            raise UserError(
                f"{part.path} was collected with a different {what} ({said}) than {first.path} "
                f"({was}). All shards of a run need the same --run-id, task file, configuration "
                "and options"
            )


def _changed_keys(first: Part, part: Part) -> str:
    """The keys in which two shards' configurations differ; empty where that is not known."""
    known = [read_run_file(OutputFiles(one.path).run, one.run_id) for one in (first, part)]
    was, now = ((one.get("identity") or {}).get("configuration") for one in known)
    return described(changes(was, now)) if was is not None and now is not None else ""


def _check_versions(first: Part, part: Part, accept: Collection[str]) -> None:
    """Raise UserError where shards were judged by different versions, unless that is accepted."""
    found = version_changes(first.identity.environments, part.identity.environments)
    if found and "environments" not in accept:
        raise UserError(
            f"{part.path} was collected with a different version of an environment or its verifier "
            f"than {first.path} ({'; '.join(found)}). Collect this shard again with the same "
            "version, or merge anyway with --accept-change environments"
        )


def _differences(first: Part, part: Part) -> Iterator[str]:
    was, now = first.identity.environments, part.identity.environments
    for change in version_changes(was, now):
        yield f"merged although versions differ between {first.path} and {part.path}: {change}"
    for name in source_changes(was, now):
        yield (
            f"the source of environment {name!r} differs between {first.path} and {part.path}, "
            "but its version does not"
        )


def _whole_identity(parts: Sequence[Part]) -> RunIdentity:
    """What the whole run is made of: environments with the versions of all shards."""
    environments: dict[str, frozenset[EnvironmentVersion]] = {}
    for part in parts:
        for name, versions in part.identity.environments.items():
            environments[name] = environments.get(name, frozenset()) | versions
    return replace(parts[0].identity, environments=environments)


def _check_finished(part: Part, reader: RunReader) -> None:
    """Raise UserError unless each rollout of a shard has an outcome."""
    wanted = part.shard.share(part.tasks) * part.repeats
    missing = wanted - reader.completed - reader.failed
    if missing > 0:
        raise UserError(
            f"{part.path}: some rollouts of shard {part.shard} have no outcome ({missing} of "
            f"{wanted}). Run these rollouts with gym-cli collect --resume first"
        )
    if missing < 0:
        raise UserError(
            f"{part.path} has more rollouts than shard {part.shard} ({-missing} more than "
            f"{wanted}): the shard was started with another --limit. Collect the shard again "
            "with --overwrite"
        )


def _groups(parts: Sequence[Part], readers: Sequence[RunReader]) -> Iterator[Sequence[NewOutcome]]:
    """The outcomes of each task's repeats, task by task in the order of the whole."""
    streams = [reader.tasks() for reader in readers]
    for position in range(parts[0].tasks):
        at = position % len(parts)
        task_id = next(streams[at], None)
        group = [] if task_id is None else _group(readers[at], task_id, parts[at].repeats)
        if len(group) != parts[at].repeats:
            raise UserError(
                f"{parts[at].path}: the journal and the rows do not match. Restore both files "
                "from a copy, or collect the shard again with --overwrite"
            )
        yield group


def _group(reader: RunReader, task_id: str, repeats: int) -> list[NewOutcome]:
    """The outcomes that there are of a task's repeats."""
    group = []
    for repeat in range(repeats):
        name = reader.rollout_id(task_id, repeat)
        one = reader.outcome(name)
        if one is not None and one.row is not None:
            status = COMPLETED if one.outcome == "completed" else FAILED
            group.append(NewOutcome(rollout_key(name), one.attempt, status, one.boundary, one.row))
    return group


def _write(journal: Journal, groups: Iterable[Sequence[NewOutcome]]) -> _Counts:
    """Put outcomes on disk, and count them."""
    counts, waiting, size = _Counts(), list[NewOutcome](), 0
    for group in groups:
        counts.add(group)
        waiting += group
        size += sum(len(one.row) for one in group)
        if len(waiting) >= _ROWS_PER_COMMIT or size >= _BYTES_PER_COMMIT:
            journal.commit(waiting)
            waiting, size = [], 0
    if waiting:
        journal.commit(waiting)
    tally = counts.tally
    ended = {"completed": tally.completed, "failed": tally.failed, "interrupted": False, "why": ""}
    journal.commit([RunEnded(ended)])
    return counts


class _Counts:
    """A tally in which tasks stand by how their rollouts went, and not by their ids."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.tasks: Counter[tuple[int, int]] = Counter()  # (verified, solved) rollouts of a task

    def add(self, group: Sequence[NewOutcome]) -> None:
        """Count a task's outcomes."""
        for one in group:
            row = loads(one.row)
            if one.status == COMPLETED:
                self.tally.add_row(row, kept=True)
            else:
                self.tally.add_failure(row, kept=True)
        self.tasks.update((n, solved) for n, solved in self.tally.per_task.values())
        self.tally.per_task.clear()


def _keep_summary(counts: _Counts, whole: Part, files: OutputFiles) -> RunSummary:
    per_task = list(counts.tasks.elements())
    pass_at = pass_at_each(per_task, whole.repeats)
    summary = RunSummary(
        whole.tasks * whole.repeats,
        0.0,  # nothing was collected here
        counts.tally,
        pass_at,
        files.shown,
        str(files.failures),
        run_id=whole.run_id,
        skipped=whole.skipped,
        skipped_output=str(files.skipped),
        tasks=whole.tasks,
        pass_at_tasks=tasks_at_each(per_task, whole.repeats),
    )
    path = summary_path(files)
    try:
        write_summary(path, summary)
    except OSError as error:
        raise cannot_write(path, error) from None
    return summary


def _describe(
    parts: Sequence[Part], files: OutputFiles, session: dict[str, Any], tally: Tally
) -> None:
    """Write the whole's NAME.run.json, with what those of the shards say."""
    said = [read_run_file(OutputFiles(part.path).run, part.run_id) for part in parts]
    document = merged(RunDocument.begun(parts[0].run_id, session, {}), said)
    document.say(counts=counts_of(tally))
    document.end({"completed": tally.completed, "failed": tally.failed})
    write_document(files.run, document)


def _copy(there: Path, here: Path) -> None:
    """Keep a file of which every shard has the same, if it is there."""
    try:
        if there.exists():
            write_whole(here, there.read_bytes())
    except OSError as error:
        raise cannot_write(here, error) from None


def _remove(files: OutputFiles) -> None:
    """Take away an output that is not whole. The journal, by which the others are a run's, last."""
    for path in (*files.leftovers(), files.journal):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
