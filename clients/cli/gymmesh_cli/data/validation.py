"""What gym-cli data validate does: say which rows of task files are wrong."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymmesh_cli.shared.task_choice import checked_rows
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, echo_json, one_line
from gymmesh_client.problems import TaskProblem
from gymmesh_client.tasks import TaskDefaults, TaskReader
from gymmesh_responses import dumps

if TYPE_CHECKING:
    from gymmesh_cli.shared.session import MeshPlan
    from gymmesh_mesh.authoring.task_checks import TaskChecks

_MOST: Final = 100
# Stand in for names that only a configuration could tell.
_ANY: Final = TaskDefaults("any", "any")


def validate_files(
    files: tuple[Path, ...], config: tuple[Path, ...], *, number_ids: bool, as_json: bool
) -> int:
    """Check each file's rows and print what is wrong with them; the exit code.

    `files`: none: the example tasks of the default environment. `config`: the environments of
    these configurations are asked, too. Raises UserError for a file that cannot be read,
    ConfigError.
    """
    plan = _plan(config)
    reader = TaskReader(_ANY) if plan is None else plan.reader()
    reader = replace(reader, number_repeated_ids=number_ids)
    checks = None if plan is None else plan.checks()
    if files or plan is None:
        reports = [_check(reader, path, checks, str(path), quiet=as_json) for path in files]
    else:
        with _examples_file(plan) as path:
            reports = [_check(reader, path, checks, plan.examples_name, quiet=as_json)]
    for name, count in (checks.unable if checks else {}).items():
        rows = "1 row" if count == 1 else f"{count} rows"
        echo(
            (
                f"environment {name}: check_task crashed on {rows}, so the check of these "
                "rows is incomplete. A rollout of each row will show whether the row is valid"
            ),
            err=True,
        )
    if as_json:
        echo_json(reports)
    return NOTHING_DONE if any(report["problems"] for report in reports) else DONE


def _plan(config: tuple[Path, ...]) -> MeshPlan | None:
    if not config:
        return None
    # Only now, as they import all services.
    from gymmesh_cli.options import MeshOptions
    from gymmesh_cli.shared.session import MeshPlan

    return MeshPlan.of(MeshOptions(config=config), ())


@contextlib.contextmanager
def _examples_file(plan: MeshPlan) -> Iterator[Path]:
    """A file with the example tasks of the default environment. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.jsonl"
        path.write_bytes(b"".join(dumps(row) + b"\n" for row in plan.examples()))
        yield path


def _check(
    reader: TaskReader, path: Path, checks: TaskChecks | None, name: str, *, quiet: bool
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
                echo(one_line(entry.at(name)))
    tasks = environments.total()
    if not tasks and not found:
        found = 1
        problems.append({"line": 0, "key": "", "problem": "no tasks found"})
        if not quiet:
            echo(f"{name}: no tasks found")
    elif not quiet:
        echo(_verdict(name, tasks, found, asked=checks is not None))
    known = {name: count for name, count in environments.items() if name != _ANY.environment}
    return {
        "file": name,
        "tasks": tasks,
        "environments": dict(sorted(known.items())),
        "problem_count": found,
        "problems": problems,
    }


def _verdict(name: str, tasks: int, found: int, *, asked: bool) -> str:
    of = "1 task" if tasks == 1 else f"{tasks} tasks"
    if not found:
        return f"{name}: {of}, all valid" + (
            "" if asked else ("; to check the rows with the environments, add --config FILE")
        )
    more = f" (showing the first {_MOST})" if found > _MOST else ""
    problems = "1 problem" if found == 1 else f"{found} problems"
    right = "1 task is" if tasks == 1 else f"{tasks} tasks are"
    return f"{name}: {problems}{more}; {right} valid"
