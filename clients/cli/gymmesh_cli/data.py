"""gym-cli data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from gymmesh_cli.exits import DONE, NOTHING_DONE, speaks_plainly
from gymmesh_cli.generate import generate
from gymmesh_cli.options import json_option
from gymmesh_cli.show import show, trace
from gymmesh_client.problems import TaskProblem
from gymmesh_client.tasks import TaskDefaults, TaskReader

_MOST: Final = 100
# Stand in for names that only a configuration could tell.
_ANY: Final = TaskDefaults("any", "any")


@click.group(short_help="Check and generate task files.")
def data() -> None:
    """Work with task files."""


data.add_command(generate)
data.add_command(show)
data.add_command(trace)


@data.command(short_help="Say which line and which key of a task file is wrong.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--config",
    "-c",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check the rows' environments and agents against this configuration, too.",
)
@json_option
@speaks_plainly
def validate(files: tuple[Path, ...], config: tuple[Path, ...], as_json: bool) -> int:
    """Say which line and which key of a task file is wrong.

    \b
      gym-cli data validate tasks.jsonl
      gym-cli data validate --config mesh.yaml tasks.jsonl more.jsonl

    Exit code 0 when every row is right, 1 when one is wrong.
    """
    reader = _reader(config)
    reports = [_check(reader, path, quiet=as_json) for path in files]
    if as_json:
        click.echo(json.dumps(reports))
    return NOTHING_DONE if any(report["problems"] for report in reports) else DONE


def _reader(config: tuple[Path, ...]) -> TaskReader:
    if not config:
        return TaskReader(_ANY)
    from gymmesh_cli.options import MeshOptions
    from gymmesh_cli.session import MeshPlan

    return MeshPlan.of(MeshOptions(config=config), ()).reader()


def _check(reader: TaskReader, path: Path, *, quiet: bool) -> dict[str, Any]:
    problems: list[dict[str, Any]] = []
    environments: Counter[str] = Counter()
    tasks = found = 0
    for entry in reader.read(path):
        if not isinstance(entry, TaskProblem):
            tasks += 1
            environments[entry.task.environment] += 1
            continue
        found += 1
        if found <= _MOST:
            problems.append({"line": entry.line, "key": entry.key, "problem": entry.sentence})
            if not quiet:
                click.echo(f"{path}: {entry}")
    if not tasks and not found:
        found = 1
        problems.append({"line": 0, "key": "", "problem": "holds no tasks"})
        if not quiet:
            click.echo(f"{path}: holds no tasks")
    elif not quiet:
        click.echo(_verdict(path, tasks, found))
    known = {name: count for name, count in environments.items() if name != _ANY.environment}
    return {
        "file": str(path),
        "tasks": tasks,
        "environments": dict(sorted(known.items())),
        "problem_count": found,
        "problems": problems,
    }


def _verdict(path: Path, tasks: int, found: int) -> str:
    if not found:
        return f"{path}: {tasks} tasks, all right"
    more = f" (the first {_MOST} are shown)" if found > _MOST else ""
    problems = "1 problem" if found == 1 else f"{found} problems"
    return f"{path}: {problems}{more}; {tasks} tasks are right"
