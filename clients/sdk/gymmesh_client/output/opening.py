"""A run's output is opened: refused, begun, or gone on with. `RunOutput.open` calls it."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gymmesh_client.disk import Disk, cannot_write, existing_locked
from gymmesh_client.journal import Journal
from gymmesh_client.log import latest_session
from gymmesh_client.log_records import FAILURES, ROWS, RunOpened
from gymmesh_client.output.foreign_files import refuse_foreign_files, set_aside_unreadable
from gymmesh_client.output.options import OpenOptions
from gymmesh_client.output.retry_choice import Retried, RetryChoice
from gymmesh_client.output.same_run import (
    check_collected,
    check_new_run,
    check_same_layout,
    check_same_run,
)
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import TaskProblem, UserError
from gymmesh_client.row_files import stored_rows
from gymmesh_client.run_file import (
    RunDocument,
    RunIdentity,
    read_run_file,
    session_info,
    write_document,
)
from gymmesh_client.safe_writes import make_folder, refuse_inputs, refuse_no_folder, write_whole
from gymmesh_client.tasks import session_of
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.text import os_reason

OnRow: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Called with a row that is kept."""


class Opened(NamedTuple):
    """A run's journal, its NAME.run.json, what a retry came to, and what the user should know."""

    journal: Journal
    about: RunDocument
    retried: Retried
    notices: Sequence[str]


def check(files: OutputFiles, identity: RunIdentity, options: OpenOptions) -> list[str]:
    """Check early whether an output would be rejected; changes nothing.

    Returns notes for the user about a resumed run, as `RunIdentity.check`.

    Raises:
        UserError: the output's folder cannot be created; a file of the output is also an input;
            another collector is writing the output; or the output is not empty and neither
            `overwrite` nor `resume` is given. With `overwrite`: the existing file is not a run's.
            With `resume`: there is no run, it is another run or shard, it is not one of
            `gym-cli collect` though `asked` is, or it has other tasks or another configuration,
            and `accept` does not name that difference.
    """
    refuse_no_folder(files.rows.parent)
    refuse_inputs(files.everything(), options.inputs)
    used = _filled(*files.all_shards(), files.failures, files.superseded)
    for path in (files.journal, *used):
        with existing_locked(path):
            pass  # no other collector is at work there
    notices: list[str] = []
    if options.resume:
        # A run that has no row yet has used attempts' numbers.
        if not used and not _filled(files.journal):
            raise UserError(
                f"{files.shown} does not exist, so there is nothing to resume; remove --resume"
            )
        session = latest_session(files)
        if session is None:
            raise UserError(
                f"{files.journal} is missing, so {files.rows} can't be resumed. Restore the "
                "journal from a copy, or choose another --output"
            )
        if options.asked:
            check_collected(files, session)
        check_same_run(files, session, options.run_id, options.shard)
        was = RunIdentity.of_session(session)
        notices = identity.check(was, files, options.accept, in_python=options.in_python)
        check_same_layout(files, session)
    elif used and not options.overwrite:
        raise UserError(
            f"{used[0]} already exists and is not empty. {_instead(options)}, or choose another "
            "output"
        )
    if not options.resume:
        refuse_foreign_files(files)
    if options.overwrite and options.run_id:
        check_new_run(files, options.run_id)
    return notices


def opened_output(
    files: OutputFiles,
    identity: RunIdentity,
    options: OpenOptions,
    on_row: OnRow,
    on_failure: OnRow,
) -> Opened:
    """Make a run's output ready; as `RunOutput.open`."""
    notices = check(files, identity, options)
    left_out = len({problem.line for problem in options.skipped})
    with contextlib.ExitStack() as undo:
        if options.resume:
            journal = Journal.resume(files)
            undo.callback(journal.close)
            retry = options.retry or RetryChoice()
            retried = retry.give_up(journal, options.retry_of, options.repeats)
            _kept(journal.files, on_row, on_failure)
            notices = [*notices, *_set_aside(journal.files)]
            _resumed(journal, identity, options, left_out, notices)
        else:
            make_folder_of(files)
            run_id = options.run_id or f"run-{uuid.uuid4().hex[:12]}"
            session = session_info(files, run_id, identity, options.repeats, left_out)
            part = session_of(options.shard, options.tasks) | _kept_request(options.asked)
            journal = Journal.create(files, session | part, Disk())
            undo.callback(journal.close)
            retried = Retried()
        _keep_skipped(journal.files, options.skipped)
        about = _explained(journal, identity)
        undo.pop_all()
    return Opened(journal, about, retried, notices)


def _set_aside(files: OutputFiles) -> list[str]:
    try:
        return set_aside_unreadable(files)
    except OSError as error:
        raise cannot_write(files.rows, error) from None


def _resumed(
    journal: Journal,
    identity: RunIdentity,
    options: OpenOptions,
    left_out: int,
    notices: Sequence[str],
) -> None:
    """Put down that another session begins."""
    was = journal.state.session
    most = max(options.repeats, int(was.get("repeats", 1)))
    whole = identity.after(RunIdentity.of_session(was))
    session = session_info(journal.files, str(was["run_id"]), whole, most, left_out)
    session["session"] = int(was.get("session", 1)) + 1
    session["notices"] = list(notices)
    part = session_of(options.shard, options.tasks)
    part |= _kept_request(options.asked or was.get("asked") or {})
    journal.commit([RunOpened(session | part)])


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
        raise UserError(f"{folder}: cannot be created: {os_reason(error)}") from None


def _kept(files: OutputFiles, on_row: OnRow, on_failure: OnRow) -> None:
    """Show the rows that are current."""
    for kind, take in ((ROWS, on_row), (FAILURES, on_failure)):
        for row in stored_rows(files, kind):
            try:
                take(loads(row.line))
            except (CodecError, AttributeError, KeyError, TypeError, ValueError) as error:
                raise UserError(f"{row.where}: not a rollout's row: {error}") from None


def _instead(options: OpenOptions) -> str:
    """What the user can do with an output that exists."""
    if options.in_python:
        return "Resume the run with resume=True"
    replace = "Resume the run with --resume, replace" if options.can_resume else "Replace"
    return f"{replace} the file with --overwrite"


def _filled(*paths: Path) -> list[Path]:
    """Those of the files that are there and not empty."""
    return [path for path in paths if path.exists() and path.stat().st_size]
