"""gym-cli env audit: the rewards that cheap policies earn from a verifier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import (
    FILE,
    MeshOptions,
    SecurityOptions,
    json_option,
    mesh_options,
    security_options,
    tasks_option,
)
from gymmesh_cli.terminal import (
    DONE,
    NOTHING_DONE,
    GroupedCommand,
    OptionGroup,
    echo,
    echo_json,
    one_line,
    option,
)

if TYPE_CHECKING:
    from gymmesh_audit import AuditOptions, GoldKey, Report


@click.command(
    "audit", cls=GroupedCommand, short_help="Audit a verifier: what reward do cheap policies get?"
)
@click.argument("place", required=False, default="")
@mesh_options
@tasks_option
@option(
    "--address",
    group=OptionGroup.MODELS,
    metavar="HOST:PORT",
    help=("Audit the environments of the resource service at this address, instead of PLACE."),
)
@security_options
@option(
    "--gold",
    "gold_key",
    group=OptionGroup.ANSWERS,
    default="",
    metavar="KEY",
    help=(
        "KEY is the key of the task row with the right answer, or a path such as a.b. "
        "Use this option for environments that don't provide right answers, such as "
        "environments of other frameworks."
    ),
)
@option(
    "--gold-kind",
    group=OptionGroup.ANSWERS,
    default="text",
    show_default=True,
    type=click.Choice(["text", "number", "choice", "json", "sql", "code"]),
    help="The type of the right answer.",
)
@option(
    "--gold-form",
    group=OptionGroup.ANSWERS,
    default="{answer}",
    show_default=True,
    metavar="TEXT",
    help=r"Template of the message that gives the answer, such as '\boxed{{answer}}'.",
)
@option(
    "--deliberate",
    group=OptionGroup.RUNNING,
    type=FILE,
    help=(
        "YAML file with a list of intended findings. Each entry has the keys `attack` "
        "and `reason`, and optionally `task`. Default: deliberate.yaml in the folder of "
        "the environment's module."
    ),
)
@option(
    "--cheap",
    group=OptionGroup.RUNNING,
    is_flag=True,
    help=("Try only attacks that need no right answer, and the right answers themselves."),
)
@option(
    "--max-tasks",
    group=OptionGroup.TASKS,
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Audit at most this many tasks. If there are more tasks, the command samples them at "
    "random.",
)
@option(
    "--seed",
    group=OptionGroup.RUNNING,
    type=int,
    default=0,
    show_default=True,
    help="Seed of the random choices. The same seed tries the same attacks.",
)
@option(
    "--html",
    "html_file",
    group=OptionGroup.MONITORING,
    type=FILE,
    help="Also write the report as an HTML page.",
)
@json_option
def audit(
    place: str,
    mesh: MeshOptions,
    tasks_file: Path | None,
    address: str | None,
    security: SecurityOptions,
    gold_key: str,
    gold_kind: str,
    gold_form: str,
    deliberate: Path | None,
    html_file: Path | None,
    as_json: bool,
    **amounts: Any,
) -> int:
    """Play cheap and clever policies (attacks) against a verifier, and report the rewards.

    PLACE is an installed environment, an environment of --config, a class such as file.py:Class, a
    file, or the folder of a package. The environment calls the models of --config. Without
    --config, scripted models answer. With --address, the command audits a resource service in any
    language. A resource service reveals right answers only if the service's configuration has
    `audit: true`. Without this setting, pass --gold.

    \b
      gym-cli env audit math
      gym-cli env audit guess.py --tasks guess.jsonl --json
      gym-cli env audit --address 127.0.0.1:9310 --gold expected_answer --gold-kind number

    The command really calls the environment's tools, as `gym-cli env test` does. A finding is a
    wrong verdict, such as a reward for an attack. A deliberate finding is in the file of
    --deliberate.

    Exit code 0: no findings, or only deliberate findings. 1: findings that are not deliberate. 2:
    wrong usage, or an environment that judges groups of rollouts (verify_group).
    """
    from gymmesh_audit import AuditOptions, GoldKey, lines, read_deliberate, to_html, to_json
    from gymmesh_runtime.serving import run_bounded

    if bool(place) == bool(address):
        raise click.UsageError("pass exactly one of PLACE and --address")
    if not address:
        security.refuse("--address")
    source = {} if tasks_file is None else {"source": str(tasks_file)}
    golds = GoldKey(gold_key, gold_kind, gold_form, **source) if gold_key else None
    options = AuditOptions(
        seed=amounts["seed"],
        tasks=amounts["max_tasks"],
        cheap=amounts["cheap"],
        deliberate=None if deliberate is None else read_deliberate(deliberate),
    )
    reports: list[Report] = []

    async def collect() -> None:
        made = _reports(place, address, mesh, security, tasks_file, options, golds)
        async for report in made:
            reports.append(report)
            if not as_json:
                for line in lines(report):
                    echo(one_line(line))

    run_bounded(collect())
    if as_json:
        echo_json({one.environment: to_json(one) for one in reports})
    if html_file is not None:
        html_file.write_text(to_html(reports), encoding="utf-8")
    return NOTHING_DONE if not all(one.passed for one in reports) else DONE


async def _reports(
    place: str,
    address: str | None,
    mesh: MeshOptions,
    security: SecurityOptions,
    tasks_file: Path | None,
    options: AuditOptions,
    golds: GoldKey | None,
) -> AsyncIterator[Report]:
    from gymmesh_cli.environments.task_files import tasks_of
    from gymmesh_mesh.authoring.auditing import audit_address, audit_here
    from gymmesh_mesh.authoring.environments import places

    config = mesh.load()
    tasks = tasks_of(tasks_file) if tasks_file else []
    if address:
        over = security.over(config.security)
        async for report in audit_address(
            address, options, config=config, security=over, tasks=tasks, known=golds
        ):
            yield report
        return
    models = config if mesh.config or mesh.sets else None
    for name, environment in places(place, config).items():
        yield await audit_here(name, environment, models, options, tasks=tasks, known=golds)
