"""gym-cli env: start an environment, try it out, list them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.environments.audit import audit
from gymmesh_cli.environments.index import index
from gymmesh_cli.environments.mcp import mcp
from gymmesh_cli.environments.task_files import tasks_of
from gymmesh_cli.options import MeshOptions, json_option, mesh_options, tasks_option
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, echo_json, one_line, report

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.environments import About, Finding


@click.group()
def env() -> None:
    """Create, test, audit and list environments.

    An environment offers tools and scores rollouts.
    """


env.add_command(audit)
env.add_command(mcp)
env.add_command(index)


@env.command("init", short_help="Create the folder of a new environment.")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="Create the new folder in this folder. Default: the working directory.",
)
def init(name: str, into: Path) -> None:
    """Create the folder of a new environment: a Python package with a class, example tasks and
    tests.

    \b
      gym-cli env init word_count
      gym-cli env test word_count/
    """
    from gymmesh_cli.environments.scaffold import write_environment

    for path in write_environment(name, into):
        echo(str(path))
    echo(f"\nNext: gym-cli env test {into / name}/")


@env.command("test", short_help="Test an environment.")
@click.argument("place")
@mesh_options
@tasks_option
@click.option(
    "--sessions",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Number of sessions that the load test opens at a time.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as failures.")
@json_option
def test(
    place: str,
    mesh: MeshOptions,
    tasks_file: Path | None,
    sessions: int,
    strict: bool,
    as_json: bool,
) -> int:
    """Test an environment: class, tools, example tasks, verdicts, and a short load test.

    The command calls each tool once, with arguments generated from the tool's schema. If a tool
    changes anything outside the environment, use a harmless configuration for the test.

    PLACE is an installed environment, an environment of --config, a class such as file.py:Class, a
    file, or the folder of a package. The environment calls the models of --config. Without
    --config, a built-in scripted model answers.

    \b
      gym-cli env test word_count/
      gym-cli env test math --sessions 500

    A warning is not a failure, but can be a mistake, such as a reward for an empty answer. The last
    check is `gym-cli env audit --cheap` on 10 tasks.

    Exit code 0: no check failed. 1: a check failed, or, with --strict, a check had a warning.
    """
    from gymmesh_mesh.authoring.environments import places, trial
    from gymmesh_runtime.serving import run_bounded

    config = mesh.load()
    tasks = tasks_of(tasks_file) if tasks_file else []
    reports: dict[str, list[Finding]] = {}
    for name, environment in places(place, config).items():
        known = config if mesh.config or mesh.sets else None
        trying = trial(name, environment, known, tasks=tasks, sessions=sessions)
        reports[name] = run_bounded(trying)
        if not as_json:
            _print_findings(name, reports[name])
    if as_json:
        echo_json({name: _rows(found) for name, found in reports.items()})
    fine = all(
        one.fine and not (strict and one.warning) for found in reports.values() for one in found
    )
    return DONE if fine else NOTHING_DONE


@env.command("list", short_help="List the configured and the installed environments.")
@mesh_options
@json_option
def list_environments(mesh: MeshOptions, as_json: bool) -> int:
    """List the environments of a configuration, and the installed environments.

    \b
      gym-cli env list --config mesh.yaml

    Exit code 1: an environment of the configuration can't be loaded.
    """
    from gymmesh_mesh.authoring.environments import about, installed

    config = mesh.load()
    configured = [
        {
            "name": name,
            **_described(about(one.use), one.models),
            "default": name == config.defaults.environment,
        }
        for name, one in config.environments.items()
    ]
    found = [{"name": one.use, **_described(one, {})} for one in installed()]
    given = "configuration" if mesh.config or mesh.sets else "default configuration"
    lines = [
        *_table(f"environments of the {given}:", configured),
        *_table("installed environments:", found),
    ]
    report(as_json, {"environments": configured, "installed": found}, lines)
    return NOTHING_DONE if any(one["problem"] for one in configured) else DONE


def _described(one: About, models: dict[str, str]) -> dict[str, Any]:
    return {
        "use": one.use,
        "description": one.description,
        "version": one.version,
        "models": sorted({models.get(name, name) for name in one.models} | set(models.values())),
        "multi_turn": one.multi_turn,
        "problem": one.problem,
    }


def _table(title: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield title
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        notes = [f"version {row['version']}"] if row["version"] else []
        notes += ["multi-turn"] if row["multi_turn"] else []
        notes += [f"can call models: {', '.join(row['models'])}"] if row["models"] else []
        notes += [f"uses {row['use']}"] if row["use"] != row["name"] else []
        notes += ["default"] if row.get("default") else []
        # The first sentence: the rest is for the page of documentation.
        text = row["problem"] or row["description"].partition(". ")[0]
        yield f"  {row['name']:<{width}}  {text}  ({', '.join(notes)})"
    if not rows:
        yield "  none"


def _rows(found: list[Finding]) -> list[dict[str, Any]]:
    return [
        {"check": one.check, "fine": one.fine, "warning": one.warning, "detail": one.detail}
        for one in found
    ]


def _print_findings(name: str, found: list[Finding]) -> None:
    echo(name)
    width = max(len(one.check) for one in found)
    for one in found:
        mark = "BAD " if not one.fine else "warn" if one.warning else "ok  "
        echo(one_line(f"  {mark}  {one.check:<{width}}  {one.detail}"))
    wrong, warned = sum(not one.fine for one in found), sum(one.warning for one in found)
    text = f"{wrong} of {len(found)} checks failed" if wrong else f"{len(found)} checks passed"
    echo(f"{text}, {warned} with a warning" if warned else text)
