"""gym-cli data harbor: write tasks as task folders of Harbor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import click

from gymmesh_cli.options import FILE, json_option
from gymmesh_cli.terminal import DONE, NOTHING_DONE, WITH_FAILURES, echo, one_line, report

_NAME: Final = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*")


@click.command(short_help="Export tasks as Harbor task folders.")
@click.argument("tasks", type=FILE)
@click.option(
    "--config",
    "-c",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML file of the configuration with the environments of the tasks.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the task folders here. The folder must be new or empty.",
)
@json_option
def harbor(tasks: Path, config: tuple[Path, ...], output: Path, as_json: bool) -> int:
    """Export each task as a task folder of Harbor (a format for agent benchmarks). The tests in the
    folder compute the same reward as the environment.

    \b
      gym-cli data harbor tasks.jsonl --config mesh.yaml --output suite

    The command exports tasks of environments that score with commands in a sandbox, such as the
    environment `workspace`. For each task that can't be exported, the command reports the line and
    the key. The name of each folder is the task_id.

    Exit code 0: all tasks were written. 3: some tasks were written. 1: no task was written.
    """
    # Only now, as they import all services.
    from gymmesh_cli.options import MeshOptions
    from gymmesh_cli.shared.session import MeshPlan
    from gymmesh_client import TaskProblem, UserError

    if output.exists() and any(output.iterdir()):
        raise UserError(f"{output} already exists and is not empty. Choose another --output")
    plan = MeshPlan.of(MeshOptions(config=config), ())
    checks = plan.checks()
    assert checks is not None  # there is a configuration
    written, problems = 0, 0
    for entry in plan.reader().read(tasks):
        problem = entry if isinstance(entry, TaskProblem) else None
        if not isinstance(entry, TaskProblem):
            name = entry.task.task_id
            made = checks.harbor_folder(entry.task)
            if isinstance(made, tuple):
                problem = TaskProblem(entry.line, *made)
            elif not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts:
                problem = TaskProblem(
                    entry.line, "task_id", (f"{name!r} is not a valid folder name")
                )
            else:
                _write(output / name, made)
                written += 1
        if problem is not None:
            problems += 1
            echo(one_line(problem.at(tasks)), err=True)
    folders = "1 task folder" if written == 1 else f"{written} task folders"
    report(
        as_json,
        {"written": written, "problems": problems},
        [f"{output}: {folders}" + (f", tasks not exported: {problems}" if problems else "")],
    )
    if not written:
        return NOTHING_DONE
    return WITH_FAILURES if problems else DONE


def _write(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    for path, (content, mode) in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
