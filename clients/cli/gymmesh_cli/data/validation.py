"""What gym-cli data validate does: say which rows of task files are wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymmesh_cli.shared.task_choice import checked_rows
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, echo_json, one_line
from gymmesh_client.problems import TaskProblem
from gymmesh_client.tasks import TaskDefaults, TaskReader

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.task_checks import TaskChecks

_MOST: Final = 100
# Stand in for names that only a configuration could tell.
_ANY: Final = TaskDefaults("any", "any")


def validate_files(
    files: tuple[Path, ...], config: tuple[Path, ...], *, number_ids: bool, as_json: bool
) -> int:
    """Check each file's rows and print what is wrong with them; the exit code.

    `config`: the environments of these configurations are asked, too. Raises UserError for a file
    that cannot be read, ConfigError.
    """
    reader, checks = _reader(config)
    reader = replace(reader, number_repeated_ids=number_ids)
    reports = [_check(reader, path, checks, quiet=as_json) for path in files]
    for name, count in (checks.unable if checks else {}).items():
        rows = "1 row" if count == 1 else f"{count} rows"
        echo(
            f"environment {name}: its own check crashed on {rows}, which were therefore not "
            "checked; a rollout will show whether they are valid",
            err=True,
        )
    if as_json:
        echo_json(reports)
    return NOTHING_DONE if any(report["problems"] for report in reports) else DONE


def _reader(config: tuple[Path, ...]) -> tuple[TaskReader, TaskChecks | None]:
    if not config:
        return TaskReader(_ANY), None
    # Only now, as they import all services.
    from gymmesh_cli.options import MeshOptions
    from gymmesh_cli.shared.session import MeshPlan

    plan = MeshPlan.of(MeshOptions(config=config), ())
    return plan.reader(), plan.checks()


def _check(
    reader: TaskReader, path: Path, checks: TaskChecks | None, *, quiet: bool
) -> dict[str, Any]:
    problems: list[dict[str, Any]] = []
    environments: Counter[str] = Counter()
    found = 0
    for entry in checked_rows(reader, path, checks):
        if not isinstance(entry, TaskProblem):
            environments[entry.task.environment] += 1
            continue
        found += 1
        if found <= _MOST:
            problems.append({"line": entry.line, "key": entry.key, "problem": entry.sentence})
            if not quiet:
                echo(one_line(entry.at(path)))
    tasks = environments.total()
    if not tasks and not found:
        found = 1
        problems.append({"line": 0, "key": "", "problem": "no tasks found"})
        if not quiet:
            echo(f"{path}: no tasks found")
    elif not quiet:
        echo(_verdict(path, tasks, found, asked=checks is not None))
    known = {name: count for name, count in environments.items() if name != _ANY.environment}
    return {
        "file": str(path),
        "tasks": tasks,
        "environments": dict(sorted(known.items())),
        "problem_count": found,
        "problems": problems,
    }


def _verdict(path: Path, tasks: int, found: int, *, asked: bool) -> str:
    of = "1 task" if tasks == 1 else f"{tasks} tasks"
    if not found:
        return f"{path}: {of}, all right" + ("" if asked else "; --config asks environments, too")
    more = f" (showing the first {_MOST})" if found > _MOST else ""
    problems = "1 problem" if found == 1 else f"{found} problems"
    right = "1 task is" if tasks == 1 else f"{tasks} tasks are"
    return f"{path}: {problems}{more}; {right} right"
