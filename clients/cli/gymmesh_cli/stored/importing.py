"""gym-cli import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from gymmesh_cli.options import FILE, json_option
from gymmesh_cli.terminal import DONE, NOTHING_DONE, WITH_FAILURES, echo, one_line, report

if TYPE_CHECKING:
    from gymmesh_data.imports import ImportSummary

_KNOWN: Final = "known"
_FORMATS: Final = (_KNOWN, "hf", "messages", "openai-evals", "verifiers", "inspect")


@click.command("import")
@click.argument("inputs", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "-f",
    "name",
    type=click.Choice(_FORMATS),
    default=_KNOWN,
    show_default=True,
    help="Format of the input files. The list Formats above explains the formats.",
)
@click.option(
    "--dataset",
    default="",
    metavar="NAME",
    help=(
        "With --format known: name of the data set. Default: the command recognizes the "
        "data set by the columns."
    ),
)
@click.option("--output", "-o", required=True, type=FILE, help="Write JSON lines to this file.")
@click.option(
    "--as",
    "made",
    type=click.Choice(("tasks", "rollouts")),
    default="tasks",
    show_default=True,
    help=(
        "tasks: write tasks for `gym-cli collect`. rollouts: write finished rollouts to "
        "inspect and rescore."
    ),
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="KEY=COLUMN",
    help=(
        "With --format hf or openai-evals: read the task's KEY from this column of the "
        "file. KEY is `input`, `system`, `tools`, `task_id` or another key of the task. "
        "Repeatable."
    ),
)
@click.option("--only-columns", is_flag=True, help="Drop all columns that no --column names.")
@click.option(
    "--score",
    default="",
    metavar="NAME",
    help="If the rows have several scores: use the score of this name as the reward.",
)
@click.option(
    "--env",
    "environment",
    default="",
    metavar="NAME",
    help=("Name of the environment for rows that don't name an environment."),
)
@click.option(
    "--keep-prose",
    is_flag=True,
    help=(
        "Also accept expected answers that are prose (a sentence or more). Use this "
        "option for environments with a judge model."
    ),
)
@click.option("--skip-invalid", is_flag=True, help="Skip invalid rows.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@json_option
def import_(
    inputs: tuple[Path, ...],
    name: str,
    dataset: str,
    output: Path,
    made: Literal["tasks", "rollouts"],
    columns: tuple[str, ...],
    only_columns: bool,
    score: str,
    environment: str,
    keep_prose: bool,
    skip_invalid: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Import tasks or rollouts from other programs' files.

    \b
      gym-cli import gsm8k.parquet --output tasks.jsonl
      gym-cli import train.parquet --format hf --column input=problem \\
          --column expected_answer=answer --env math --output tasks.jsonl
      gym-cli import log.eval --format inspect --as rollouts --output rollouts.jsonl

    If the answer in a file is a worked solution, the expected answer is the final answer (after
    ####, or in \\boxed{}). A multiple choice question becomes a task of the environment `mcqa`. The
    command rejects a row whose expected answer is empty or prose. If the row's environment is
    installed, the environment also checks the expected answer.

    FILE is a file of JSON lines, JSON, Parquet or CSV, a log of Inspect (.eval), or a folder of
    such files.

    \b
    Formats:
      known         public data sets (GSM8K, MATH, ARC, MMLU, HumanEval, IFEval and others),
                    recognized by the columns; each task names the environment
      hf            rows of any data set of the Hugging Face Hub; see --column
      messages      rows with messages, or with prompt and completion
      openai-evals  items of OpenAI's evals, with or without the sampled answers
      verifiers     the file results.jsonl of the library verifiers
      inspect       logs of the framework Inspect

    If a row is invalid, the command reports the file and the line of the row, and writes nothing.
    With --skip-invalid, the command skips and counts invalid rows. The command writes duplicate
    tasks once.

    With --format known, if no data set matches the columns of a file, the command prints these
    columns and the nearest data sets.

    Exit code 0: all rows were imported. 3: some rows were skipped. 1: no row was written.
    """
    from gymmesh_data.imports import Columns, Imports, import_file

    names = dict[str, str]()
    for one in columns:
        key, sign, column = one.partition("=")
        if not (key and sign and column):
            raise click.UsageError(f"--column {one}: expected KEY=COLUMN, such as input=question")
        names[key] = column
    if name == _KNOWN and (names or score):
        raise click.UsageError("--column and --score need another --format, such as hf")
    if dataset and name != _KNOWN:
        raise click.UsageError(f"--dataset needs --format {_KNOWN}")
    options = Imports(
        Columns(names, only_columns, score),
        environment,
        made,
        skip_invalid,
        keep_prose,
        dataset=dataset,
    )
    if made == "tasks" and not keep_prose:
        options = replace(options, problem=_problem_of_rows())
    summary = import_file(inputs, output, name, options, overwrite=overwrite)
    for problem in () if as_json else summary.problems:
        echo(one_line(problem), err=True)
    report(as_json, summary.to_dict(), _lines(summary, made, output))
    if not summary.records:
        return NOTHING_DONE
    return WITH_FAILURES if summary.refused else DONE


def _problem_of_rows() -> Callable[[dict[str, Any]], tuple[str, str] | None]:
    """What the installed environments have against their rows: a key and a sentence."""
    from gymmesh_mesh.authoring.task_checks import TaskChecks
    from gymmesh_runtime.config import ConfigError

    checks = TaskChecks.of_installed()

    def problem(row: dict[str, Any]) -> tuple[str, str] | None:
        try:
            return checks.row_problem(row)
        except ConfigError:  # it needs options, or another package
            return None

    return problem


def _lines(summary: ImportSummary, made: str, output: Path) -> Iterator[str]:
    yield f"rows          {summary.rows} read"
    for name, count in summary.datasets.items():
        yield f"data set      {name}, {count} row{'' if count == 1 else 's'}"
    yield f"{made:<13} {summary.records} in {output}"
    if summary.repeated:
        yield f"repeated      {summary.repeated} skipped: the same task was already written"
    if summary.refused:
        yield f"skipped       invalid rows: {summary.refused}"
