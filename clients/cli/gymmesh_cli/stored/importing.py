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
    "--format", "-f", "name", type=click.Choice(_FORMATS), default=_KNOWN, show_default=True
)
@click.option(
    "--dataset",
    default="",
    metavar="NAME",
    help="known: which data set the files are of; by default their columns tell.",
)
@click.option("--output", "-o", required=True, type=FILE, help="The file to write: JSON lines.")
@click.option(
    "--as",
    "made",
    type=click.Choice(("tasks", "rollouts")),
    default="tasks",
    show_default=True,
    help="Tasks for gym-cli collect, or finished rollouts to look at and judge again.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="KEY=COLUMN",
    help="hf, openai-evals: which column is which key: input, system, tools, task_id, or any key "
    "of the task; may be given several times.",
)
@click.option("--only-columns", is_flag=True, help="Leave out columns that no --column names.")
@click.option("--score", default="", metavar="NAME", help="Which score is the reward.")
@click.option(
    "--env", "environment", default="", metavar="NAME", help="The environment of all tasks."
)
@click.option(
    "--keep-prose",
    is_flag=True,
    help="Take expected answers that are sentences or longer: for an environment in which a model "
    "judges.",
)
@click.option("--skip-invalid", is_flag=True, help="Leave out rows that cannot be taken.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
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
    """Make tasks or rollouts of other programs' files.

    \b
      gym-cli import gsm8k.parquet --output tasks.jsonl
      gym-cli import train.parquet --format hf --column input=problem \\
          --column expected_answer=answer --env math --output tasks.jsonl
      gym-cli import log.eval --format inspect --as rollouts --output rollouts.jsonl

    A worked solution gives its final answer (behind ####, or in \\boxed{}), a multiple choice
    question becomes a task of mcqa. An expected answer that is empty or a text is refused, and so
    is one that the row's environment refuses, where that is installed.

    FILE is JSON lines, JSON, Parquet, CSV, a log of Inspect (.eval), or a folder of these.

    \b
    Formats:
      known         public data sets (GSM8K, MATH, ARC, MMLU, HumanEval, IFEval and others), told
                    by their columns; each task names the environment that judges it
      hf            rows of a data set, such as the Hugging Face Hub has them
      messages      rows of messages, or of prompt and completion, as trainers have them
      openai-evals  items of OpenAI's evals, with or without their samples
      verifiers     results.jsonl of verifiers
      inspect       logs of Inspect

    A row that cannot be taken is named with its place, and nothing is written; with --skip-invalid
    such rows are left out and counted. Of a task that stands there several times one is written.

    A file of no known data set is shown with its columns, the nearest data sets, and a question.

    Exit code 0 when all rows were taken, 3 when some were left out, 1 when none was written.
    """
    from gymmesh_data.imports import Columns, Imports, import_file

    names = dict[str, str]()
    for one in columns:
        key, sign, column = one.partition("=")
        if not (key and sign and column):
            raise click.UsageError(f"--column {one}: must be KEY=COLUMN, such as input=question")
        names[key] = column
    if name == _KNOWN and (names or score):
        raise click.UsageError("--column and --score go with another --format, such as hf")
    if dataset and name != _KNOWN:
        raise click.UsageError(f"--dataset goes with --format {_KNOWN}")
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
        yield f"data set      {name}, {count} rows"
    yield f"{made:<13} {summary.records} in {output}"
    if summary.repeated:
        yield f"repeated      {summary.repeated}, of tasks that are there already"
    if summary.refused:
        yield f"left out      {summary.refused} that cannot be taken"
