"""`import_file`: from other programs' files to a file of tasks or of rollouts."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from gymmesh_client.problems import UserError, unwritable
from gymmesh_client.safe_writes import OWNER_ONLY, make_folder, refuse_inputs, refuse_used, replaced
from gymmesh_data.exports import line_of
from gymmesh_data.imports.answers import refuse_no_answer
from gymmesh_data.imports.datasets import (
    Recipe,
    of_recipe,
    recipe_named,
    recipe_of,
    unknown_shape,
)
from gymmesh_data.imports.files import files_of, rows_of
from gymmesh_data.imports.imported import Imported, refuse_no_prompt, rollout_row, task_row
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.imports.sources import IMPORT_FORMATS, Columns, ImportRow
from gymmesh_data.rollout import Json, made_id
from gymmesh_responses import CodecError

_Note: TypeAlias = Callable[[str, str], tuple[int, str]]
_MOST_SENTENCES: Final = 20
_REFERENCE: Final = "reference_answer"
# Rows of a file that are looked at to tell which data set it is.
_LOOKED_AT: Final = 20

KNOWN: Final = "known"
"""The format of known data sets, recognised by their columns."""


@dataclass(frozen=True, slots=True)
class Imports:
    """How to read rows.

    Attributes:
        environment: the environment of tasks that name none; may be empty.
        made: whether rows become tasks or finished rollouts.
        skip_invalid: skip invalid rows instead of writing nothing.
        keep_prose: accept tasks whose expected answer is empty, or a text that no answer equals.
        problem: the key of a task row and why the row's environment rejects the row; None: the
            environment accepts the row or is unknown. For rows without a recipe, only problems of
            the expected answer count, because options of the environment may replace the other
            keys.
        dataset: for the format `known`, the recipe's name; empty: recognised by the columns.
    """

    columns: Columns = field(default_factory=Columns)
    environment: str = ""
    made: Literal["tasks", "rollouts"] = "tasks"
    skip_invalid: bool = False
    keep_prose: bool = False
    problem: Callable[[Json], tuple[str, str] | None] = lambda row: None
    dataset: str = ""


@dataclass(slots=True)
class ImportSummary:
    """The result of an import: the numbers of rows read and records written.

    Attributes:
        refused: rows that could not be imported.
        repeated: tasks that were already written for an earlier row.
        problems: the first problems of rows that could not be imported.
        datasets: the known data sets, with how many of their rows were read.
    """

    rows: int = 0
    records: int = 0
    refused: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)
    datasets: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def import_file(
    inputs: Sequence[Path],
    output: Path,
    name: str,
    options: Imports | None = None,
    *,
    overwrite: bool = False,
) -> ImportSummary:
    """Write the rows of other programs' files as tasks, or as rollouts.

    Rows are read one after another, except from JSON files that are one document. Facts about
    earlier tasks are kept on disk.

    Args:
        name: the name of the format, one of `IMPORT_FORMATS`, or `KNOWN`.
        overwrite: replace an existing output.

    With `skip_invalid`, NAME.skipped.jsonl in the output's folder has the skipped rows, each with
    its place and the reason.

    Raises:
        UserError: a row is invalid (and `skip_invalid` is off), a file is not of a known data set,
            or no environment judges its data set, a file cannot be read, or the output would
            overwrite a file.
        ConfigError: pyarrow is missing.
    """
    options, summary = options or Imports(), ImportSummary()
    skipped = output.with_name(f"{output.stem}.skipped.jsonl")
    refuse_inputs([output, skipped], {"the import": inputs})
    refuse_used(output, overwrite=overwrite)
    try:
        make_folder(output.parent)
        with replaced(output) as draft, replaced(skipped) as left_out:
            with _new(left_out) as refused, _new(draft) as file:
                for line in _lines(inputs, name, options, summary, refused):
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if summary.refused and not options.skip_invalid:
                raise UserError(_told(summary))
        if not summary.refused:
            skipped.unlink()
    except (OSError, sqlite3.Error) as error:
        raise unwritable(output, error) from None
    return summary


def _new(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, OWNER_ONLY), "wb")


def _lines(
    inputs: Sequence[Path], name: str, options: Imports, summary: ImportSummary, left_out: BinaryIO
) -> Iterator[bytes]:
    """The lines of an import; rows that cannot be taken go to `left_out`."""
    make = _rollout if options.made == "rollouts" else _task
    with _seen() as note:
        for path in (file for one in inputs for file in files_of(one)):
            read, rows = _reader(path, name, options, summary)
            for where, row in rows:
                summary.rows += 1
                try:
                    if isinstance(row, RowRefused):
                        raise row
                    if not isinstance(row, dict):
                        raise RowRefused("must be a JSON object")
                    line = make(read(row, options.columns), options, name, note)
                except (RowRefused, CodecError) as refused:
                    summary.refused += 1
                    left_out.write(line_of({"place": where, "reason": str(refused)}))
                    if len(summary.problems) < _MOST_SENTENCES:
                        summary.problems.append(f"{where}: {refused}")
                    continue
                if not line:
                    summary.repeated += 1
                elif options.skip_invalid or not summary.refused:
                    summary.records += 1
                    yield line


def _reader(
    path: Path, name: str, options: Imports, summary: ImportSummary
) -> tuple[ImportRow, Iterator[tuple[str, Any]]]:
    """How the rows of a file are read, and the rows. Raises UserError."""
    rows = rows_of(path)
    if name != KNOWN:
        return IMPORT_FORMATS[name], rows
    first = list(islice(rows, _LOOKED_AT))
    objects = [row for _, row in first if isinstance(row, dict)]
    recipe = recipe_named(options.dataset) if options.dataset else recipe_of(objects)
    if recipe is None:
        told = unknown_shape(objects[0]) if objects else "has no rows that are JSON objects"
        raise UserError(f"{path}: {told}")
    if recipe.refused:
        raise UserError(
            f"{path} is the data set {recipe.title}, which can't be imported. {recipe.refused}"
        )
    return partial(_of_known, recipe, summary), chain(first, rows)


def _of_known(recipe: Recipe, summary: ImportSummary, row: Json, columns: Columns) -> Imported:
    summary.datasets[recipe.name] = summary.datasets.get(recipe.name, 0) + 1
    return of_recipe(recipe, row, only_made=columns.only)


def _task(imported: Imported, options: Imports, name: str, note: _Note) -> bytes:
    """The line of a task; none for one that was there before, since repeats are collected."""
    said = [
        part["text"]
        for item in imported.output
        if item.get("role") == "assistant" and isinstance(item.get("content"), list)
        for part in item["content"]
    ]
    if said and imported.reward is None:
        # A demonstration of the data set: what a verifier may compare with.
        imported.payload.setdefault(_REFERENCE, said[-1])
    refuse_no_prompt(imported)
    row = task_row(imported, options.environment or imported.environment)
    if not options.keep_prose:
        if "expected_answer" in row:
            refuse_no_answer(row["expected_answer"], text=imported.text_answer)
        key, sentence = options.problem(row) or ("", "")
        if sentence and (imported.environment or key == "expected_answer"):
            raise RowRefused(f"{key}: {sentence}" if key else sentence)
    if imported.task_id:
        # Logs have a task's repeats, each with keys of its own; the conversation tells tasks apart.
        told = made_id(row["responses_create_params"])
        count, first = note(f"id {imported.task_id}", told)
        if first != told:
            raise RowRefused(f"task_id: another task already has the id {imported.task_id!r}")
    else:
        count, _ = note(f"row {made_id(row)}", "")
    return b"" if count else line_of(row)


def _rollout(imported: Imported, options: Imports, name: str, note: _Note) -> bytes:
    told = imported.task_id or made_id(task_row(imported, options.environment))
    count, _ = note(f"task {told}", "")
    row: Json = rollout_row(imported, options.environment, count, name)
    if imported.repeat is not None and note(f"repeat {imported.repeat} of {told}", "")[0]:
        raise RowRefused(
            f"repeat {imported.repeat} of task {told!r} already exists. Import each run separately"
        )
    return line_of(row)


@contextmanager
def _seen() -> Iterator[_Note]:
    """Gives a function that notes a key: how often it was noted before, and with what at first. It
    is kept on disk, so that memory is flat.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(Path(folder) / "seen.db", isolation_level=None)) as base,
    ):
        base.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE seen (key BLOB PRIMARY KEY, value TEXT, count INTEGER) WITHOUT ROWID;"
        )
        base.execute("BEGIN")

        def note(key: str, value: str) -> tuple[int, str]:
            count, first = base.execute(
                "INSERT INTO seen VALUES (?, ?, 0) ON CONFLICT (key) DO UPDATE "
                "SET count = count + 1 RETURNING count, value",
                (key.encode("utf-8", "surrogatepass"), value),
            ).fetchone()
            return int(count), str(first)

        yield note


def _told(summary: ImportSummary) -> str:
    lines, more = list(summary.problems), summary.refused - len(summary.problems)
    if more:
        lines.append(f"and {more} more")
    count = "1 invalid row" if summary.refused == 1 else f"{summary.refused} invalid rows"
    fix = f"{count}, so nothing was written. To skip invalid rows, add --skip-invalid"
    return "\n".join([*lines, fix])
